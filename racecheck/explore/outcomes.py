"""Runs of a program that end alike, but leave other files or load others: a claim says how many ways there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from racecheck.model.compare import effect
from racecheck.model.nouns import Outcome, Returned
from racecheck.scheduling.claims import Claim

_MOST = 3
"""How many files are named."""


def several(outcomes: Iterable[Outcome]) -> Claim:
    """Return a claim with a remark if runs in which every rank returned the same left or loaded different files.

    Runs with clocks apart are left out, for they may well write other times.
    """
    alike: dict[object, list[Outcome]] = {}
    for each in outcomes:
        if not any(each.world.skew) and all(isinstance(result, Returned) for result in each.results):
            alike.setdefault(effect(each)[0], []).append(each)
    every = [(len(each), _differing(each), _loading(each)) for each in alike.values()]
    found = [each for each in every if each[1] or each[2]]
    if not found:
        return Claim(proves=True)
    number, paths, ranks = max(found)
    more = f" and {len(paths) - _MOST} more" * (len(paths) > _MOST)
    said = [f"other bytes in {', '.join(paths[:_MOST])}{more}"] if paths else []
    said += [f"other loads on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"] if ranks else []
    return Claim(proves=True, remarks=(f"{number} outcomes: {'; '.join(said)}",))


def _differing(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the paths that are not the same after all of these runs."""
    paths = {path for each in outcomes for path in each.disk}
    return sorted(path for path in paths if len({each.disk.get(path) for each in outcomes}) > 1)


def _loading(outcomes: Sequence[Outcome]) -> list[int]:
    """Return the ranks that have not loaded the same files in all of these runs."""
    loads = [
        {(each.rank, each.checkpoint) for each in outcome.weights if each.kind == "loaded"} for outcome in outcomes
    ]
    return sorted({rank for each in loads for rank, _ in each ^ loads[0]})
