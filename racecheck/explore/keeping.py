"""Findings of a search, on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from racecheck.explore.evidence import gather
from racecheck.explore.findings import Finding, reference, save, versions
from racecheck.explore.recovery.judge import Crashes
from racecheck.explore.reports import Found
from racecheck.explore.requests import Search
from racecheck.invariants import name_of
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Judgement, Outcome
from racecheck.scheduling.explain import Explanation


def keep(
    search: Search,
    outcome: Outcome,
    judgement: Judgement,
    number: int,
    explanation: Explanation | None = None,
    path: Path | None = None,
    repaired: Mapping[str, Crashes] | None = None,
    claim: str = "",
) -> tuple[Found, ...]:
    """Store the finding of a failing run, in a file of its own unless there is a ``path`` for it."""
    if not judgement.violations:
        return ()
    why = ""
    if search.findings is not None:
        try:
            finding = _finding(search, outcome, judgement, number, explanation)
            evidence = gather(outcome, number + 1, claim, explanation, repaired)
            path = save(replace(finding, evidence=evidence), search.findings, path)
        except UsageError as error:  # a FAIL must not get lost because its finding cannot be stored
            why = str(error)
    return tuple(Found(violation, outcome, path, why if path is None else "") for violation in judgement.violations)


def _finding(
    search: Search, outcome: Outcome, judgement: Judgement, number: int, explanation: Explanation | None
) -> Finding:
    pair = explanation.pair if explanation is not None else None
    orderings = explanation.orderings if explanation is not None else None
    return Finding(
        scenario=reference(search.scenario),
        seed=search.seed,
        run=number,
        strategy="free" if search.free else search.strategy,
        invariants=tuple(name_of(each) for each in search.invariants),
        outcome=outcome,
        judgement=judgement,
        versions=versions(),
        pair=pair.events if pair is not None else (),
        constraints=orderings.constraints if orderings is not None and not orderings.why else (),
        launch=getattr(search.scenario, "launch", None),
        resumed=getattr(search.scenario, "resumed", None),
        slot=search.slot,
    )
