"""Free mode: the same world at full speed, without control.

Nothing is chosen except faults.  Only the ops that faults hit, and the results, are seen of it.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace

from racecheck import storage
from racecheck.agent.job import Job
from racecheck.kernel.trees import wipe
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import (
    Coverage,
    Event,
    Outcome,
    Point,
    Raised,
    RankResult,
    Returned,
    Schedule,
    Stopped,
    World,
)
from racecheck.sessions.session import Session
from racecheck.supervisor.files.open_files import OpenFiles
from racecheck.supervisor.files.paths import Watched
from racecheck.supervisor.finish.answers import reply
from racecheck.supervisor.free.faults import FreeFaults
from racecheck.supervisor.run.boot import Crew
from racecheck.supervisor.run.ending import hear
from racecheck.supervisor.state.rank_parts import RankEnd, Wire
from racecheck.supervisor.state.tasks import Rank

_LEAVES = 1.0
"""Seconds after which a rank that has returned ends, although a peer goes on.

If it ended at once, it could close a connection while a peer is on its way out of their last collective.
"""


def run(
    session: Session,
    target: str,
    world: World,
    *,
    seed: str,
    choose: Callable[[Point], int] = lambda _: 0,
    recovering: bool = False,
) -> Outcome:
    """Run a world once; ranks that have not ended after its timeout are stopped.

    ``choose`` decides which possible faults happen.  ``recovering``: ranks run the recovery, on the present disk.

    Raises `CannotRun` or `UsageError` if no run was possible.
    """
    if storage.make(world).per_node or storage.view(world) is not None:
        raise UsageError(f"storage {world.storage} needs controlled mode: drop --mode free")
    if any(fault.after for fault in world.faults):
        raise UsageError("when=after needs controlled mode: drop it or --mode free")
    if world.collectives != "gloo":
        raise UsageError("--collectives needs controlled mode: drop it or --mode free")
    started, world = time.perf_counter(), replace(world, backend=_backend(session, world))
    if recovering:
        session.slot.make_room(world)
    else:
        session.make_ready(target, world)
    job = session.job(target, world, seed, controlled=False, recovering=recovering)
    crew = _Faulted(session, job, world, choose) if world.faults else _Plain(session, job, world)
    try:
        _wait(session, crew, time.monotonic() + world.timeout)
        results = _results(crew.ranks, f"still running after {world.timeout:g} s")
    finally:
        crew.end()
    said = tuple(each for rank in crew.ranks for each in rank.end.weights)
    coverage = Coverage(notes={f"free mode: nothing was controlled ({world.backend})": 1})
    return Outcome(
        world, crew.trace, crew.schedule, results, session.slot.read(world), weights=said, fired=crew.fired,
        coverage=coverage, seconds=time.perf_counter() - started,
    )  # fmt: skip


def _results(ranks: list[Rank], why: str) -> tuple[RankResult, ...]:
    """Return each rank's result; a closed connection is the failure itself if no rank but its peers has failed."""
    results = [rank.end.result or Stopped("running", why) for rank in ranks]
    failed = [each for each in results if not isinstance(each, Returned)]
    if not all(isinstance(each, Raised) and each.echo for each in failed):
        return tuple(results)
    returned = [number for number, each in enumerate(results) if isinstance(each, Returned)]
    missing = ", ".join(f"rank {each}, which has returned" for each in returned)
    lacks = missing and f"a collective lacks {missing}"
    return tuple(replace(each, echo=False, lacks=lacks) if isinstance(each, Raised) else each for each in results)


def _backend(session: Session, world: World) -> str:
    """Return the backend of a world's process group; raises `CannotRun` if a GPU for each rank is asked for."""
    if world.backend == "gloo":
        return "gloo"
    if world.nodes > 1:
        if world.backend == "nccl":
            raise UsageError("NCCL uses this machine's GPUs: drop --nodes, or use gloo")
        return "gloo"
    enough = session.gpus >= world.ranks
    if not enough and world.backend == "nccl":
        raise CannotRun(f"NCCL needs a GPU for each of {world.ranks} ranks; this machine has {session.gpus}: "
                        "use fewer ranks, or backend='auto', which falls back to gloo")  # fmt: skip
    return "nccl" if enough else "gloo"


class _Plain:
    """The ranks of a world without faults."""

    def __init__(self, session: Session, job: Job, world: World) -> None:
        self._session, self.number = session, session.next_world()
        pairs = [socket.socketpair() for _ in range(world.ranks)]
        self.ranks = [
            Rank(each, Wire(ours), OpenFiles(Watched({})), RankEnd(job.program)) for each, (ours, _) in enumerate(pairs)
        ]
        session.fork(self.number, asdict(job), tuple(theirs for _, theirs in pairs))
        for _, theirs in pairs:
            theirs.close()
        self.trace: tuple[Event, ...] = ()
        self.schedule: Schedule = ()
        self.fired: tuple[int, ...] = ()

    def end(self) -> None:
        """Kill the ranks, with all that they have started."""
        self._session.end_world(self.number, thorough=True)
        for rank in self.ranks:
            rank.close()
        wipe(self._session.slot.output / str(self.number))

    @property
    def listeners(self) -> dict[int, Rank]:
        """Return which rank may have a call waiting at which descriptor."""
        return {}

    def take(self, rank: Rank) -> None:
        """Handle such a call."""

    def wait(self) -> float:
        """Return the most seconds to wait."""
        return 60.0

    def gone(self, rank: Rank) -> None:
        """Note the end of a rank."""


class _Faulted(_Plain):
    """The ranks of a world with faults."""

    def __init__(self, session: Session, job: Job, world: World, choose: Callable[[Point], int]) -> None:
        self._crew = Crew(session, replace(job, filtered=True), world)
        self.number, self.ranks = self._crew.number, self._crew.ranks
        try:
            self._crew.boot()
            self._rules = FreeFaults(self._crew, world, str(session.slot.output), choose)
        except BaseException:
            self._crew.end()
            raise
        for rank in self.ranks:
            reply(rank.main)

    def end(self) -> None:
        self._crew.end()
        state = self._rules.state
        self.trace, self.schedule, self.fired = tuple(state.trace), tuple(state.schedule), self._rules.fired

    @property
    def listeners(self) -> dict[int, Rank]:
        return {each.wire.listener.descriptor: each for each in self.ranks if each.wire.listener is not None}

    def take(self, rank: Rank) -> None:
        self._rules.take(rank)

    def wait(self) -> float:
        return self._rules.wait()

    def gone(self, rank: Rank) -> None:
        self._rules.gone(rank)


def _wait(session: Session, crew: _Plain, deadline: float) -> None:
    watch, listeners = select.poll(), crew.listeners
    for descriptor in (session.socket.fileno(), *listeners, *(rank.wire.channel.fileno() for rank in crew.ranks)):
        watch.register(descriptor, select.POLLIN)
    waiting: dict[int, float] = {}
    while not all(rank.gone for rank in crew.ranks) and (left := deadline - time.monotonic()) > 0:
        for descriptor, event in watch.poll(min(left, crew.wait(), _LEAVES if waiting else left) * 1000):
            if descriptor in listeners and event & select.POLLIN:
                crew.take(listeners[descriptor])
            elif event & select.POLLHUP and descriptor != session.socket.fileno():
                watch.unregister(descriptor)
        for message in session.gone(crew.number):
            rank = crew.ranks[message["gone"]]
            hear(rank)
            rank.end_with(message["status"])
            crew.gone(rank)
        _let_leave(crew.ranks, waiting)
    for rank in crew.ranks:
        hear(rank)


def _let_leave(ranks: list[Rank], waiting: dict[int, float]) -> None:
    """Let ranks that have returned wait for each other, but not for long; ``waiting`` says since when each does."""
    now = time.monotonic()
    for rank in ranks:
        hear(rank)
        if isinstance(rank.end.result, Returned):
            waiting.setdefault(rank.number, now)
    all_done = all(rank.gone or rank.end.result is not None for rank in ranks)
    for rank in ranks:
        if all_done or now - waiting.get(rank.number, now) >= _LEAVES:
            waiting[rank.number] = math.inf
            with suppress(OSError):
                rank.wire.channel.send(b"x")
