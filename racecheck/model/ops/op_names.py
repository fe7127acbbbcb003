"""Names that stay the same when the code around an op has changed, and when other ranks do the same.

An op is the n-th of its thread that is called so: what else the thread does before it does not count.  In paths,
numbers and what is made up for temporary files are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from racecheck.model.nouns import Op, OpName

_TEMPORARY = r"(?<=tmp)[a-z0-9_]{8}(?![A-Za-z0-9_])"
"""As `tempfile` makes them up."""
_HEXADECIMAL = r"(?<![0-9A-Za-z])(?=[a-f-]*[0-9])[0-9a-f-]{8,}(?![0-9A-Za-z])"
_NUMBER = r"[0-9]+"
_VARIES = re.compile(f"{_TEMPORARY}|{_HEXADECIMAL}|{_NUMBER}")


@lru_cache(maxsize=4096)
def pattern(text: str) -> str:
    """Return a path's or text's pattern: ``ckpt/step10/__0_1.distcp`` becomes ``ckpt/step#/__#_#.distcp``."""
    return _VARIES.sub("#", text)


class Naming:
    """Names the ops of one run, one after the other."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def peek(self, op: Op) -> OpName:
        """Return the name of an op that is the next one of its thread."""
        key = _key(op)
        return OpName(*key, number=self._counts[key] + 1)

    def take(self, op: Op) -> OpName:
        """Return the name of an op that has happened."""
        name = self.peek(op)
        self._counts[_key(op)] += 1
        return name


def paths(op: Op) -> str:
    """Return the paths of an op as a pattern, "" for one that has none."""
    return " -> ".join(pattern(place.path) for place in op.places)


def _key(op: Op) -> tuple[str, str, str]:
    return op.thread, op.call, paths(op)
