"""TARGET on the command line: its file is imported, and prints to standard error meanwhile."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from racecheck.model.nouns import Invariant
from racecheck.targets import listing, resolve
from racecheck.targets.resolve import TargetPlace
from racecheck.targets.scenarios import Scenario


def load_target(target: str) -> Scenario:
    """Return the scenario; raises `UsageError`."""
    if "::" not in target and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with listing.importing(target), redirect_stdout(sys.stderr):
        return resolve.load(target)


def load_invariant(target: str) -> Invariant:
    """Return the function that ``path/to/file.py::name`` names; raises `UsageError`."""
    with listing.importing(target), redirect_stdout(sys.stderr):
        return resolve.invariant(target)


def find_target(at: TargetPlace) -> Scenario:
    """Return the scenario at a place that is known already; raises `UsageError`."""
    with listing.importing(at.target), redirect_stdout(sys.stderr):
        return resolve.find(at)
