"""Which events of a run stay in sight, and which are folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from racecheck.model.nouns import Collective, Event, Op
from racecheck.report.changes import changes

_GROUPS, _CHANGES = 8, 24
"""Of more collectives, or changes of the same names, only the nearest to a decisive event stay in sight."""


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
    if len(groups) > _GROUPS:
        groups = [min(groups, key=lambda group: abs(group - index)) for index in roles]
    if len(same) > _CHANGES:
        same = sorted(same, key=lambda index: min(abs(index - each) for each in roles))[:_CHANGES]
    return frozenset({*roles, *groups, *same})
