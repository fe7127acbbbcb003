"""The blocks of a run, and orders of its ops that have fewer of them.  A block is the ops of a thread between switches.

Jalbert, Sen: "A Trace Simplification Technique for Effective Debugging of Concurrent Programs", FSE 2010, moves whole
blocks.  That is not enough where a switch came too early or too late: there a block is cut in two, at an op that other
threads depend on, for a cut anywhere else would be no other order of the ops that matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from racecheck.model.nouns import Outcome
from racecheck.model.ops.footprint import Footprint, depends
from racecheck.scheduling import file_times
from racecheck.scheduling.strategies.following.guided import Turn, turns

Block = list[Turn]
BlockOrder = tuple[Turn, ...]


def blocks(outcome: Outcome) -> list[Block]:
    """Return the ops of a run, as turns of threads, in blocks."""
    return [list(block) for _, block in groupby(turns(outcome.trace), key=lambda turn: turn[0])]


def joined(outcome: Outcome, number: int) -> Iterator[BlockOrder]:
    """Yield orders in which one block goes right before the next one of its thread, or right after the previous one."""
    found = blocks(outcome)
    same = _of_thread(found, number)
    at = same.index(number)
    if at + 1 < len(same):
        later = same[at + 1]
        yield _order(found, {number: [], later: found[number] + found[later]})
    if at:
        earlier = same[at - 1]
        yield _order(found, {number: [], earlier: found[earlier] + found[number]})


def shifted(outcome: Outcome, number: int) -> Iterator[BlockOrder]:
    """Yield orders in which a block, the next one and those after them of the same threads are three blocks, not four.

    The second continues with the fourth; how much of the third continues the first differs from order to order.
    """
    found = blocks(outcome)
    first, second = number, number + 1
    third = next((each for each in _of_thread(found, first) if each > second), None)
    fourth = next((each for each in _of_thread(found, second) if each > second), None) if third else None
    if third is None or fourth is None:
        return
    longer, rest = found[second] + found[fourth], found[third]
    for cut in _cuts(rest, _shared(outcome)):
        yield _order(found, {first: found[first] + rest[:cut], second: longer, third: rest[cut:], fourth: []})


def _of_thread(found: Sequence[Block], number: int) -> list[int]:
    """Return the blocks of the thread that has this one."""
    if number >= len(found):
        return []
    thread = found[number][0][0]
    return [each for each, block in enumerate(found) if block[0][0] == thread]


def _order(found: Sequence[Block], changes: Mapping[int, Block]) -> BlockOrder:
    return tuple(turn for number, block in enumerate(found) for turn in changes.get(number, block))


def _cuts(block: Block, shared: frozenset[Turn]) -> list[int]:
    return [at for at in range(1, len(block)) if block[at] in shared or block[at - 1] in shared]


def _shared(outcome: Outcome) -> frozenset[Turn]:
    """Return the ops that depend on one of another thread."""
    model = file_times.relation_of(outcome)
    touched: list[tuple[Turn, Footprint]] = [
        (turn, model.footprint(op)) for turn, op in zip(turns(outcome.trace), outcome.ops, strict=True)
    ]
    return frozenset(
        turn
        for turn, mine in touched
        if any(turn[0] != other[0] and depends(mine, theirs) for other, theirs in touched)
    )
