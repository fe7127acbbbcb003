"""Holds a search of real ranks that carry out a generated program against the judge."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Outcome, Returned, Violation
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import Scenario

from . import judge
from .programs import START, Program, dump
from .tally import program_of
from .toy import world_of

PROGRAM = "RACECHECK_PROGRAM"
"""The environment variable that tells ranks where their program is."""


@dataclass(frozen=True, slots=True)
class Compared:
    """``missed`` and ``wrong`` say what the search has not found, and what cannot be; "" for nothing."""

    report: Report
    missed: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.report.claim} {self.missed} {self.wrong}".strip()


def standard(name: str) -> Program:
    """The program of a seed, with what there is at the start of all that real ranks carry out."""
    return replace(program_of(name), directories=("d",), files=START)


def compare(session: Session, scenario: Scenario, program: Program, most: int) -> Compared:
    """Search up to a number of schedules.

    What real ranks do lies between two judges: with gloo a rank may leave some collectives early, but not all that a
    backend may let it leave.  Raises `judge.TooMany`.
    """
    sure = set(map(_plain, judge.outcomes(program, blocking=True)))
    possible = sure | set(map(_plain, judge.outcomes(program)))
    Path(os.environ[PROGRAM]).write_text(dump(program), encoding="utf-8")
    found: set[object] = set()

    def collect(outcome: Outcome) -> list[Violation]:
        found.add(_seen(outcome))
        return []

    asked = Search(
        scenario, world_of(program), (collect,), strategy="dpor", schedules=most, keep_going=True, stacks=False
    )
    report = explore(session, asked)
    missed = sorted(map(str, sure - found)) if report.exhaustive else []
    wrong = sorted(map(str, found - possible))
    return Compared(report, "".join(missed[:1]), "".join(wrong[:1]))


def _seen(outcome: Outcome) -> object:
    if outcome.mismatch is not None:
        return ("mismatch",)
    results = tuple("; ".join(each.value) if isinstance(each, Returned) else "stopped" for each in outcome.results)
    return results, tuple(
        (path, each.kind, each.target if each.kind == "symlink" else each.digest)
        for path, each in sorted(outcome.disk.items())
    )


def _plain(outcome: judge.Outcome) -> object:
    """What the judge says, in the words of an outcome of real ranks."""
    if outcome == ("mismatch",):
        return outcome
    results, disk = outcome
    assert isinstance(disk, tuple)
    found = []
    for path, what in disk:
        kind, _, text = what.partition(" ")
        digest = hashlib.sha256(text.encode()).hexdigest()
        found.append((path, kind, digest if kind == "file" else text))
    return results, tuple(found)
