"""Footprints: what an op touches, and so which ops could tell each other's order.

An op touches *locations*, each in a mode.  Two ops of different threads depend on each other if there is a location
that both touch in modes that do not commute; all else may be swapped without anybody noticing.  Which locations an op
touches is for the storage model to say (`racecheck.storage.Storage.footprint`).
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import NamedTuple, Protocol

from racecheck.model.nouns import Op


class Mode(enum.Enum):
    """Reads commute with reads, additions with additions; a write commutes with nothing."""

    READ = "read"
    ADD = "add"
    WRITE = "write"


class Location(NamedTuple):
    """Something that ops share: ``kind`` is "entry" (a name), "content", "attributes", "listing", "lock", ..."""

    kind: str
    key: Hashable


Footprint = Mapping[Location, Mode]


class Dependence(Protocol):
    """Which ops are steps, and what each of them touches: a storage model alone, or all of a world (`relation`)."""

    def visible(self, op: Op) -> bool:
        """Whether another thread could tell when this op happens."""
        ...

    def footprint(self, op: Op) -> Footprint:
        """What an op touches; of a pending op, what it might touch at most."""
        ...


def depends(one: Footprint, other: Footprint) -> bool:
    """Whether the order of two ops with these footprints could matter."""
    if len(other) < len(one):
        one, other = other, one
    for location, mode in one.items():
        theirs = other.get(location)
        if theirs is not None and (mode is Mode.WRITE or mode is not theirs):
            return True
    return False


def only_reads(footprint: Footprint) -> bool:
    """Whether an op leaves everything as it was."""
    return all(mode is Mode.READ for mode in footprint.values())
