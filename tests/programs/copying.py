"""A file that comes from outside the watched directory."""

from __future__ import annotations

import shutil

import racecheck
from racecheck import Rank


@racecheck.scenario(ranks=1)
def from_outside(rank: Rank) -> None:
    """``shutil.copyfile`` uses sendfile."""
    shutil.copyfile(__file__, rank.path / "copy")
