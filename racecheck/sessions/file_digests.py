"""Digests of files' bytes, the same in every session.

Sessions that run at once have numbered directories of their own (`racecheck.sessions.session.Slot`), and checkpointers
write the path of the watched one into files.  Numbers have one length, and count as 0 here.  That is no help where the
bytes are compressed, or a checksum stands beside them: hence a replay takes the slot that the finding was made in.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

SLOT = "racecheck-{:04d}"
"""The name of a slot's directory."""
_HOME = b"racecheck-"
_NUMBER = re.compile(rb"racecheck-\d{4}(?!\d)")


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
