"""Digests of files' bytes, the same in every session.

Sessions that run at once have numbered directories of their own (`racecheck.processes.session.Slot`), and checkpointers
write the path of the watched one into files: as text, or as a ``Path``, which pickle takes to pieces.  Numbers have one
length, and count as 0 here.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

SLOT = "{:04d}"
"""A slot's number in its path."""
_HOME = b"racecheck-"
_STRING = rb"(?:\x8c\x04|X\x04\0{3})"
"""A string of 4 characters in a pickle: SHORT_BINUNICODE and BINUNICODE, after the opcode that memoizes the one before.
"""
_NUMBER = re.compile(rb"/racecheck-\d+/\d{4}(?=[/\W]|$)|racecheck-\d+.{0,6}?" + _STRING + rb"\d{4}", re.DOTALL)


class Digest:
    """SHA-256 of bytes that come piece by piece."""

    def __init__(self) -> None:
        self._hash: Any = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(plain(data))

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())


def plain(data: bytes) -> bytes:
    """Return the same bytes, as they would be in the first slot."""
    return _NUMBER.sub(lambda found: found[0][:-4] + b"0000", data) if _HOME in data else data
