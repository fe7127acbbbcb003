"""Parts of a set of work, which several processes share without a word between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from racecheck.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class Part:
    """Shard ``number`` of ``count``, from 1."""

    number: int = 1
    count: int = 1

    def of(self, costs: Mapping[str, float]) -> list[str]:
        """Return the names in this part.

        Names are dealt out by cost, the highest first, each to the part with the lowest sum so far.
        """
        loads = [0.0] * self.count
        mine = []
        for name, cost in sorted(costs.items(), key=lambda each: (-each[1], each[0])):
            least = loads.index(min(loads))
            loads[least] += cost
            mine += [name] if least == self.number - 1 else []
        return [each for each in costs if each in mine]


def part(text: str) -> Part:
    """Return the shard that I/N names; raises `UsageError`."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard takes I/N with I from 1 to N, such as 2/3, not {text!r}")
    return Part(int(found[1]), int(found[2]))
