"""Damage of checkpoint files at rest: the disks that it leaves after a whole run."""

from __future__ import annotations

from racecheck.crash.damage.damages import KINDS, Damages, reads_files

__all__ = ["KINDS", "Damages", "reads_files"]
