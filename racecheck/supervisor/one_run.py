"""One controlled run of a world, from the fork of its ranks to its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from racecheck import storage
from racecheck.kernel import proc
from racecheck.model.nouns import Outcome, Point, Returned, World
from racecheck.model.ops.unstable_names import Names
from racecheck.sessions.session import Session
from racecheck.supervisor.act.launcher import Launcher
from racecheck.supervisor.finish.answers import reply
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.loop import Loop
from racecheck.supervisor.run import boot
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state import hypercall_ops
from racecheck.supervisor.state.collectives import NEVER_AWAITED
from racecheck.supervisor.state.coverage import Ledger
from racecheck.supervisor.state.virtual_time import VirtualTime


class Supervisor:
    """Runs a world once.

    ``choose`` answers points; ``seed`` decides the randomness of ranks; ``stacks``: ops carry the Python stack that
    made them; ``keep``: it is on the disk that the last run left; ``recovering``: that too, and ranks run the
    scenario's recovery, ``restarted``: by the launcher of the run; ``contents``: the outcome has the contents of
    checkpoint files; ``names`` are those that differ from run to run, for a recovery as its run has met them.  The run
    begins ``since`` nanoseconds after the first one, and an op takes ``pace`` ticks of virtual time.  A ``recorder``
    keeps the bytes that ops write.
    """

    def __init__(
        self,
        session: Session,
        target: str,
        world: World,
        choose: Callable[[Point], int],
        *,
        seed: str,
        stacks: bool = True,
        recovering: bool = False,
        restarted: bool = False,
        since: int = 0,
        pace: int = 1,
        keep: bool = False,
        contents: bool = False,
        names: Names | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._session, self._target, self._world, self._choose = session, target, world, choose
        self._stacks, self._contents, self._names = stacks, contents, names or Names()
        self._job = session.job(target, world, seed, controlled=True, recovering=recovering, restarted=restarted)
        self._keep, self._since, self._pace = keep or recovering, since, pace

    def run(self) -> Outcome:
        """Make the run; raises `CannotRun` or `UsageError` if none was possible."""
        started = time.perf_counter()
        if self._keep:
            self._session.slot.make_room(self._world)
        else:
            self._session.make_ready(self._target, self._world)
        members = boot.Crew(self._session, self._job, self._world)
        try:
            members.boot()
            state = self._begin(members)
            launcher = Launcher(state, is_there=self._session.slot.is_covered)
            loop = Loop(self._session, state, self._recorder, launcher)
            self._begin_record(state)
            for rank in members.ranks:
                reply(rank.main)
            results = loop.run()
            self._session.imported.update(module for rank in members.ranks for module in rank.end.modules)
        finally:
            members.end()
        if any(rank.past.shared for rank in state.ranks):
            state.ledger.note(hypercall_ops.CONDITION)
        if self._session.slot.is_covered and not state.trace.ops:
            state.ledger.hole("a program that does nothing in the watched directory")
        if self._session.slot.is_covered and not self._session.slot.is_apart:
            state.ledger.note("processes outside of the run can be seen: this machine allows no other /proc")
        if outside := self._session.slot.changed_outside():
            others = f" and {len(outside) - 1} more" * (len(outside) > 1)
            state.ledger.note(f"thrown away, not real: what was written to {outside[0]}{others}")
        if any(isinstance(each, Returned) and state.collectives.is_open(rank) for rank, each in enumerate(results)):
            state.ledger.untried(NEVER_AWAITED)
        outcome = Outcome(
            world=self._world,
            trace=tuple(state.trace),
            schedule=tuple(state.schedule),
            results=results,
            disk=self._session.slot.read(self._world),
            contents=self._session.contents(self._world) if self._contents else {},
            weights=tuple(sorted(state.told.weights, key=lambda each: (each.event, each.rank))),
            steps=tuple(sorted(state.told.steps, key=lambda each: each.rank)),
            outside=state.ledger.outside(),
            mismatch=state.told.mismatch,
            names=tuple(self._names.patterns),
            fired=loop.injector.fired,
            pending=tuple(state.pending(state.stopped_tasks())),
            cut=tuple(state.cut),
            looked=tuple(sorted(state.told.looked)),
            lookers=tuple(sorted(state.told.lookers)),
            times=dict(sorted(state.told.times.items())),
            coverage=state.ledger.coverage(len(state.trace.ops)),
            seconds=time.perf_counter() - started,
        )
        return replace(self._names.cover(replace(outcome, names=())), names=outcome.names)

    def _begin(self, members: boot.Crew) -> RunState:
        time_ = VirtualTime(members.clock, self._job.ahead, self._pace)
        time_.tick(self._since)
        ledger = Ledger(str(self._session.slot.output))
        state = RunState(
            members, self._world, storage.make(self._world), self._choose, ledger, self._stacks, time_,
            seed=self._job.seed, names=self._names,
        )  # fmt: skip
        for rank in members.ranks:
            rank.names = self._names
            rank.background = frozenset(proc.threads(rank.pid)) - {rank.pid}
            rank.main.started = True
        return state

    def _begin_record(self, state: RunState) -> None:
        if self._recorder is not None:
            slot, objects = self._session.slot, state.storage.mirrored
            self._recorder.begin(
                slot.disks(self._world), slot.kept, slot.scratch, state.identities, self._names, objects=objects
            )
