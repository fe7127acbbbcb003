"""A program's looks at time: each one at a time of a watched file, and the first one at a clock.

The times of files show which op came first, also of ops that nothing else orders.  So the supervisor hears which of
them a program looks at: the attributes ``st_mtime`` and the like of ``os.stat_result`` tell it.  (A time that is taken
by its index, or by a program that is not Python, goes unnoticed.)  The classes are C's own; Python has no other way to
change them than through the dictionary behind ``__dict__``.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import inspect
import os
import stat
import time
from collections.abc import Callable
from typing import Any

from racecheck.agent.clocks import tell_of_clock
from racecheck.agent.hypercalling import hypercall
from racecheck.model.epoch import EPOCH
from racecheck.model.hypercalls import Looks, LooksAtTime

_TIMES = ("st_mtime", "st_ctime", "st_birthtime")
_COPIES_TIMES = frozenset({"copystat", "gettarinfo"})
"""Functions of Python's library that read a file's access time without passing it on."""
_SETUP = 2 * 3_600 * 10**9
"""The oldest time of a file: a setup, and each run before, makes files up to an hour older than the run."""
_looked: set[int] = set()
_told: set[str] = set()


def install() -> None:
    """Have every access to a file's times, and to the time of day, told to the supervisor.

    Done once, in the zygote.
    """
    _watch_status(_attributes(os.stat_result))
    for owner, methods in (dt.datetime, ("now", "utcnow")), (dt.date, ("today",)):
        for method in methods:
            _attributes(owner)[method] = _telling(_attributes(owner)[method])
    for each in os.stat_result, dt.datetime, dt.date:
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(each))
    for function, before in (("localtime", 0), ("gmtime", 0), ("ctime", 0), ("strftime", 1), ("asctime", 0)):
        setattr(time, function, _now(getattr(time, function), before))


def _watch_status(status: dict[str, Any]) -> None:
    changed = status["st_ctime_ns"].__get__
    for name in _TIMES:
        if name in status:
            exact = status[f"{name}_ns"].__get__
            status[name] = _looking(status[name].__get__, exact)
            status[f"{name}_ns"] = _looking(exact, exact)
    for names, matters, what in (
        (("st_nlink", "st_size"), _is_directory, "directory"),
        (("st_atime", "st_atime_ns"), _is_curious, "last read"),
    ):
        for name in names:
            status[name] = _asking(status[name].__get__, changed, matters, what)


def _attributes(owner: type) -> dict[str, Any]:
    (found,) = gc.get_referents(owner.__dict__)
    assert isinstance(found, dict)
    return found


def _looking(get: Callable[[Any], Any], exact: Callable[[Any], int]) -> property:
    def look(status: os.stat_result) -> Any:
        _note(exact(status) - EPOCH)
        return get(status)

    return property(look)


def _asking(
    get: Callable[[Any], Any], changed: Callable[[Any], int], matters: Callable[[os.stat_result], bool], what: str
) -> property:
    """Return an attribute that tells the supervisor of its first access.

    It does so if the file is watched (by its time) and ``matters``.
    """

    def ask(status: os.stat_result) -> Any:
        if what not in _told and changed(status) >= EPOCH - _SETUP and matters(status):
            _told.add(what)
            hypercall(Looks(what))
        return get(status)

    return property(ask)


def _is_directory(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)


def _is_curious(status: os.stat_result) -> bool:
    del status
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is None or frame.f_code.co_name not in _COPIES_TIMES


def _note(since: int) -> None:
    """Return whether a time can be one of a run, or of its setup."""
    if since >= -_SETUP and since not in _looked:
        _looked.add(since)
        hypercall(LooksAtTime(since))


def _telling(method: Any) -> classmethod[Any, Any, Any]:
    def tell(owner: type, *arguments: Any, **named: Any) -> Any:
        tell_of_clock(inspect.currentframe())
        return method.__get__(None, owner)(*arguments, **named)

    return classmethod(tell)


def _now(function: Callable[..., Any], before: int) -> Callable[..., Any]:
    """Return a function that returns the time of day if it has no more arguments than ``before``."""

    def tell(*arguments: Any) -> Any:
        if len(arguments) <= before:
            tell_of_clock(inspect.currentframe())
        return function(*arguments)

    return tell
