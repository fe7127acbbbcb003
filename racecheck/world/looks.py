"""What a program learns of time: each look at a time of a watched file, and the first look at a clock.

The times of files say who came first, also of ops that nothing else orders.  So the supervisor hears which of them a
program looks at: the attributes ``st_mtime`` and the like of ``os.stat_result`` tell it.  (A time that is taken by its
index, or by a program that is not Python, goes unnoticed.)  The classes are C's own; Python has no other way to change
them than through the dictionary behind ``__dict__``.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

from racecheck.world.agent import announce, tell_of_clock
from racecheck.world.virtual import EPOCH

_TIMES = ("st_atime", "st_mtime", "st_ctime", "st_birthtime")
_looked: set[int] = set()


def install() -> None:
    """Have each time of a file, and whatever tells the time of day, tell the supervisor that it is looked at.

    Done once, in the zygote.
    """
    status = _attributes(os.stat_result)
    for name in _TIMES:
        if name in status:
            exact = status[f"{name}_ns"].__get__
            status[name] = _looking(status[name].__get__, exact)
            status[f"{name}_ns"] = _looking(exact, exact)
    for owner, methods in (dt.datetime, ("now", "utcnow")), (dt.date, ("today",)):
        for method in methods:
            _attributes(owner)[method] = _telling(_attributes(owner)[method])
    for each in os.stat_result, dt.datetime, dt.date:
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(each))
    for function, before in (("localtime", 0), ("gmtime", 0), ("ctime", 0), ("strftime", 1), ("asctime", 0)):
        setattr(time, function, _now(getattr(time, function), before))


def _attributes(owner: type) -> dict[str, Any]:
    (found,) = gc.get_referents(owner.__dict__)
    assert isinstance(found, dict)
    return found


def _looking(get: Callable[[Any], Any], exact: Callable[[Any], int]) -> property:
    def look(status: os.stat_result) -> Any:
        _note(exact(status) - EPOCH)
        return get(status)

    return property(look)


def _note(since: int) -> None:
    """Only an op of a run gives a file such a time."""
    if since >= 0 and since not in _looked:
        _looked.add(since)
        announce({"is": "looks at time", "nanoseconds": since})


def _telling(method: Any) -> classmethod[Any, Any, Any]:
    def tell(owner: type, *arguments: Any, **named: Any) -> Any:
        tell_of_clock(inspect.currentframe())
        return method.__get__(None, owner)(*arguments, **named)

    return classmethod(tell)


def _now(function: Callable[..., Any], before: int) -> Callable[..., Any]:
    """A function that tells the time of day if it has no more arguments than ``before``."""

    def tell(*arguments: Any) -> Any:
        if len(arguments) <= before:
            tell_of_clock(inspect.currentframe())
        return function(*arguments)

    return tell
