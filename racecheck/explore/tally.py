"""The results of a search so far: its outcomes, its doubts, and the claim that they support."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from racecheck import faults
from racecheck.crash.damage import KINDS, reads_files
from racecheck.explore.continued import Continued
from racecheck.explore.doubts import DIFFERS, MOST_IN_A_ROW, Doubts
from racecheck.explore.excused import Excused
from racecheck.explore.recovery.judge import Crashes
from racecheck.explore.recovery.runs import Done
from racecheck.explore.reports import Ending, Found
from racecheck.explore.resume import Known, Past
from racecheck.invariants.series import count
from racecheck.model.compare import effect, fingerprint
from racecheck.model.nouns import Coverage, Fault, Invariant, Judgement, Outcome, Verdict, World
from racecheck.scheduling.claims import NOTHING_AGAINST, Claim, lowered, merged, of_run

Effect = tuple[object, ...]

READS_NOTHING = "the recovery reads no file, so none was damaged"
"""A condition of claims with damage to any file."""


class Tally:
    """Adds up runs; ``past`` are those before the search was cut, ``faults`` is the number of faults in its world."""

    def __init__(self, past: Past, faults: int) -> None:
        self.past = past
        self.shown: Claim = past.claim
        """The claim of the runs, without the strategy's."""
        self.coverage: Coverage = past.coverage
        self.doubts = Doubts()
        self.broken = [each.violation for each in past.violations]
        self.endings: dict[Effect, Ending] = {}
        self.seen: set[str] = {*past.seen}
        """Fingerprints of the distinct runs."""
        self.fired = [*past.fired] or [0] * faults
        """How often each fault of the world has happened."""
        self.largest: Outcome | None = None
        self.observed: tuple[int, ...] = ()
        """The most saves and loads of a run of a program."""
        self.done, self.strayed = 0, 0
        self.excused, self.continued = Excused(), Continued()
        self.stopped = ""
        """Why the search cannot go on."""

    def take(
        self,
        outcome: Outcome,
        judgement: Judgement,
        number: int,
        invariants: Sequence[Invariant],
        keep: Callable[[], Sequence[Found]],
    ) -> None:
        """Add a run; ``keep`` is called if it ends in a new way, and returns the violations with their findings."""
        way = way_of(outcome, judgement)
        if way in self.endings:
            self.endings[way] = self.endings[way].again()
        else:
            self.endings[way] = Ending(1, number, outcome, keep())
        self.add(judgement)
        self.excused.take(outcome)
        self.continued.take(outcome, invariants)
        self.shown = self.shown.join(of_run(outcome))
        self.coverage = merged(self.coverage, outcome.coverage)
        self.seen.add(fingerprint(outcome))
        self.fired = [sum(each) for each in zip(self.fired, outcome.fired, strict=False)]
        self.done += 1
        if self.largest is None or len(outcome.ops) > len(self.largest.ops):
            self.largest = outcome

    def take_crashes(
        self, crashes: Crashes, world: World, number: int, keep: Callable[[Outcome], tuple[Judgement, Sequence[Found]]]
    ) -> None:
        """Add the judged crash states of run ``number``; ``keep`` judges the run of a failing state and keeps it."""
        self.fired = [
            times + sum(each.judged for name, each in crashes.counts.items() if _is_of(fault, name))
            for fault, times in zip(world.faults, self.fired, strict=True)
        ]
        self.doubts.add(crashes.reasons)
        for group in crashes.groups:
            broken = group.witnesses[0].outcome
            judgement, found = keep(broken)
            way = (group.violation.invariant, group.violation.message, group.lines)
            self.endings.setdefault(way, Ending(group.states, number, broken, found))
            self.add(judgement)

    def observe(self, outcome: Outcome) -> None:
        """Count the saves and loads of a run of a program."""
        self.observed = tuple(map(max, self.observed or (0, 0), count(outcome)))

    def add(self, judgement: Judgement) -> None:
        """Add the violations and the reasons of a judgement."""
        self.broken += judgement.violations
        self.doubts.add(judgement.reasons)

    def note(self, claim: Claim) -> None:
        """Join a claim, which may lower the claim of the search."""
        self.shown = self.shown.join(claim)

    def lower(self, doubt: str) -> None:
        """Note that the claim of the search has a doubt."""
        self.note(lowered([doubt]))

    def doubt(self, reason: str) -> None:
        """Note a reason why a run proves nothing."""
        self.lower(reason)
        self.doubts.add([reason])

    def stray(self, difference: str) -> None:
        """Note a run that left its schedule, and shows nothing."""
        self.strayed += 1
        self.doubts.in_a_row += 1
        self.doubt(f"{DIFFERS}: {difference}")

    @property
    def is_hopeless(self) -> bool:
        """Whether the latest runs did not repeat or not end, so that further ones would show no more."""
        return self.doubts.in_a_row >= MOST_IN_A_ROW

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is UNKNOWN if nothing fails."""
        stopped = [self.stopped] if self.stopped else []
        return tuple(dict.fromkeys((*self.past.reasons, *self.doubts.told(self.done + self.strayed), *stopped)))

    def unreached(self, world: World) -> list[str]:
        """Return a line for each fault that has not happened, unless the search ended before it could."""
        if self.is_hopeless:
            return []
        counted = zip(world.faults, self.fired, strict=True)
        missed = [fault for fault, times in counted if not times and not self._is_in_vain(fault)]
        return [f"never reached: {faults.text(each)}" for each in missed]

    def _is_in_vain(self, fault: Fault) -> bool:
        """Return whether a fault damages any file that the recovery reads, and it reads none."""
        whole = [each.outcome for each in self.endings.values() if each.outcome.crash is None]
        return fault.what == "damage" and fault.path == "**" and not any(map(reads_files, whole))

    def in_vain(self, world: World) -> Claim:
        """Return the claim with the condition that no file was damaged, if damage was asked for and none is read."""
        return Claim(True, conditions=(READS_NOTHING,)) if any(map(self._is_in_vain, world.faults)) else NOTHING_AGAINST

    def as_past(self, begun: int, crashes: Done) -> Past:
        """Return the results for a search that goes on from here, after ``begun`` runs."""
        found = [one for ending in self.endings.values() for one in ending.violations]
        known = [Known(each.violation, str(each.finding) if each.finding else "") for each in found]
        verdict = Verdict.FAIL if self.broken else Verdict.UNKNOWN if self.reasons else Verdict.PASS
        return Past(
            verdict, _distinct((*self.past.violations, *known)), self.reasons, self.shown, self.coverage, begun,
            self.past.runs + self.done, tuple(sorted(self.seen)), tuple(self.fired), crashes,
        )  # fmt: skip


def _is_of(fault: Fault, model: str) -> bool:
    """Return whether a fault asks for a model of crashes, or for a kind of damage."""
    if model in KINDS:
        return fault.what == "damage" and model in faults.kinds(fault)
    return fault.what == "crash" and fault.model in {"", model}


def way_of(outcome: Outcome, judgement: Judgement) -> Effect:
    """Return the key of an ending: the effect of the run, the observed loads of a program, the broken invariants."""
    loads = frozenset((each.rank, each.checkpoint) for each in outcome.weights if each.kind == "loaded" and each.series)
    return (effect(outcome), loads, *(each.invariant for each in judgement.violations))


def _distinct(known: Sequence[Known]) -> tuple[Known, ...]:
    """Return each violation once, as it was first found."""
    first: dict[tuple[str, str], Known] = {}
    for each in known:
        first.setdefault((each.violation.invariant, each.violation.message), each)
    return tuple(first.values())
