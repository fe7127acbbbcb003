"""The facts that ranks tell of a run by hypercalls: times that they looked at, saves and loads, training steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from racecheck.model.nouns import Mismatch, Op, TrainingStep, Weights
from racecheck.scheduling.file_times import label


@dataclass(slots=True)
class Told:
    """The facts that ranks have told so far; all times are in nanoseconds since the run began."""

    weights: list[Weights] = field(default_factory=list)
    steps: list[TrainingStep] = field(default_factory=list)
    mismatch: Mismatch | None = None
    times: dict[int, int] = field(default_factory=dict)
    """The first time of day that each rank asked for."""
    looked: set[int] = field(default_factory=set)
    """The times of files that a program looked at."""
    lookers: set[str] = field(default_factory=set)
    """The ops that had asked for these."""
    shown: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The ops that showed each time of a file."""

    def show(self, times: Iterable[int], op: Op, *, all_seen: bool) -> None:
        """Note that an op showed times of a file.

        ``all_seen``: they count as looked at at once, since nothing tells of the looks of a foreign program.
        """
        for each in times:
            self.shown[each].add(label(op))
            if all_seen:
                self.look(each)

    def look(self, time: int) -> None:
        """Note that a program looks at a time of a file, and which thread had asked for it."""
        self.looked.add(time)
        self.lookers |= self.shown.get(time, set())
