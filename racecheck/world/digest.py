"""Digests of what is in files, the same in every session.

Sessions that run at once have numbered directories of their own (`racecheck.world.session.Slot`), and savers write the
path of the watched one into files.  The numbers have one length, and count as 0 here.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

SLOT = "{:04d}"
"""How the number of a slot is written in its path."""
_HOME = b"/racecheck-"
_NUMBER = re.compile(rb"(/racecheck-\d+/)\d{4}(?=[/\W]|$)")


class Digest:
    """SHA-256 of bytes that come piece by piece."""

    def __init__(self) -> None:
        self._hash: Any = hashlib.sha256()

    def update(self, data: bytes) -> None:
        self._hash.update(plain(data))

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())


def plain(data: bytes) -> bytes:
    """The same bytes, as they would be in the first slot."""
    return _NUMBER.sub(rb"\g<1>0000", data) if _HOME in data else data
