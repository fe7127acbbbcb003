"""Footprints: the locations that an op touches, and so which ops' order can matter.

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
    """Which ops are steps, and the footprint of each: by a storage model alone, or by all of a world (`relation`)."""

    def visible(self, op: Op) -> bool:
        """Return whether another thread can notice when this op happens."""
        ...

    def footprint(self, op: Op) -> Footprint:
        """Return the locations that an op touches; those that it can touch at most if it is pending."""
        ...


def depends(one: Footprint, other: Footprint) -> bool:
    """Return whether the order of two ops with these footprints can matter."""
    if len(other) < len(one):
        one, other = other, one
    for location, mode in one.items():
        theirs = other.get(location)
        if theirs is not None and (mode is Mode.WRITE or mode is not theirs):
            return True
    return False


def only_reads(footprint: Footprint) -> bool:
    """Return whether an op leaves everything unchanged."""
    return all(mode is Mode.READ for mode in footprint.values())
