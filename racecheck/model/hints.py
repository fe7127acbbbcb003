"""What an error about an unknown name says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 3


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return which of the ``known`` names was meant, as text; if none is close, ``otherwise``, or all names."""
    names = [*known]
    begun = [each for each in names if len(name) > 1 and each.startswith(name)]
    close = [*dict.fromkeys([*begun, *difflib.get_close_matches(name, names, n=_MOST)])][:_MOST]
    return f"did you mean {' or '.join(close)}?" if close else otherwise or f"known: {', '.join(names)}"
