"""What to do about an error: which name was meant, which limit to raise."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable

_MOST = 3


_NO_PROCESS = os.strerror(errno.EAGAIN)


def of_limit(words: str) -> str:
    """Return what to do about an error with these words if no process or thread could be started; else ""."""
    return "allow more processes (ulimit -u, in a container --pids-limit)" if _NO_PROCESS in words else ""


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return which of the ``known`` names was meant, as text; if none is close, ``otherwise``, or all names."""
    names = [*known]
    begun = [each for each in names if len(name) > 1 and each.startswith(name)]
    close = [*dict.fromkeys([*begun, *difflib.get_close_matches(name, names, n=_MOST)])][:_MOST]
    return f"did you mean {' or '.join(close)}?" if close else otherwise or f"known: {', '.join(names)}"
