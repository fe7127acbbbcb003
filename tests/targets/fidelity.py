"""Scenarios that do what an ordinary process does, to see that control changes nothing.  Not collected by pytest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fidelity_data  # noqa: F401
import fidelity_locks  # noqa: F401
import fidelity_open  # noqa: F401
import fidelity_paths  # noqa: F401
import fidelity_raw

from racecheck import Rank, scenario


@scenario(ranks=1, max_ops=100_000)
def battery(rank: Rank) -> dict[str, Any]:
    """Every program, one after the other."""
    return fidelity_raw.run(rank.path)


@battery.setup
def directories(path: Path) -> None:
    fidelity_raw.prepare(path)


if __name__ == "__main__":
    import sys

    fidelity_raw.main(Path(sys.argv[1]))
