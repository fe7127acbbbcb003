"""Free mode: the same world at full speed, without control.  Nothing is chosen and nothing is seen of what it does, only
what comes of it."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import asdict

from racecheck.errors import CannotRun
from racecheck.model import Coverage, Outcome, Returned, Stopped, World
from racecheck.world import disk
from racecheck.world.agent import Job
from racecheck.world.files import OpenFiles
from racecheck.world.resolve import Watched
from racecheck.world.session import Session
from racecheck.world.supervisor import hear, prepare
from racecheck.world.tasks import Rank


def run(session: Session, target: str, world: World, *, seed: str) -> Outcome:
    """Run a world once; ranks that have not ended after its timeout are stopped.

    Raises `CannotRun` or `UsageError` where no run came about.
    """
    started = time.perf_counter()
    ranks = [Rank(number, channel, OpenFiles(Watched({}))) for number, channel in _fork(session, target, world, seed)]
    try:
        _wait(session, ranks, time.monotonic() + world.timeout)
        for rank in ranks:
            hear(rank)
            if rank.result is None:
                rank.result = Stopped("running", f"it had not ended after {world.timeout:g} s")
        session.end_world()
        coverage = Coverage(notes={"free mode: nothing was controlled": 1})
        results = tuple(rank.result or Returned() for rank in ranks)
        left = disk.read(session.slot.watched)
        return Outcome(world, (), (), results, left, coverage=coverage, seconds=time.perf_counter() - started)
    finally:
        session.end_world()
        for rank in ranks:
            rank.close()


def _fork(session: Session, target: str, world: World, seed: str) -> list[tuple[int, socket.socket]]:
    prepare(session, target, world)
    slot = session.slot
    pairs = [socket.socketpair() for _ in range(world.ranks)]
    job = Job(
        target=target, ranks=world.ranks, seed=seed, watched=str(slot.watched), scratch=str(slot.scratch),
        output=str(slot.output), controlled=False,
    )  # fmt: skip
    session.request("fork", job=asdict(job), sockets=tuple(theirs for _, theirs in pairs))
    for _, theirs in pairs:
        theirs.close()
    return [(number, ours) for number, (ours, _) in enumerate(pairs)]


def _wait(session: Session, ranks: list[Rank], deadline: float) -> None:
    watch = select.poll()
    watch.register(session.socket, select.POLLIN)
    while not all(rank.gone for rank in ranks):
        left = deadline - time.monotonic()
        if left <= 0 or not watch.poll(left * 1000):
            return
        for message in session.gone():
            rank = ranks[message["gone"]]
            hear(rank)
            rank.end(message["status"])
            if rank.result is None:
                raise CannotRun(f"rank {rank.number} ended without a word")
