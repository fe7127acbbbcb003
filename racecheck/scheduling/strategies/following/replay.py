"""Follow a recorded schedule, and notice where that is no longer possible."""

from __future__ import annotations

from random import Random

from racecheck.model.nouns import Outcome, Point, Schedule
from racecheck.scheduling.strategies.protocol import Strategy


class Replay(Strategy):
    """``divergence`` says at which step a run left the schedule, and why; "" as long as it has not.

    The indices are the truth; the labels tell that an index means the same op as when it was recorded.  After a
    divergence, and after the schedule's end, the default option is taken.  ``labels`` False: the indices alone count.
    """

    def __init__(self, schedule: Schedule, *, labels: bool = True) -> None:
        self._schedule, self._labels = schedule, labels
        self._step = 0
        self.divergence = ""

    def begin(self, rng: Random) -> bool:
        del rng
        self._step, self.divergence = 0, ""
        return True

    def choose(self, point: Point) -> int:
        step, self._step = self._step, self._step + 1
        if self.divergence:
            return 0
        if step >= len(self._schedule):
            self.divergence = f"the run continues after the {step} choices of the schedule"
            return 0
        recorded = self._schedule[step]
        labels = [option.label for option in point.options]
        is_one = recorded.count == len(labels) and 0 <= recorded.index < len(labels)
        if not is_one or (self._labels and labels[recorded.index] != recorded.label):
            self.divergence = (
                f"at choice {step} the schedule takes {recorded.label!r} (option {recorded.index} of "
                f"{recorded.count}), but the options are: {', '.join(labels)}"
            )
            return 0
        return recorded.index

    def end(self, outcome: Outcome) -> None:
        del outcome
        if not self.divergence and self._step < len(self._schedule):
            self.divergence = f"the run ended after {self._step} of the schedule's {len(self._schedule)} choices"
