"""Test the checks: each mutant of a control must fail one of them, or be known to do no harm.

``python -m tests.gate.mutation [control|control-dcp] [NAME...]`` prints a table: what was changed, and which check
noticed by which invariant, or why none had to.  Exit status 1 for a mutant of which neither can be said.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.sessions.doctor import examination
from racecheck.sessions.session import Session
from racecheck.targets import resolve, suite
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import controls
from tests.gate import mutants
from tests.gate.mutants import Mutant

_LEAST, _HOLD_AT_LEAST = "posix-min", (controls.Recipe,)
"""The model that promises least, and the control that holds under it too.  A pointer that is replaced does not: POSIX
does not say that after a crash a rename is whole.
"""
_SCHEDULES, _SWEPT = 20, 300
"""How many runs a check gets; where it tries one fault after the other, enough to end."""


@dataclass(frozen=True, slots=True)
class Fate:
    """The result for a mutant: the ``check`` that failed (None: all held), and the broken invariants as they say it.

    ``harmless`` says why all may hold, "" if that is unknown.  ``doubts`` are checks without a result.
    """

    mutant: Mutant
    check: str | None
    broken: tuple[str, ...]
    harmless: str
    doubts: tuple[str, ...]
    checks: int
    seconds: float

    @property
    def is_explained(self) -> bool:
        return (self.check is not None) is not bool(self.harmless)

    @property
    def text(self) -> str:
        """Return the result as one line."""
        fate = f"killed by {self.check}: {self.broken[0]}" if self.check else f"survives {self.checks} checks: "
        why = "" if self.check else self.harmless or "NO REASON KNOWN"
        return f"{self.mutant.name:42} {self.mutant.about}\n{'':42} {fate}{why} ({self.seconds:.0f} s)"


def judge(session: Session, mutant: Mutant, checks: Sequence[str] = ()) -> Fate:
    """Run the checks (all that apply, the likely ones first) until one of them fails.

    The power fails on a file system that keeps to POSIX alone, too.
    """
    started = time.perf_counter()
    doubts: list[str] = []
    asked = checks or _order(mutant)
    for number, check in enumerate(asked, 1):
        name, _, model = check.partition(" ")
        scenario = resolve.load(f"{mutants.__name__}:{mutant.name}[{name}]")
        world = make_world(scenario.world, faults=f"crash model={model}") if model else scenario.world
        is_swept = any(not fault.nth for fault in world.faults)
        search = Search(
            scenario, world, scenario.invariants, schedules=_SWEPT if is_swept else _SCHEDULES,
            strategy="round-robin" if is_swept else "auto",
        )  # fmt: skip
        report = explore(session, search)
        if report.verdict is Verdict.FAIL:
            broken = tuple(
                dict.fromkeys(each.violation.invariant for ending in report.endings for each in ending.violations)
            )
            return Fate(mutant, check, broken, mutant.harmless, tuple(doubts), number, time.perf_counter() - started)
        doubts += [f"{check}: {reason}" for reason in report.reasons]
    return Fate(mutant, None, (), mutant.harmless, tuple(doubts), len(asked), time.perf_counter() - started)


def judge_all(session: Session, every: Iterable[Mutant], tell: Callable[[Fate], None] = lambda _: None) -> list[Fate]:
    """Run one mutant after the other; ``tell`` is called with each."""
    found = []
    for mutant in every:
        found.append(judge(session, mutant))
        tell(found[-1])
    return found


_LIKELY = {
    "flush": ("power-loss",), "sync": ("power-loss",), "fsync": ("power-loss",), "replace": ("kill", "power-loss"),
    "rank": ("save",), "raise": ("error",), "finally": ("carry-on",), "": ("power-loss", "save"),
}  # fmt: skip


def _order(mutant: Mutant) -> list[str]:
    """Return the checks that apply, those that are likely to notice first."""
    reasons = suite.protocol.not_for(mutant.control)
    every = suite.applicable(mutant.control)
    fitting = [name for name, each in every.items() if not {name, each.storage} & reasons.keys()]
    if mutant.control in _HOLD_AT_LEAST:
        fitting += [f"{name} {_LEAST}" for name in ("power-loss",) if name in fitting]
    return [name for name in dict.fromkeys((*_LIKELY.get(mutant.what, ()), *fitting)) if name in fitting]


def main(arguments: Sequence[str]) -> int:
    """Print the fate of mutants: those that are named, those of named controls, or all."""
    found = {name: each for kind in mutants.CONTROLS for name, each in mutants.of(kind).items()}
    chosen = [] if arguments else [*found.values()]
    try:
        for name in arguments:
            chosen += [found[name]] if name in found else mutants.of(resolve.checkpointer(name)).values()
    except UsageError as error:
        print(f"tests.gate.mutation: {error}; or a mutant: {', '.join(found)}", file=sys.stderr)
        return 2
    with examination.start(config.read().runs) as session:
        fates = judge_all(session, chosen, lambda fate: print(fate.text, flush=True))
    killed, known = sum(bool(fate.check) for fate in fates), sum(fate.is_explained for fate in fates)
    seconds = sum(fate.seconds for fate in fates)
    print(f"{len(fates)} mutants in {seconds:.0f} s: {killed} killed, {len(fates) - killed} survive, {known} explained")
    return 0 if known == len(fates) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
