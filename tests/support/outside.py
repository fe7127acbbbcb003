"""What tests ask of the outside: has something come true by now, and is a tree of files unchanged?"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether a condition on other processes comes true in this time; they send no news, so it is asked repeatedly."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def snapshot(tree: Path) -> dict[str, Any]:
    """Everything below a directory: kinds, modes, times, names, contents."""
    found: dict[str, Any] = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        digest = hashlib.sha256(data).hexdigest()
        found[str(path)] = status.st_mode, status.st_mtime_ns, status.st_size, status.st_nlink, digest
    return found
