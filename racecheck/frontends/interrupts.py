"""Signals that end the work as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(BaseException):
    """Ctrl-C; the text says how far it got."""


@contextmanager
def as_interrupt(number: signal.Signals) -> Iterator[None]:
    """Let a signal end the work as Ctrl-C does.  Only the main thread can ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, before)
