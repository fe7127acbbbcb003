"""Vector clocks: how many ops of each thread happen before something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Clock = dict[str, int]


def join(clock: Clock, *others: Mapping[str, int]) -> None:
    """Advance ``clock`` to the least one that is after itself and the others."""
    for other in others:
        for thread, count in other.items():
            if clock.get(thread, 0) < count:
                clock[thread] = count


_ROOT_TO_ALL = frozenset({"broadcast", "scatter"})
_ALL_TO_ROOT = frozenset({"reduce", "gather"})


def before(kind: str, ranks: Sequence[int], root: int, rank: int) -> tuple[int, ...]:
    """Return whose parts of a collective happen before ``rank`` continues."""
    if kind == "send/recv":
        return (ranks[0],)
    if kind in _ROOT_TO_ALL:
        return (root,)
    if kind in _ALL_TO_ROOT and rank != root:
        return (rank,)
    return tuple(ranks)
