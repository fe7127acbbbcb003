"""The standard streams of the command line: nothing that is wrong with them changes an exit status."""

from __future__ import annotations

import io
import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class _Lenient(io.TextIOWrapper):
    """Text that goes nowhere once it cannot be written, as where a device is full."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)
        except ValueError:  # closed
            pass

    def _give_up(self, error: OSError) -> None:
        """Write to nowhere from now on; say so on standard error, unless a reader has just closed its end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError) and self.fileno() == 1 and sys.stderr is not None:
            sys.stderr.write(f"racecheck: cannot write to standard output: {error.strerror}; see the exit status\n")


def secure() -> None:
    """Open closed standard streams on nothing, and have none of them raise an error when it is written.

    A file that is opened later must not get the number of a standard stream.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            assert opened == number, f"{opened} is free below {number}"
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            encoding, errors, lines = stream.encoding, stream.errors, stream.line_buffering
            setattr(sys, name, _Lenient(stream.detach(), encoding, errors, line_buffering=lines))
