"""Invariants: what must hold of the outcome of every run.

An invariant is a pure function from an `Outcome` to the violations that it finds there, so it can judge a
stored finding as well as a fresh run.  People know it by its name, the function's with dashes
(`name_of`).  `judge` asks all invariants of a scenario and merges what they say into one verdict.
"""

from __future__ import annotations

from racecheck.invariants.disk import nothing_left_over, nothing_outside
from racecheck.invariants.judging import judge, name_of
from racecheck.invariants.ranks import equal_collectives, no_deadlock, no_file_errors, no_unexpected_errors
from racecheck.model import Invariant

__all__ = [
    "DEFAULT",
    "equal_collectives",
    "judge",
    "name_of",
    "no_deadlock",
    "no_file_errors",
    "no_unexpected_errors",
    "nothing_left_over",
    "nothing_outside",
]

DEFAULT: tuple[Invariant, ...] = (
    no_file_errors,
    no_unexpected_errors,
    no_deadlock,
    equal_collectives,
    nothing_outside,
)
"""What a scenario is held to that names no invariants of its own."""
