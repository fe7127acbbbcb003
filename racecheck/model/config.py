"""The one place that reads the environment."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from racecheck.model.errors import UsageError

MOST_JOBS = 256
_root = Path()


@dataclass(frozen=True, slots=True)
class Config:
    """``runs`` is where worlds live while they run, ``findings`` where findings are kept."""

    runs: Path
    findings: Path


def read() -> Config:
    """Return the settings from ``RACECHECK_RUNS`` and ``RACECHECK_FINDINGS``.

    Their defaults are /dev/shm, else the temporary directory, and ``.racecheck`` in the current directory.
    """
    memory = Path("/dev/shm")  # noqa: S108
    fallback = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return Config(
        runs=Path(os.environ.get("RACECHECK_RUNS") or fallback),
        findings=Path(os.environ.get("RACECHECK_FINDINGS") or ".racecheck"),
    )


def jobs() -> int:
    """Return how many runs to make at once: ``RACECHECK_JOBS``, else 1 under pytest-xdist, else the usable cores.

    Raises `UsageError` for a text that is no such number.
    """
    given = os.environ.get("RACECHECK_JOBS", "").strip()
    if given and not (given.isdecimal() and 1 <= int(given) <= MOST_JOBS):
        raise UsageError(f"RACECHECK_JOBS must be from 1 to {MOST_JOBS}, not {given!r}")
    if given:
        return int(given)
    return 1 if "PYTEST_XDIST_WORKER" in os.environ else min(MOST_JOBS, len(os.sched_getaffinity(0)))


def begin_in(directory: Path) -> Path:
    """Let relative paths of an API begin in a directory; returns where they began before."""
    global _root
    before, _root = _root, directory
    return before


def root() -> Path:
    """Return where relative paths of an API begin: pytest's root directory, else the current one."""
    return _root
