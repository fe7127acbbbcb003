"""Files that somebody gives us: read and parsed only if they are of a size and kind that they can be meant to be."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from racecheck.kernel.real_files import real
from racecheck.model.errors import UsageError

LARGEST = 256 << 20
_MOST_VALUES = 2_000_000
"""The most values of a JSON file: the largest findings have a tenth of that."""


def read(path: Path) -> bytes:
    """Return the content of a real file; waits for nothing, and never ends up in a device or a pipe.

    Raises `OSError`, and `UsageError` for a file that is not regular or is too large.  A file of ``/proc`` reports no
    size, and counts as empty.
    """
    descriptor = os.open(real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise UsageError(f"{path}: {what}; name a file")
        if status.st_size > LARGEST:
            raise UsageError(f"{path}: more than {LARGEST >> 20} MiB")
        if not status.st_size:
            return b""
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def parse(text: str, *, pairs: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    """Return the data of a JSON text; ``pairs`` makes an object of its keys and values.

    Raises `ValueError` for what is no JSON, is nested too deeply, or would fill the memory with values.
    """
    if sum(map(text.count, ",[{")) > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES:,} values")
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
