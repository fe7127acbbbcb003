"""Disks that keep or lose data independently: the nodes of a job all lose power at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import Changes
from racecheck.crash.models.common import ModelRules


def apart(rules: Callable[[Changes], ModelRules], changes: Changes) -> ModelRules:
    """Return a model's ``rules`` for each disk by itself, as rules for the changes of all disks."""
    requires = [0] * len(changes.every)
    promises, may, revokes, late = dict[int, int](), dict[int, int](), dict[int, int](), dict[int, int]()
    implies, journals = list[tuple[int, int, int]](), list[int]()
    for node in {entry.node for entry in changes.log.entries}:
        places = [place for place, entry in enumerate(changes.log.entries) if entry.node == node]
        numbers = [number for place in places for number in bits(changes.of_entry[place])]
        entries = tuple(changes.log.entries[place] for place in places)
        own = rules(Changes(replace(changes.log, entries=entries, per_node=False), changes.split, changes.tails))

        def all_of(mask: int, numbers: list[int] = numbers) -> int:
            return mask_of(numbers[each] for each in bits(mask))

        for number, mask in zip(numbers, own.requires, strict=True):
            requires[number] = all_of(mask)
        pairs = ((promises, own.promises), (may, own.may), (revokes, own.revokes), (late, own.late))
        for whole, part in pairs:
            whole.update({places[place]: all_of(mask) for place, mask in part.items()})
        implies += [(all_of(cause), all_of(unless), all_of(effect)) for cause, unless, effect in own.implies]
        journals += [all_of(journal) for journal in own.journals]
    return ModelRules(requires, promises, may, revokes, implies, late, journals)
