"""How the time for a checkpointer is shared out.

A first pass gives every check its default runs: all single faults where there are any, and some schedules elsewhere
(with the single stale reads first).  The most telling checks come first and take what they need of the time, as far as
something is left for each of the others.  What is left after that goes to explaining failures, then to checks for which
there was not enough time, and then to a longer search for more.
"""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.model.nouns import World

FIRST, LONG = 30, 200
MOST = 10_000
"""Single faults are a fixed number: only time ends a sweep."""
_RESERVED = 3
"""This many plain runs are kept for each check that is still to come: its first run happens twice."""
_PARTS = 8
"""The largest part of all the time that one check may take in the first pass."""
_LONGEST_EXPLANATION = 20.0


@dataclass(frozen=True, slots=True)
class Budget:
    """How far a search may go."""

    strategy: str
    schedules: int
    seconds: float


def first(world: World, *, left: float, after: int, total: int, seconds: float, run: float) -> Budget | None:
    """Return the limits of a check in the first pass; None if no time is left.

    ``left`` seconds are there, ``after`` of ``total`` checks come after this one, and a plain run takes
    ``run`` seconds.
    """
    least = min(_RESERVED * run, left / (after + 1))
    share = max(least, min(seconds / min(_PARTS, total), left - least * after))
    if left <= 0:
        return None
    return Budget("round-robin", MOST, share) if is_swept(world) else Budget("auto", FIRST, share)


def longer(*, left: float, after: int, spent: float, least: float = 2, due: int = 0) -> Budget | None:
    """Return the limits in the second pass; None if there is not ``least`` times the time that the first one ``spent``.

    A longer search begins with the same runs, and with those ``due`` that sweep faults or stale reads.
    """
    share = left / (after + 1)
    return Budget("auto", LONG + due, share) if share > least * spent else None


def explaining(*, left: float, after: int) -> float:
    """Return the seconds for explaining a failure; 0 for none."""
    return min(_LONGEST_EXPLANATION, max(0.0, left) / (after + 1))


def is_swept(world: World) -> bool:
    """Return whether there are single faults to try, one after the other."""
    return any(not fault.nth for fault in world.faults)
