"""Which lines of a stack are the user's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from racecheck.model.nouns import Frame
from racecheck.model.package import PLACE

_OWN = str(PLACE)
_INSTALLED = re.compile(r"/(site|dist)-packages/")
_STANDARD = re.compile(r"<|.*/lib(64)?/python3(\.\d+)?t?/")


def user_frames(stack: Sequence[Frame]) -> list[Frame]:
    """Return the frames of the user's code, innermost first.

    User's code is neither the standard library's, nor installed, nor racecheck's.  Where a stack has none,
    the nearest to it stands in: racecheck's (its checkpointers are code under test), else what is installed.
    """
    nearest = min(map(distance, stack), default=0)
    return [frame for frame in stack if distance(frame) == nearest]


def distance(frame: Frame) -> int:
    """Return how far a frame is from the user's code: 0 is the user's own, 3 the standard library's.

    The path's form decides, not this machine's library: a finding may come from another machine.
    """
    if frame.file.startswith(f"{_OWN}/"):
        return 1
    if _INSTALLED.search(frame.file):
        return 2
    return 3 if _STANDARD.match(frame.file) else 0
