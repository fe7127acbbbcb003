"""The key-value store through which process groups find each other, kept by the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from racecheck.model.ops.store_ops import AWAIT_KEYS
from racecheck.model.vector_clock import Clock, join


def keys_of(do: str, arguments: Sequence[Any]) -> Sequence[str]:
    """Return the keys that an operation is about; none if it is about all."""
    if do == "multi_set":
        return arguments[::2]
    if do in {"count", "keys"}:
        return []
    return arguments if do in {"check", "multi_get", "wait"} else arguments[:1]


class Store:
    """Values are hexadecimal text, as they travel.  A read happens after the write of its value."""

    def __init__(self) -> None:
        self._data: dict[str, str] = {}
        self._clocks: dict[str, Clock] = {}
        self._queues: dict[str, list[str]] = {}
        self._operations: dict[str, Callable[..., Any]] = {
            "set": self._set,
            "get": lambda key: self._data[key],
            "wait": lambda *_: None,
            "add": self._add,
            "check": lambda *keys: all(key in self._data for key in keys),
            "append": lambda key, value: self._set(key, self._data.get(key, "") + value),
            "compare_set": self._compare_set,
            "multi_get": lambda *keys: [self._data[key] for key in keys],
            "multi_set": lambda *pairs: self._data.update(zip(pairs[::2], pairs[1::2], strict=True)),
            "delete": lambda key: self._data.pop(key, None) is not None,
            "keys": lambda prefix: [key for key in self._data if key.startswith(prefix)],
            "queue_push": lambda key, value: self._queues.setdefault(key, []).append(value),
            "queue_pop": lambda key: self._queues[key].pop(0),
            "queue_len": lambda key: len(self._queues.get(key, [])),
            "count": lambda prefix: sum(key.startswith(prefix) for key in self._data),
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def missing(self, do: str, arguments: Sequence[Any]) -> list[str]:
        """Return the keys that an operation has to wait for."""
        if do == "queue_pop":
            return [] if self._queues.get(arguments[0]) else [arguments[0]]
        return [key for key in keys_of(do, arguments) if key not in self._data] if do in AWAIT_KEYS else []

    def do(self, do: str, arguments: Sequence[Any], clock: Clock) -> Any:
        """Carry an operation out; ``clock`` is the caller's, which learns from its reads."""
        for key in keys_of(do, arguments):
            known = self._clocks.setdefault(key, {})
            if do not in {"set", "multi_set"}:
                join(clock, known)
            if do not in {"check", *AWAIT_KEYS}:
                join(known, clock)
        try:
            return self._operations[do](*arguments)
        except ValueError:
            return {"error": f"{do}: the value of {arguments[0]!r} is no number"}

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
