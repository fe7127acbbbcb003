"""Damage of checkpoint files at rest: the disks that it leaves after a whole run."""

from __future__ import annotations

from racecheck.crash.damage.damages import KINDS, damaged, reads_files

__all__ = ["KINDS", "damaged", "reads_files"]
