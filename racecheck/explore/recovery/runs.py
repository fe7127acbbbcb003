"""The runs of a search.  After each of them, every crash during it is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from racecheck import faults, storage
from racecheck.crash.bitsets import mask_of
from racecheck.crash.cuts import moments
from racecheck.crash.damage import KINDS
from racecheck.crash.precedence import before_events
from racecheck.crash.repairs.repair import repairs
from racecheck.explore.recovery.judge import OUT_OF_TIME, Count, Crashes, judge_crashes, judge_repairs
from racecheck.invariants import wants_contents
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Collective, Event, Invariant, Outcome, Tried, World
from racecheck.model.ops import op_kinds
from racecheck.scheduling.claims import NOTHING_AGAINST, Claim
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.targets.scenarios import Scenario

_REPAIRING = 60.0
"""Seconds that the repair table may take."""

CRASH_STATE = "crash state"
DAMAGED_FILE = "damaged file"
ONE_FILE = "one file is damaged, at a few of its bytes"
"""A condition of all claims with damage."""

TellProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Done:
    """The judged states, by model, and a hash of each run's effects, for a search that is continued."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


class CrashedRuns:
    """Judges the crashes of runs.  Two runs that did the same to the files have the same crashes."""

    def __init__(
        self, session: Session, scenario: Scenario, world: World, invariants: Sequence[Invariant], seed: str,
        earlier: Done | None = None, states: int | None = None,
    ) -> None:  # fmt: skip
        """Raise `UsageError` for a crash of which nothing could be known.

        ``earlier`` are the states judged before the search was cut.  ``states`` is the most disks to load for each run
        and model (None: all).
        """
        self.models = _models(world)
        """Models of crashes, and kinds of damage."""
        if self.models:
            _check(scenario, world, invariants, self.models)
        self._session, self._scenario, self._invariants, self._seed = session, scenario, invariants, seed
        self._earlier, self._states = earlier or Done(), states
        self._seen: set[str] = {*self._earlier.runs}
        self.judged: list[Crashes] = []
        self._recorder = Recorder(session.slot.path / "record")

    def judge_also(self, invariants: Sequence[Invariant]) -> None:
        """Ask these invariants from now on."""
        self._invariants = invariants

    def recorder(self) -> Recorder | None:
        """Return the recorder for the next run; None if no crash is asked for."""
        if self.models:
            self._recorder = Recorder(self._session.slot.path / "record")
        return self._recorder if self.models else None

    def judge(self, outcome: Outcome, *, seconds: float, tell: TellProgress) -> Crashes | None:
        """Return what crashes of the last recorded run leave; None if that is known, or not asked for.

        No state is begun after ``seconds`` (0: no limit).  Raises `CannotRun` and `UsageError` like a run.
        """
        models = self._unseen(outcome)
        if not models:
            return None
        found = judge_crashes(
            self._session, self._scenario, outcome, self._recorder, models, self._invariants, seconds=seconds,
            progress=_told(tell), seed=self._seed, limit=self._states,
        )  # fmt: skip
        self.judged.append(found)
        return found

    def _unseen(self, outcome: Outcome) -> list[str]:
        """Return the models under which no run like this one was judged: crashes cut it, damage is done to its disk."""
        found: list[str] = []
        for key, is_damage in ((_deeds, False), (_left, True)):
            models = [each for each in self.models if (each in KINDS) == is_damage]
            if models and (known := key(outcome)) not in self._seen:
                self._seen.add(known)
                found += models
        return found

    def close(self) -> None:
        """Forget the record."""
        self._recorder.close()

    def repaired(self, crashes: Crashes, tell: TellProgress, *, seconds: float) -> Mapping[str, Crashes]:
        """Return what crashes leave under each repair.  The run must be the one recorded last.

        Of the run alone where no repair changes it.  Only what could be judged as far as the run itself can be compared
        with it: there is no other once ``seconds`` (0: a minute) are over.
        """
        if OUT_OF_TIME in crashes.truncated or crashes.interrupted:
            return {}
        tell("trying candidate fixes")
        found = judge_repairs(
            self._session, self._scenario, crashes, self._recorder, self._invariants, seconds=seconds or _REPAIRING,
            seed=self._seed,
        )  # fmt: skip
        told = {name: each for name, each in found.items() if OUT_OF_TIME not in each.truncated}
        return told if len(told) > 1 or crashes.log is None or not repairs(crashes.log) else {}

    @property
    def total(self) -> Crashes | None:
        """Return all that was judged, as one."""
        if not self.judged:
            return None
        return replace(
            self.judged[-1], counts=self.counts, groups=[group for each in self.judged for group in each.groups],
            reasons=tuple(dict.fromkeys(reason for each in self.judged for reason in each.reasons)),
            notes=tuple(dict.fromkeys(note for each in self.judged for note in each.notes)),
            disks=sum(each.disks for each in self.judged), seconds=sum(each.seconds for each in self.judged),
        )  # fmt: skip

    @property
    def done(self) -> Done:
        """Return what was judged, before a cut and since."""
        return Done(self.counts if self._has_judged else {}, tuple(sorted(self._seen)))

    @property
    def is_cut(self) -> bool:
        """Return whether some states were not judged.  Of a run of which nothing is known, none was."""
        return any(each.log is None for each in self.judged) or any(each.truncated for each in self.counts.values())

    @property
    def is_late(self) -> bool:
        """Return whether a time limit left states out."""
        return any(OUT_OF_TIME in each.truncated for each in self.judged)

    @property
    def _has_judged(self) -> bool:
        return bool(self.judged or self._earlier.counts)

    @property
    def counts(self) -> dict[str, Count]:
        """Return all states, by model."""
        found: dict[str, Count] = {}
        for model in self.models:
            earlier = [self._earlier.counts[model]] if model in self._earlier.counts else []
            every = [*earlier, *(each.counts[model] for each in self.judged if model in each.counts)]
            found[model] = Count(
                sum(each.states for each in every), sum(each.judged for each in every), sum(each.bad for each in every),
                sum(each.cuts for each in every), next((each.truncated for each in every if each.truncated), ""),
            )  # fmt: skip
        return found

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Return how many of the states were judged.

        Of a bounded set, or of a run of which nothing is known, the total is not known.
        """
        of = {CRASH_STATE: self._counts(damage=False), DAMAGED_FILE: self._counts(damage=True)}
        return tuple(self._tried(what, [*counts.values()]) for what, counts in of.items() if counts)

    def _tried(self, what: str, counts: Sequence[Count]) -> Tried:
        done, due = sum(each.judged for each in counts), sum(each.states for each in counts)
        return Tried(what, done, 0 if self.is_cut and done == due else due)

    def _counts(self, *, damage: bool) -> dict[str, Count]:
        return {name: each for name, each in self.counts.items() if self._has_judged and (name in KINDS) == damage}

    def claim(self) -> Claim:
        """Yield how many states were judged, and for which models these are not all."""
        if not self._has_judged:
            return NOTHING_AGAINST
        remarks, doubts = [], []
        for damage, said in ((False, "crash states over all orders of independent ops"), (True, "damaged files")):
            counts = self._counts(damage=damage)
            parts = [f"{name} {each.judged}{' (not all)' * bool(each.truncated)}" for name, each in counts.items()]
            remarks += [f"{said}: {', '.join(parts)}"] if parts else []
            what = "damage of kind" if damage else "crash states of"
            doubts += [f"{what} {name}: {each.truncated}" for name, each in counts.items() if each.truncated]
        if any(each.log is None for each in self.judged):
            doubts.append("crash states of some run cannot be computed")
        conditions = (ONE_FILE,) if self._counts(damage=True) else ()
        return Claim(True, remarks=tuple(remarks), conditions=conditions, doubts=tuple(doubts))


def _models(world: World) -> tuple[str, ...]:
    usual = storage.make(world).usual_crashes
    crashes = [(fault.model,) if fault.model else usual for fault in world.faults if fault.what == "crash"]
    damage = [faults.kinds(fault) for fault in world.faults if fault.what == "damage"]
    return tuple(dict.fromkeys(each for models in (*crashes, *damage) for each in models))


def _check(scenario: Scenario, world: World, invariants: Sequence[Invariant], models: Sequence[str]) -> None:
    name, has_crashes = scenario.name, any(fault.what == "crash" for fault in world.faults)
    if not scenario.has_recovery and has_crashes and not wants_contents(invariants):
        raise UsageError(f"crash faults need a recovery: give {name} one (@{name}.recover)")
    if not scenario.has_recovery and any(fault.what == "damage" for fault in world.faults):
        raise UsageError(f"damage needs a recovery that loads the files: give {name} one (@{name}.recover)")
    known = storage.make(world).crashes
    for model in models:
        if model not in KINDS and model not in known:
            raise UsageError(f"storage {world.storage} has no crash model {model}; known: {', '.join(known)}")


def _deeds(outcome: Outcome) -> str:
    """Return a hash of what a run did, of the order of its events, and of what ranks declared meanwhile."""
    deeds = [
        index
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Collective) or event.call not in _LOOKING
    ]
    said = tuple((each.rank, each.kind, each.step) for each in outcome.weights)
    done = tuple(_deed(outcome.trace[index]) for index in deeds), _order(outcome, deeds), said
    return hashlib.sha256(repr(done).encode(errors="surrogateescape")).hexdigest()


def _left(outcome: Outcome) -> str:
    """Return a hash of the disk that a run left."""
    disk = sorted((path, each.kind, each.digest, each.target) for path, each in outcome.disk.items())
    return hashlib.sha256(repr(disk).encode(errors="surrogateescape")).hexdigest()


def _deed(event: Event) -> Hashable:
    if isinstance(event, Collective):
        return event.kind, event.group, event.number
    return event.label, event.result and (event.result.errno, event.result.size, event.result.digest)


def _order(outcome: Outcome, events: Sequence[int]) -> Hashable:
    """Return, for each of these events, which come before it, also because of what a rank saw in between."""
    before = before_events(moments(outcome))
    return tuple(mask_of(place for place, other in enumerate(events) if before[each] >> other & 1) for each in events)


_LOOKING = op_kinds.ASKS | {"sleep"}


def _told(tell: TellProgress) -> Callable[[int, int, float, str], None]:
    return lambda done, every, _, model: tell(
        f"{'damage' if model in KINDS else 'crash states'}: {model} {done} of {every}"
    )
