"""The storage in a world's name: ``shared``, ``nfs``, ``nfs(vers=3, actimeo=0, nocto)``, ``object(gcsfuse)``.

A model's settings are a frozen dataclass; an `Option` says which settings a word sets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from racecheck.model.errors import UsageError

_NAME = re.compile(r"([a-z0-9-]+)(?:\((.*)\))?")
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Option:
    """A word of the options: its settings and their values.

    A word with a ``read`` is written with a value ("acregmin=3"), which ``read`` turns into that of each of the
    ``settings`` (it raises `ValueError`), and ``values`` says to people what there is.  A word without stands alone
    ("nocto") and sets each of them to ``value``.
    """

    settings: tuple[str, ...]
    value: Any = True
    read: Callable[[str], Any] | None = None
    values: str = ""


def seconds(*settings: str) -> Option:
    """Return a number of seconds, at most a day."""
    return Option(settings, read=_seconds, values=f"0 to {_DAY:.0f} seconds")


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and 0 <= value <= _DAY):
        raise ValueError
    return value


def one_of(setting: str, values: Mapping[str, Any]) -> Option:
    """Return one of a few words."""

    def read(text: str) -> Any:
        if text not in values:
            raise ValueError
        return values[text]

    return Option((setting,), read=read, values=", ".join(values))


def split(storage: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a model and its options, as written; raises `UsageError` for invalid text."""
    matched = _NAME.fullmatch(storage.strip())
    if matched is None:
        raise UsageError(f"{storage!r} is not a storage: write nfs or nfs(vers=3, nocto)")
    name, options = matched.groups()
    given = [each.strip() for each in options.split(",")] if options and options.strip() else []
    return name, tuple(given)


def read(name: str, given: tuple[str, ...], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the settings that options stand for, the last one counting; raises `UsageError` with the known ones."""
    settings: dict[str, Any] = {}
    for text in given:
        word, equals, value = (part.strip() for part in text.partition("="))
        option = options.get(word)
        if option is None or bool(equals) != (option.read is not None):
            known = ", ".join(f"{each}=" if options[each].read else each for each in options) or "none"
            raise UsageError(f"unknown option {text!r} of storage {name}; known: {known}")
        try:
            meant = option.value if option.read is None else option.read(value)
        except ValueError:
            raise UsageError(f"{word}= of storage {name} must be {option.values}, not {value!r}") from None
        settings.update(dict.fromkeys(option.settings, meant))
    return settings
