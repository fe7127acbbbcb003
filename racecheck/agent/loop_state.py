"""The state of a loop that sleeps: the plain values that its functions hold, so that a loop that counts shows it."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping
from itertools import count, islice
from types import FrameType, GeneratorType, ModuleType
from typing import Any

from racecheck.agent.hypercalling import OURS

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_DEEP, _MANY, _ALL = 3, 50, 2000
"""How far values are gone into, how many of each, and how many of a frame."""
_unknown = count()


def digest(frame: FrameType | None) -> str:
    """Return a digest of the plain values in the local variables of a frame and of its callers.

    Values in containers and attributes count, too, and the rest of an iterator; of the global variables only numbers.
    A frame with more than `_ALL` values has another digest each time: a counter may be among the others.
    """
    found = hashlib.sha256()
    try:
        while frame is not None:
            if not frame.f_code.co_filename.startswith(OURS):
                values = [*islice(_of_frame(frame), _ALL + 1)]
                if len(values) > _ALL:
                    return f"unknown {next(_unknown)}"
                found.update("\n".join(values).encode(errors="replace"))
            frame = frame.f_back
    except Exception:  # noqa: BLE001 - a method of the program's raised it, and must not end the sleep that calls us
        return f"unknown {next(_unknown)}"
    return found.hexdigest()[:16]


def _of_frame(frame: FrameType) -> Iterator[str]:
    yield f"{frame.f_code.co_name}:{frame.f_lasti}"
    for name, value in frame.f_locals.items():
        yield from _of_value(name, value, _DEEP)
    for name, value in [*frame.f_globals.items()]:
        if type(value) in {int, float}:
            yield f"{name}={value!r}"


def _of_value(name: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{name}={value!r}"
    elif depth == 0 or isinstance(value, (ModuleType, type)) or callable(value):
        return
    elif isinstance(value, Mapping):
        yield from _of_all(((f"{name}.{key!r}", each) for key, each in [*value.items()]), depth)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield f"{name}:{len(value)}"
        yield from _of_all(((f"{name}.{index}", each) for index, each in enumerate([*value])), depth)
    elif isinstance(value, GeneratorType):
        yield f"{name}:{value.gi_frame.f_lasti if value.gi_frame else -1}"
        yield from _of_all((value.gi_frame.f_locals if value.gi_frame else {}).items(), depth)
    elif hasattr(type(value), "__next__"):
        yield f"{name}:{operator.length_hint(value, -1)}:{value!r}"
    else:
        yield from _of_all([*getattr(value, "__dict__", {}).items()], depth)


def _of_all(values: Any, depth: int) -> Iterator[str]:
    for name, value in islice(values, _MANY):
        yield from _of_value(str(name), value, depth - 1)
