"""The doubts of a search: why some of its runs prove nothing, and how many runs each reason is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

DIFFERS = "two runs of the same schedule differ"
UNCONFIRMED = "not confirmed"
MOST_IN_A_ROW = 3
"""After this many runs in a row that do not repeat or do not end, further ones would show no more."""
_TIMES = re.compile(r" \(\d+ times\)$")


@dataclass(slots=True)
class _Doubt:
    text: str
    runs: int = 0


@dataclass(slots=True)
class Doubts:
    """``in_a_row`` counts the latest runs that did not end, left their schedule, or did not repeat."""

    in_a_row: int = 0
    _known: dict[str, _Doubt] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, reasons: Iterable[str]) -> None:
        """Note the reasons of one run; how two runs of a schedule differ is told of the first alone."""
        for key, text in {_key(each): each for each in reasons}.items():
            self._known.setdefault(key, _Doubt(text)).runs += 1

    def told(self, runs: int) -> tuple[str, ...]:
        """Return the reasons, each with the number of runs that it is about unless that is all of these ``runs``."""
        return tuple(each.text if each.runs >= runs else _in_some(each, runs) for each in self._known.values())


def _key(reason: str) -> str:
    kind = reason.partition(":")[0]
    return kind if kind in {DIFFERS, UNCONFIRMED} else _TIMES.sub("", reason)


def _in_some(doubt: _Doubt, runs: int) -> str:
    """Return a reason as far as it is known of some runs."""
    differing = ", here the first" if doubt.runs > 1 and doubt.text.startswith((DIFFERS, UNCONFIRMED)) else ""
    return f"{doubt.text} (in {doubt.runs} of {runs} runs{differing})"
