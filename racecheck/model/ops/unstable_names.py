"""Names that differ between two runs of one schedule, shown by their role: the n-th name of a thread.

Randomness comes from the seed, but not all of it: Rust's temporary files draw their names from the clock and from
addresses, and a process puts its number into a name.  What differs between runs of one schedule is learnt as a
pattern, and from then on a name that fits is shown as ``.tmp<0:1>``, the first such name that thread 0 came with.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from racecheck.model.nouns import Op, Outcome

_NUMBER = "[0-9]"
_CLASSES = (
    (_NUMBER, string.digits),
    ("[0-9a-f]", string.hexdigits.lower()),
    ("[0-9A-Za-z]", string.digits + string.ascii_letters),
    ("[0-9A-Za-z_-]", string.digits + string.ascii_letters + "_-"),
)
_Value = TypeVar("_Value")


@dataclass(slots=True)
class Names:
    """``patterns`` are regular expressions with one group, the part that differs."""

    patterns: Sequence[str] = ()
    _shown: dict[str, str] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def meet(self, thread: str, path: str) -> None:
        """Name the parts of a path that fit a pattern, if the thread is the first to mention them."""
        for part in path.split("/"):
            if part not in self._shown and (found := self._fit(part)) is not None:
                pattern, start, end = found
                self._counts[thread, pattern] = number = self._counts.get((thread, pattern), 0) + 1
                self._shown[part] = f"{part[:start]}<{thread}:{number}>{part[end:]}"

    def _fit(self, part: str) -> tuple[str, int, int] | None:
        for pattern in self.patterns:
            match = re.fullmatch(pattern, part)
            if match is not None:
                return pattern, match.start(1), match.end(1)
        return None

    def copy(self) -> Names:
        """Return these names, as far as they have been met, for a run that goes on from there."""
        return Names(self.patterns, dict(self._shown), dict(self._counts))

    def show(self, path: str) -> str:
        """Return a path with its names as they are shown."""
        if not self._shown:
            return path
        return "/".join(self._shown.get(part, part) for part in path.split("/"))

    def cover(self, value: _Value) -> _Value:
        """Return data of the model with the names shown in every text of it."""
        if not self._shown:
            return value
        pattern = re.compile("|".join(map(re.escape, sorted(self._shown, key=len, reverse=True))))
        covered: _Value = _cover(value, pattern, self._shown)
        return covered


def _cover(value: Any, pattern: re.Pattern[str], shown: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda match: shown[match[0]], value)
    if isinstance(value, Mapping):
        return {_cover(key, pattern, shown): _cover(each, pattern, shown) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cover(each, pattern, shown) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        covered = {each.name: _cover(getattr(value, each.name), pattern, shown) for each in fields(value)}
        return replace(value, **covered)
    return value


def learn(runs: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the patterns of the names in which runs of one schedule differ, op by op of each thread."""
    found: dict[str, None] = {}
    for ops in _aligned([_by_thread(run.ops) for run in runs]):
        if len({op.call for op in ops}) > 1:
            continue
        for paths in zip(*([place.path for place in op.places] for op in ops), strict=False):
            for parts in zip(*(path.split("/") for path in paths), strict=False):
                if len(set(parts)) > 1 and (pattern := _pattern(parts)) is not None:
                    found[pattern] = None
    return tuple(found)


def _by_thread(ops: Iterable[Op]) -> dict[str, list[Op]]:
    threads: dict[str, list[Op]] = {}
    for op in ops:
        threads.setdefault(op.thread, []).append(op)
    return threads


def _aligned(runs: Sequence[dict[str, list[Op]]]) -> Iterator[tuple[Op, ...]]:
    """Yield the n-th op of a thread in all runs, for every thread and n."""
    for thread in runs[0]:
        yield from zip(*(run.get(thread, []) for run in runs), strict=False)


def _common(texts: Sequence[str]) -> int:
    """Return how many letters all begin with."""
    return sum(1 for _ in itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False)))


def _pattern(names: Sequence[str]) -> str | None:
    """Return a pattern that fits all of these names; None if they have too little in common."""
    start = _common(names)
    end = _common([name[start:][::-1] for name in names])
    middles = [name[start : len(name) - end] for name in names]
    kind = next((kind for kind, letters in _CLASSES if all(set(each) <= set(letters) for each in middles)), None)
    if kind is None or not all(middles):
        return None
    head, tail = names[0][:start], names[0][len(names[0]) - end :]
    if kind == _NUMBER:  # of any length: two numbers may begin or end alike by chance
        return f"{re.escape(head.rstrip(string.digits))}({kind}+){re.escape(tail.lstrip(string.digits))}"
    shortest, longest = min(map(len, middles)), max(map(len, middles))
    return f"{re.escape(head)}({kind}{{{shortest},{longest}}}){re.escape(tail)}"
