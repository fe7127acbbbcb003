"""Saves with safetensors, which writes to a name that it draws, and renames that; resumes in place."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path("out")

if (ROOT / "step_1").exists():
    weight = load_file(ROOT / "step_1" / "model.safetensors")
    save_file(weight, ROOT / "again.safetensors")
else:
    (ROOT / "step_1").mkdir()
    save_file({"weight": torch.full((4,), 1.0)}, ROOT / "step_1" / "model.safetensors")
