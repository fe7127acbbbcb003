"""The order of a run that was only observed: for each op on a file, which rank it was of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from racecheck.model.nouns import Op, Outcome, Point
from racecheck.model.ops.file_ops import is_on_file
from racecheck.scheduling.strategies.protocol import Strategy


class Observed(Strategy):
    """Lets the rank go whose next op on a file came first; ``ranks`` are those of the observed ops, in order."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._places: dict[int, list[int]] = {}
        for place, rank in enumerate(ranks):
            self._places.setdefault(rank, []).append(place)

    def begin(self, rng: Random) -> bool:
        del rng
        self._done, self._seen = Counter[int](), 0
        return True

    def choose(self, point: Point) -> int:
        for event in point.trace[self._seen :]:
            if isinstance(event, Op) and is_on_file(event):
                self._done[event.rank] += 1
        self._seen = len(point.trace)
        if point.kind != "next":
            return 0
        return min(range(len(point.options)), key=lambda index: self._place(point.options[index]))

    def _place(self, op: Op) -> float:
        """Return where the next op of this op's rank was; an op that was not observed comes last."""
        places, done = self._places.get(op.rank, []), self._done[op.rank]
        return places[done] if done < len(places) else float("inf")

    def end(self, outcome: Outcome) -> None:
        del outcome
