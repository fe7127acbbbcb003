"""Predictions from one passing run about runs that were not made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from racecheck.explore.exploration import Exploration
from racecheck.explore.keeping import keep
from racecheck.explore.requests import Search
from racecheck.explore.runner import Progress
from racecheck.explore.search import explore
from racecheck.invariants import judge
from racecheck.model.nouns import Coverage, Verdict
from racecheck.scheduling.predict import Prediction, Race, predict
from racecheck.scheduling.relation import Relation
from racecheck.sessions.session import Session


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The conclusions from one passing run; ``prediction`` is None, for the ``reasons``, if there is no such run.

    ``findings`` are the files of the confirmed races, by the race's place in the prediction; ``unkept`` says why others
    have none.
    """

    target: str
    verdict: Verdict
    prediction: Prediction | None
    findings: Mapping[int, Path]
    seconds: float
    coverage: Coverage
    reasons: Sequence[str] = ()
    unkept: str = ""


def foresee(session: Session, search: Search, progress: Progress | None = None) -> Foreseen:
    """Run the default schedule without faults, and then once more for each of its races.

    FAIL: one of these breaks an invariant.  UNKNOWN: the first run does not pass, or not all could be tried.
    Raises `UsageError` or `CannotRun` if no run was possible.
    """
    search = replace(search, world=replace(search.world, faults=()))
    first = explore(session, replace(search, strategy="dpor", schedules=1, findings=None))
    exploration, model = Exploration(session, search), Relation(search.world)
    exploration.search = search = replace(search, names=first.outcome.names if first.outcome else ())
    if first.outcome is None or first.verdict is not Verdict.PASS:
        broken = (f"{each.violation.invariant}: {each.violation.message}" for each in first.violations)
        why = [f"the first run does not pass: {each}" for each in (*first.reasons, *broken)]
        return Foreseen(first.target, Verdict.UNKNOWN, None, {}, exploration.seconds, first.coverage, why)

    def goes_on(tried: Sequence[Race]) -> bool:
        if progress is not None:
            confirmed = sum(each.verdict == "confirmed" for each in tried)
            progress(len(tried), confirmed, exploration.seconds, "")
        return not 0 < search.seconds <= exploration.seconds

    prediction = predict(
        first.outcome, partial(exploration.attempt, search.world), search.invariants, model, goes_on=goes_on
    )
    findings: dict[int, Path] = {}
    unkept = ""
    for number, race in enumerate(prediction.races):
        if race.verdict == "confirmed" and race.outcome is not None:
            kept = keep(search, race.outcome, judge(race.outcome, search.invariants), number)
            if kept and kept[0].finding is not None:
                findings[number] = kept[0].finding
            unkept = next((each.unkept for each in kept), unkept)
    untried = any(each.verdict == "untried" for each in prediction.races)
    verdict = Verdict.FAIL if prediction.confirmed else Verdict.UNKNOWN if untried else Verdict.PASS
    return Foreseen(first.target, verdict, prediction, findings, exploration.seconds, first.coverage, unkept=unkept)
