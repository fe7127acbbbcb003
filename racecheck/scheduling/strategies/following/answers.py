"""The faults and stale reads of a recorded run, once more at the same ops of another order."""

from __future__ import annotations

from collections.abc import Iterable

from racecheck.model.nouns import Choice, Point


class Answers:
    """The answers of a run's schedule about its ops: which fault hit one, and whether its node saw something stale.

    A point is matched with the first one left of the same kind about an op of the same label.
    """

    def __init__(self, schedule: Iterable[Choice]) -> None:
        self._left = [choice for choice in schedule if choice.kind != "next"]

    def take(self, point: Point) -> int:
        """Return the recorded answer to a point about an op; the default where there is none, or it is no option."""
        label = point.options[0].label
        for number, choice in enumerate(self._left):
            if choice.kind == point.kind and (choice.label == label or choice.label.startswith(f"{label}: ")):
                del self._left[number]
                return _index(choice, point)
        return 0


def _index(choice: Choice, point: Point) -> int:
    if choice.kind == "view":  # its label says how old the answer was, which differs from run to run
        return min(choice.index, len(point.options) - 1)
    return next((index for index, option in enumerate(point.options) if option.label == choice.label), 0)
