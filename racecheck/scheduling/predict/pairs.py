"""Pairs of ops whose order matters, with similar ones merged.

Alike are two pairs that do the same to paths of one pattern, from the same lines of code and with the same success,
whatever their ranks are: all ranks that make the directory which rank 0 has made, say.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from racecheck.model.nouns import Event, Op
from racecheck.model.ops.op_names import paths


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ops of different threads, in the order in which they went, for all similar pairs.

    ``events`` are their indices in the trace; ``ranks`` are those of each of the pairs, this one first.
    """

    first: Op
    second: Op
    events: tuple[int, int]
    ranks: tuple[tuple[int, int], ...]


def pairs_of(trace: Sequence[Event], found: Iterable[tuple[int, int]]) -> list[Pair]:
    """Return the pairs with these indices in the trace, the first of each sort for all similar ones."""
    sorts: dict[Hashable, list[tuple[Op, Op, tuple[int, int]]]] = {}
    for first, second in found:
        one, other = trace[first], trace[second]
        assert isinstance(one, Op)
        assert isinstance(other, Op)
        key = _sort(one), _sort(other), one.rank == other.rank
        sorts.setdefault(key, []).append((one, other, (first, second)))
    return [Pair(*each[0], ranks=tuple((one.rank, other.rank) for one, other, _ in each)) for each in sorts.values()]


def _sort(op: Op) -> Hashable:
    errno = op.result.errno if op.result is not None else ""
    return op.thread.partition(".")[2], op.call, paths(op), op.flags, errno, op.stack
