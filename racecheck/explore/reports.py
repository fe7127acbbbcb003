"""The results of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from racecheck.explore.recovery.judge import Crashes
from racecheck.explore.resume import SavedSearch
from racecheck.explore.struck import Struck
from racecheck.model.nouns import Coverage, Outcome, Tried, Verdict, Violation, World
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.explain import INTERRUPTED, Explanation


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, the outcome that shows it, and the file of its finding, or why that could not be kept (``unkept``).

    There is no outcome of what was found before the search was cut.
    """

    violation: Violation
    outcome: Outcome | None
    finding: Path | None = None
    unkept: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which runs ended: how many did, the number and outcome of the first, and what it broke."""

    runs: int
    number: int
    outcome: Outcome
    violations: Sequence[Found] = ()

    def again(self) -> Ending:
        """Return the ending of one run more."""
        return replace(self, runs=self.runs + 1)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a search.

    ``claim`` is what its runs show beyond themselves; from ``cut`` a search that has more to try can continue.
    ``tried`` counts faults, stale reads and crash states; ``is_late``: the time limit ended the search.
    ``struck`` has the effect of each single fault, ``asked`` the names of the invariants.
    ``endings`` are the ways in which runs ended, in the order in which they were met.  ``reasons`` say why the verdict
    is UNKNOWN; ``outcome`` is the first failing run's, else the largest one's (None if what fails was found before the
    search was cut).  ``coverage`` has the size of that
    run, and what any of the runs did not see.  ``crashes`` are what crashes of runs left, ``repaired`` what those of
    the first failing one would leave under each repair.  ``observed`` are the most saves and loads of a run of a
    program, empty for a scenario.  ``is_explained``: all that can be said about a failure is there; ``left_out`` says
    what of that was not finished, and why.
    """

    target: str
    verdict: Verdict
    world: World
    seed: str
    strategy: str
    schedules: int
    distinct_schedules: int
    seconds: float
    ops: int
    claim: Claim = field(default_factory=Claim)
    tried: Sequence[Tried] = ()
    interrupted: bool = False
    endings: Sequence[Ending] = ()
    violations: Sequence[Found] = ()
    reasons: Sequence[str] = ()
    coverage: Coverage = field(default_factory=Coverage)
    outcome: Outcome | None = None
    schedule_number: int = 0
    cut: SavedSearch | None = None
    observed: tuple[int, ...] = ()
    explanation: Explanation | None = None
    is_explained: bool = False
    left_out: str = ""
    crashes: Sequence[Crashes] = ()
    crashes_total: Crashes | None = None
    is_late: bool = False
    struck: Sequence[Struck] = ()
    asked: tuple[str, ...] = ()
    repaired: Mapping[str, Crashes] = field(default_factory=dict)

    @property
    def exhaustive(self) -> bool:
        """Whether every interleaving was covered, under the conditions of the claim."""
        return self.claim.exhaustive

    @property
    def finding(self) -> Path | None:
        """The file of the first finding, None if there is none."""
        return next((each.finding for each in self.violations if each.finding is not None), None)

    @property
    def is_cut_short(self) -> bool:
        """Whether Ctrl-C ended the explanation."""
        return self.left_out.endswith(f"({INTERRUPTED})")


def sized(coverage: Coverage, outcome: Outcome | None) -> Coverage:
    """Return the coverage of all runs, with the size of the run that is shown."""
    return replace(coverage, ops=outcome.coverage.ops, passed=outcome.coverage.passed) if outcome else coverage


def first_failing(endings: Sequence[Ending], until: str) -> Ending | None:
    """Return the first failing run.

    A run that violates the invariant ``until`` comes before all others, and that violation before its others.
    """
    failing = [each for each in endings if each.violations]
    for each in failing:
        wanted = [found for found in each.violations if found.violation.invariant == until]
        if wanted:
            return replace(each, violations=(*wanted, *(found for found in each.violations if found not in wanted)))
    return failing[0] if failing else None


def is_of_crash(report: Report) -> bool:
    """Return whether a crash ends the failing run."""
    return report.outcome is not None and report.outcome.crash is not None
