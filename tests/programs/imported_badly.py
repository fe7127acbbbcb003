"""A module that makes a directory when it is imported: two ranks race for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import racecheck
from racecheck import Rank

if "RANK" in os.environ:
    made = Path(tempfile.gettempdir()) / "cache"
    if not made.exists():
        made.mkdir()


@racecheck.scenario(ranks=2)
def made_at_import(rank: Rank) -> None:
    (rank.path / str(rank.rank)).touch()
