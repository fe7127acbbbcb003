"""The battery of programs whose answers control must not change, and how two answers differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.targets import target

battery = target("fidelity", "battery")


def differences(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """Where two answers differ, one line each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            yield from differences(expected.get(key), found.get(key), f"{where} {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif expected != found:
        yield f"{where}: {expected} plainly, {found} under control"
