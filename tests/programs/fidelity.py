"""Scenarios that do what an ordinary process does, to see that control changes nothing.  Not collected by pytest.

Started as a program with a directory as its argument, it runs the battery there in an ordinary process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from racecheck import Rank, scenario
from tests.programs import fidelity_data, fidelity_locks, fidelity_open, fidelity_paths, fidelity_raw

PARTS = (fidelity_data, fidelity_locks, fidelity_open, fidelity_paths)
"""Importing them has filled `fidelity_raw.PROGRAMS`."""


@scenario(ranks=1, max_ops=100_000)
def battery(rank: Rank) -> str:
    """Every program, one after the other; returns their packed answers."""
    return fidelity_raw.packed(fidelity_raw.run(rank.path))


@battery.setup
def directories(path: Path) -> None:
    fidelity_raw.prepare(path)


if __name__ == "__main__":
    fidelity_raw.main(Path(sys.argv[1]))
