"""Calls that go in two parts, each of which is an op (`racecheck.scheduling.parts` says which, and why)."""

from __future__ import annotations

from dataclasses import replace

from racecheck.kernel.path_walk import MAX_LINKS
from racecheck.model.ops import op_kinds
from racecheck.model.ops.part_ops import FIRST, SECOND, keeps_waiting, part_of, with_part
from racecheck.scheduling.parts import CHUNK, PAGE, WALK, goes_in_parts, name, walked_by
from racecheck.scheduling.relation import Relation
from racecheck.supervisor.calls.perform import Answer, Next, extent
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import MOST, Request


class CallParts:
    """The calls of a run that go in parts."""

    def __init__(self, state: RunState, relation: Relation) -> None:
        self._state, self._relation = state, relation
        self._parts = frozenset(state.world.parts)
        self._walks = walked_by(state.world)

    def perform(self, request: Request, next_: Next) -> Answer:
        """Carry out the next part of a call, or all of it if it does not go in parts."""
        walked = self._walk(request)
        if walked is not None:
            return walked
        is_half = self._limit(request)
        result = next_(request)
        if not is_half or not self._goes_on(request, result):
            return result
        first = request.op
        request.done, request.op = result.value, replace(first, args={**first.args, "part": SECOND})
        return replace(result, part=first, kill=None)

    def _walk(self, request: Request) -> Answer | None:
        """Follow a path of a request in part, and have the request go on from there.

        Returns the op that this is, with the text of the link that was read; None if no path leads over a name at which
        it is to stop.
        """
        at = self._walks.get(request.op.thread)
        if not at or request.walks >= MAX_LINKS or not goes_in_parts(request.op):
            return None
        found = self._state.decoder.walk(request, at)
        if found is None:
            return None
        request.walks += 1
        place = self._state.decoder.walked_place(found)
        return Answer(text=found.text, part=replace(request.op, call=WALK, places=(place,), flags=(), args={}))

    def holds_up(self, request: Request) -> bool:
        """Return whether a call has to wait because another one is between its two parts."""
        if not self._parts:
            return False
        others = (task.request for task in self._state.stopped_tasks() if task.request is not request)
        halves = [each.op for each in others if each is not None and part_of(each.op) == SECOND]
        touched = self._relation.footprint
        return any(keeps_waiting(each, touched(each), touched(request.op)) for each in halves)

    def _limit(self, request: Request) -> bool:
        """Return whether a call is to move only the first half of its bytes now, which ``request.most`` then says."""
        op = request.op
        if not self._parts or request.done or op.call not in op_kinds.MOVES or name(op, op.path) not in self._parts:
            return False
        half, locks = _half(request)
        if half:
            request.most, request.op = half, replace(op, args=with_part(op, FIRST, locks=locks))
        return half > 0

    def _goes_on(self, request: Request, result: Answer) -> bool:
        """Return whether the second half is still to be moved, after the first one came to this."""
        half, request.most = request.most, MOST
        return not (result.errno or result.carry_on or result.has_ended) and result.value == half


def _half(request: Request) -> tuple[int, bool]:
    """Return how many bytes the first half has, and whether the file that changes is locked meanwhile.

    It ends at a boundary in the file; it has 0 bytes if there is no second one.
    """
    try:
        start, length = extent(request)
    except OSError:
        return 0, False
    in_chunks = request.op.call == "copy" and length > CHUNK
    unit = CHUNK if in_chunks else PAGE
    half = (start + length // 2) // unit * unit - start
    half = half if half > 0 else unit - start % unit
    return (half if half < length else 0), not in_chunks
