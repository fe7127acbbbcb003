"""The key-value store through which process groups find each other, kept by the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from racecheck.world.tasks import Clock, join


class Store:
    """Values are hexadecimal text, as they travel.  What a rank reads happens after what was written."""

    def __init__(self) -> None:
        self._data: dict[str, str] = {}
        self._clocks: dict[str, Clock] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "set": self._set,
            "get": lambda key: self._data[key],
            "wait": lambda *_: None,
            "add": self._add,
            "check": lambda *keys: all(key in self._data for key in keys),
            "append": lambda key, value: self._set(key, self._data.get(key, "") + value),
            "compare_set": self._compare_set,
            "delete": lambda key: self._data.pop(key, None) is not None,
            "count": lambda: len(self._data),
        }

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def missing(self, do: str, arguments: Sequence[Any]) -> list[str]:
        """The keys that an operation has to wait for."""
        return [key for key in arguments if key not in self._data] if do in {"get", "wait"} else []

    def do(self, do: str, arguments: Sequence[Any], clock: Clock) -> Any:
        """Carry an operation out; ``clock`` is the caller's, which learns from what it reads."""
        keys = arguments if do in {"wait", "check"} else arguments[:1]
        for key in keys:
            known = self._clocks.setdefault(key, {})
            if do != "set":
                join(clock, known)
            if do not in {"get", "wait", "check"}:
                join(known, clock)
        return self._operations[do](*arguments)

    def _set(self, key: str, value: str) -> None:
        self._data[key] = value

    def _add(self, key: str, amount: int) -> int:
        total = int(bytes.fromhex(self._data[key])) if key in self._data else 0
        self._data[key] = str(total + amount).encode().hex()
        return total + amount

    def _compare_set(self, key: str, expected: str, desired: str) -> str:
        if self._data.get(key, "") == expected:
            self._data[key] = desired
        return self._data.get(key, expected)
