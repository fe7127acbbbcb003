"""Run racecheck with launch commands, as a user does.

Each is a process of its own, since it covers the machine's files for itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LAUNCHED = ROOT / "tests" / "programs" / "launched"
TORCHRUN = ["torchrun", "--nproc-per-node=2"]
Racecheck = Callable[..., tuple[int, str]]
"""Runs a command of racecheck; returns its status, and what it printed."""


def environment(findings: Path) -> dict[str, str]:
    """Return an environment with a directory for findings."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "RACECHECK_FINDINGS": str(findings)}


def racecheck_in(directory: Path, findings: Path) -> Racecheck:
    """Return a function that runs commands in a directory; ``path`` is one more to import from."""

    def run(*words: Any, path: Path = ROOT) -> tuple[int, str]:
        command = [sys.executable, "-m", "racecheck", *map(str, words)]
        given = environment(findings)
        given["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([given["PYTHONPATH"], str(path)]))
        done = subprocess.run(command, cwd=directory, env=given, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout or done.stderr

    return run
