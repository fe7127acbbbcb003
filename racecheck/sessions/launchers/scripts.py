"""Scripts that start their ranks themselves: ``python train.py``, with ``torch.multiprocessing.spawn`` in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from racecheck.model.errors import UsageError

_WITH_VALUE = frozenset({"-W", "-X"})
_LAUNCHERS = ("torch.distributed.", "deepspeed", "accelerate", "lightning", "horovod", "mpi4py")
"""Modules that start ranks in ways of their own."""


def is_it(command: Sequence[str]) -> bool:
    """Return whether a command runs a script, or a module that is no launcher."""
    if not command or not Path(command[0]).name.startswith("python") or "-c" in command[1:2]:
        return False
    try:
        script, module, _ = program(command[1:])
    except UsageError:
        return False
    return bool(script) or not f"{module}.".startswith(_LAUNCHERS)


def program(words: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """Return the script, or the module, that Python runs with these arguments, and the program's own arguments.

    Raises `UsageError` if there is none.
    """
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, "")
        elif word == "-m":
            return "", next(rest, ""), tuple(rest)
        elif not word.startswith("-"):
            return word, "", tuple(rest)
    raise UsageError(f"the launcher started no script: {' '.join(map(repr, words))[:200]}")
