"""Which events of a run stay in sight, and which are folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from racecheck.model.nouns import Collective, Event, Op
from racecheck.report.changes import changes

_SCREEN = 8
"""More events than these do not fit on a screen, beside the rest of a finding."""
_LONG = 40
"""Where nothing is decisive, a run of this many events is not folded."""
_FEWEST = 3
"""Fewer events than these are not folded: saying so takes as much room."""
_GROUPS, _CHANGES = 8, 24
"""Of more collectives, or changes of the same names, only the nearest to a decisive event stay in sight."""


def shown(trace: Sequence[Event], decisive: Iterable[int]) -> list[int]:
    """Return the indices of the events to show on a page of text, in order.

    A stretch of three or more others is folded.  Where even that leaves more than a screen, only the decisive events
    stay; where nothing is decisive, the last op of each rank stands in.
    """
    roles = set(decisive)
    if not roles and len(trace) <= _LONG:
        return [*range(len(trace))]
    focus = roles or _last_of_each_rank(trace)
    found = _without_gaps(unfolded(trace, focus), len(trace), _FEWEST)
    return found if len(found) <= _SCREEN else _without_gaps(focus, len(trace), 2)


def _without_gaps(kept: Iterable[int], count: int, fewest: int) -> list[int]:
    """Return indices with those of each gap of fewer than ``fewest``."""
    found = sorted(kept)
    gaps = (range(before + 1, after) for before, after in pairwise([-1, *found, count]))
    return sorted([*found, *(index for gap in gaps if len(gap) < fewest for index in gap)])


def _last_of_each_rank(trace: Sequence[Event]) -> set[int]:
    return set({event.rank: index for index, event in enumerate(trace) if isinstance(event, Op)}.values())


def unfolded(trace: Sequence[Event], decisive: Iterable[int]) -> frozenset[int]:
    """Return the indices of the events that are never folded.

    These are the decisive ones, the ops that changed the same names, and the collectives (the nearest of many).
    """
    roles = sorted(decisive)
    paths = {place.path for index in roles if isinstance(op := trace[index], Op) for place in op.places} - {"."}
    groups = [index for index, event in enumerate(trace) if isinstance(event, Collective)]
    same = [
        index
        for index, event in enumerate(trace)
        if isinstance(event, Op) and changes(event) and not paths.isdisjoint(place.path for place in event.places)
    ]
    if len(groups) > _GROUPS and roles:
        groups = [min(groups, key=lambda group: abs(group - index)) for index in roles]
    if len(same) > _CHANGES:
        same = sorted(same, key=lambda index: min(abs(index - each) for each in roles))[:_CHANGES]
    return frozenset({*roles, *groups, *same})
