"""Single runs under given schedules, one after the other on one disk; each of them is made once.

A run follows from its scenario, its world, the disk and its schedule.  So runs are remembered, as a tree of runs on the
disk that others have left: a schedule that comes to a run that is known costs nothing, and whatever is asked of a
schedule twice is answered in the same way.  That it is so is checked: the first run of a scenario, and every run whose
very schedule is asked for again, happens twice and is compared op by op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from racecheck.explore.current_session import Sessions
from racecheck.explore.doubts import DIFFERS
from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import confirm, run, warm_up
from racecheck.kernel.trees import grow_old
from racecheck.model.compare import first_difference
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Outcome, World
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.scheduling.strategies.following.switches import Switch, Switches
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import Scenario

_MOST_OPS = 100_000
"""The most ops of all remembered runs together."""


@dataclass(frozen=True, slots=True)
class What:
    """A run to make; ``contents``: the outcome has the contents of checkpoint files."""

    scenario: Scenario
    world: World
    seed: str = "0"
    contents: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        """The settings of a run, which is made twice before it is relied on."""
        return self.scenario.reference, self.world.ranks, self.world.nodes, self.world.storage, self.world.sizes


@dataclass(slots=True, eq=False)
class Trial:
    """A run, the run whose disk it began on (None: a fresh one), and the runs that began on its own.

    ``slot`` is the number of the session's.
    ``asked`` are the switches that were asked for and lead to it.
    """

    what: What
    before: Trial | None
    outcome: Outcome
    slot: int = 0
    schedule: Switches | None = None
    asked: set[tuple[Switch, ...]] = field(default_factory=set)
    is_sure: bool = False
    is_asked_again: bool = False
    after: list[Trial] = field(default_factory=list)

    @property
    def line(self) -> list[Trial]:
        """Return the runs that led to its disk, and itself."""
        return [*(self.before.line if self.before else ()), self]


class Trials:
    """The runs of a process."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._first: list[Trial] = []
        self._ops = self._last_use = 0
        self._session: Session | None = None
        self._disk: Trial | None = None
        self._names: dict[str, tuple[str, ...]] = {}
        self._tried: set[tuple[object, ...]] = set()
        self._warm: set[str] = set()

    def run(self, what: What, strategy: Strategy, before: Trial | None = None) -> Trial:
        """Return the outcome of a scenario on the disk that ``before`` has left.

        Raises `UsageError`; and `CannotRun`, also for a run that differs from the one before of the same schedule.
        """
        if before is not None and before.what.world.storage != what.world.storage:
            raise UsageError("phases on one disk need one storage model: use the same for all worlds")
        if not isinstance(strategy, Switches):
            with self._sessions.use() as session:
                return self._carry_out(session, what, strategy, before)
        strategy = strategy.within(what.world.ranks)
        known = next((each for each in self._like(what, before) if _is_it(each, strategy)), None)
        if known is not None:
            return self._known(known, strategy)
        with self._sessions.use() as session:
            trial = self._carry_out(session, what, strategy, before)
        trial.schedule = strategy
        trial.asked.add(strategy.switches)
        self._remember(trial)
        return trial

    def _known(self, trial: Trial, strategy: Switches) -> Trial:
        """Run the very same schedule again, to see that it repeats."""
        if strategy.switches in trial.asked:
            trial.is_asked_again = True
            if not trial.is_sure:
                with self._sessions.use() as session:
                    self._make_sure(session, trial)
        trial.asked.add(strategy.switches)
        return trial

    def _like(self, what: What, before: Trial | None) -> Iterator[Trial]:
        return (each for each in reversed(before.after if before else self._first) if each.what == what)

    def _remember(self, trial: Trial) -> None:
        self._ops += len(trial.outcome.trace)
        if self._ops > _MOST_OPS:
            self._first, self._ops = [], len(trial.outcome.trace)
            for each in trial.line:
                each.after = []
        (trial.before.after if trial.before else self._first).append(trial)

    def _carry_out(self, session: Session, what: What, strategy: Strategy, before: Trial | None) -> Trial:
        self._warm_up(session, what)
        strategy.begin(Random(what.seed))
        names = self._names.get(what.scenario.reference, ())
        trial = Trial(what, before, self._once(session, what, strategy, before, names), session.slot.number)
        if what.shape not in self._tried:
            self._learn(session, trial)
            self._tried.add(what.shape)
        self._disk, self._last_use = trial, self._sessions.uses
        return trial

    def _warm_up(self, session: Session, what: What) -> None:
        if session is not self._session:
            self._session, self._disk = session, None
            self._warm.clear()
        if what.scenario.reference not in self._warm:
            self._warm.add(what.scenario.reference)
            self._disk = None
            warm_up(session, RunRequest.of(what.scenario, what.world, Replay(()), seed=what.seed))

    def _once(
        self, session: Session, what: What, strategy: Strategy, before: Trial | None, names: tuple[str, ...]
    ) -> Outcome:
        self._restore(session, before)
        if before is not None:
            for tree in session.slot.disks(before.what.world).values():
                grow_old(tree)
        self._disk = None
        request = RunRequest.of(
            what.scenario, what.world, strategy, seed=what.seed, contents=what.contents, names=names,
            keep=before is not None,
        )  # fmt: skip
        return run(session, request)

    def _restore(self, session: Session, trial: Trial | None) -> None:
        """Make the disk what a run has left, by running all that led to it again."""
        if trial is None or (self._disk is trial and self._last_use in {self._sessions.uses, self._sessions.uses - 1}):
            return
        self._make_sure(session, trial)

    def _make_sure(self, session: Session, trial: Trial) -> None:
        """Run it again, and raise `CannotRun` if that differs."""
        self._warm_up(session, trial.what)
        _, difference = self._again(session, trial)
        if difference:
            raise CannotRun(f"{DIFFERS}: {difference}")
        trial.is_sure = True
        self._disk, self._last_use = trial, self._sessions.uses

    def _again(self, session: Session, trial: Trial) -> tuple[Outcome, str]:
        now, divergence = self._repeat(session, trial, trial.outcome, True)
        return now, divergence or first_difference(trial.outcome, now)

    def _repeat(self, session: Session, trial: Trial, outcome: Outcome, labels: bool) -> tuple[Outcome, str]:
        strategy = Replay(outcome.schedule, labels=labels)
        strategy.begin(Random(0))
        return self._once(session, trial.what, strategy, trial.before, outcome.names), strategy.divergence

    def _learn(self, session: Session, trial: Trial) -> None:
        """Run the first run twice; raises `CannotRun` if it differs in more than names."""
        trial.outcome, difference, _ = confirm(trial.outcome, partial(self._repeat, session, trial))
        if difference:
            raise CannotRun(f"{DIFFERS}: {difference}")
        self._names[trial.what.scenario.reference] = trial.outcome.names
        trial.is_sure = True


def _is_it(trial: Trial, strategy: Switches) -> bool:
    return trial.schedule is not None and trial.schedule.is_same_run(strategy)
