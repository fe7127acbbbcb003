"""Threads and processes of ranks: hypercalls when they start, end, poll, wait, and take work from a pool."""

from __future__ import annotations

import _posixsubprocess
import _thread
import functools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from racecheck.agent.clocks import replace_functions
from racecheck.agent.hypercalling import hypercall, stack
from racecheck.agent.job import STACK_SIGNAL
from racecheck.model.hypercalls import (
    BeginItem,
    BeginProcess,
    BeginThread,
    EndItem,
    EndThread,
    Limit,
    Poll,
    StartedChild,
    StartsChild,
    Submit,
    Submitted,
    ThreadFailed,
)
from racecheck.model.nouns import Raised

_THREADING = frozenset({"threading", "queue", "concurrent.futures._base", "concurrent.futures.thread"})
"""Modules whose own questions come with ops of their callers."""


def take_over_threads() -> None:
    """Tell when a Python thread begins, and when a pool is given work and does it."""
    for owner, method, wrap in (threading.Thread, "start", _starting), (ThreadPoolExecutor, "submit", _submitting):
        setattr(owner, method, wrap(getattr(owner, method)))


def take_over_raw_threads() -> None:
    """Tell of threads that a program starts without ``threading``."""
    original = _thread.start_new_thread

    def start(function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> int:
        _about_to_start()
        ident = original(_run_raw, (function, args, kwargs or {}))
        _started()
        return ident

    _thread.start_new_thread = _thread.start_new = start


def _run_raw(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    hypercall(BeginThread(stack=stack()))
    try:
        function(*args, **kwargs)
    finally:
        hypercall(EndThread())


def take_over_processes() -> None:
    """Tell that a process is about to start, that it has begun, and that its parent continues.

    ``subprocess`` and ``multiprocessing`` start programs by a function in C, which runs no hook of ``os.fork``.
    """
    os.register_at_fork(before=_about_to_start, after_in_parent=_started, after_in_child=_begun)
    start = _posixsubprocess.fork_exec
    replace_functions({id(start): _starting_program(start)})


def take_over_polls() -> None:
    """Tell of each question about another thread that does not wait, and that an event is about to be set.

    The answer depends on which thread goes first.
    """
    polls: tuple[tuple[type, tuple[str, ...]], ...] = (
        (threading.Thread, ("is_alive",)),
        (threading.Event, ("is_set", "set", "clear")),
        (Future, ("done", "running", "cancelled")),
        (queue.Queue, ("empty", "full", "qsize")),
    )
    for owner, methods in polls:
        for method in methods:
            setattr(owner, method, _polling(getattr(owner, method), f"{owner.__name__}.{method}"))


def take_over_limits() -> None:
    """Tell how long a thread is about to wait at most: the wait itself only shows a point in time."""
    for owner, method in (threading.Condition, "wait"), (threading.Thread, "join"):
        setattr(owner, method, _limited(getattr(owner, method)))


def take_over_signals() -> None:
    """Leave `STACK_SIGNAL` alone.

    A program that restores all handlers as Python knows them (Lightning's Trainer, when a fit ends) would remove
    faulthandler's, which Python does not know, and end its process with the next request for a stack.
    """
    original = signal.signal

    def set_handler(signalnum: Any, handler: Any) -> Any:
        return signal.SIG_DFL if signalnum == STACK_SIGNAL else original(signalnum, handler)

    signal.signal = set_handler


def _limited(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            hypercall(Limit(round(timeout * 1e9)))
        return original(self, timeout)

    return wait


def _starting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        vars(self)["run"] = functools.partial(_begin, self, self.run)
        _about_to_start()
        original(self)
        _started()

    return start


def _starting_program(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def start(*arguments: Any) -> int:
        _about_to_start()
        pid = original(*arguments)
        _started()
        return pid

    return start


def _about_to_start() -> None:
    """Note that the rank now has several threads or processes."""
    hypercall(StartsChild())


def _started() -> None:
    """Note that a thread or process has been started: it may run first, or its parent may."""
    hypercall(StartedChild(stack=stack()))


def _begun() -> None:
    hypercall(BeginProcess(stack=stack()))


def _polling(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def poll(*arguments: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__")
        if len(threading._active) > 1 and caller not in _THREADING:  # type: ignore[attr-defined]  # active_count() locks
            hypercall(Poll(name, stack=stack()))
        return original(*arguments, **named)

    return poll


def _submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        item = functools.partial(_work, hypercall(Submit()), function)
        try:
            return original(self, item, *given, **named)
        finally:
            hypercall(Submitted(stack=stack()))

    return submit


def _begin(thread: threading.Thread, run: Callable[[], None]) -> None:
    del vars(thread)["run"]
    hypercall(BeginThread(stack=stack()))
    try:
        run()
    except Exception as error:
        if threading.excepthook is threading.__excepthook__:  # which prints it, and that is all
            for say in unhandled:
                say(error, thread.name)
        raise
    finally:
        hypercall(EndThread())


unhandled: list[Callable[[BaseException, str], None]] = []
"""Functions that are told of an exception that ends a thread, with the thread's name."""


def say_failed(result: Raised) -> None:
    """Tell of an exception that has ended a thread."""
    hypercall(ThreadFailed({"type_name": "Raised", **asdict(result)}))


def _work(name: str | None, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    hypercall(BeginItem(name, stack=stack()))
    try:
        return function(*given, **named)
    finally:
        hypercall(EndItem())
