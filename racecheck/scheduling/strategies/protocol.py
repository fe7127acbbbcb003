"""The interface of a strategy.

The runner calls, for each run: 1. ``begin(rng)``, which is False once the strategy has nothing left to try; 2.
``choose(point)`` at each point that has two options or more, which returns the index of one, or raises `Diverged`; 3.
``end(outcome)``, unless it has raised.  A strategy does no input or output, knows no budget and draws from ``rng``
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol

from racecheck.model.nouns import Outcome, Point
from racecheck.scheduling.claims import Claim

Prefix = tuple[tuple[int, str], ...]
"""The steps at which a run of a proof has a choice, up to the one where it is new, and the threads that go there."""

Answered = tuple[Point, int]
"""A point of a run that was made, and the index of the option that was chosen."""


class Diverged(BaseException):
    """An earlier part of the run differs now: the text names it, and the step.

    (Code under test cannot swallow a ``BaseException``.)
    """


class Strategy(Protocol):
    """See the module for the order of calls."""

    def begin(self, rng: Random) -> bool: ...

    def choose(self, point: Point) -> int: ...

    def end(self, outcome: Outcome) -> None:
        """Learn from a run; most strategies do not."""
        del outcome

    def abandon(self) -> None:
        """Forget the run under way, which does not end; most strategies keep nothing of it."""
        return

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        """Return a strategy that has begun the run which comes ``runs`` runs from now, as this one will with that rng.

        None: that run depends on runs that have not ended, as those of a proof do.  Whoever makes the run calls its
        ``choose``; when its turn comes, this strategy gets ``begin`` and ``end`` as ever.
        """
        del runs, rng
        return None

    def subtrees(self) -> Iterator[tuple[Prefix, Strategy]]:
        """Return the subtrees of a proof that are known to be left, in the order of their turn.

        The runs of a subtree all begin with its prefix.  Its strategy makes them as this one will, as far as can be
        told now, and then goes on to other subtrees.  Whatever it makes, this strategy decides with `takes`.
        """
        return iter(())

    def may_come(self, prefix: Prefix) -> bool:
        """Return whether a run with this prefix may yet have its turn, as far as can be told now."""
        del prefix
        return False

    @property
    def prefix(self) -> Prefix:
        """Return the prefix of the run that has begun; empty if it is the first, or not of a proof."""
        return ()

    def takes(self, points: Sequence[Answered]) -> bool:
        """Return whether this strategy chooses, at all these points of a run made elsewhere, as that run did.

        Then ``end`` is next.  Otherwise the run that has begun has yet to be made.
        """
        del points
        return False

    def claim(self) -> Claim:
        """Return the claim of the runs so far; samples prove nothing."""
        return Claim()

    @property
    def wants_stacks(self) -> bool:
        """Return whether the ops of the next run must have stacks: code that polls is known by them."""
        return True

    @property
    def is_proof(self) -> bool:
        """Return whether the runs so far cover every interleaving, as far as the strategy can tell."""
        return self.claim().exhaustive
