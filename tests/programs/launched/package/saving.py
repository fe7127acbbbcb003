"""Every rank makes the directory if it is missing: a race."""

from __future__ import annotations

import os


def save(out: str) -> None:
    if not os.path.exists(f"{out}/ckpt"):
        os.mkdir(f"{out}/ckpt")
