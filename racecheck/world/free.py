"""Free mode: the same world at full speed, without control.  Nothing is chosen and nothing is seen of what it does,
only what comes of it.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import asdict

from racecheck.model import Coverage, Outcome, Stopped, World
from racecheck.world import disk
from racecheck.world.agent import Job
from racecheck.world.ending import hear
from racecheck.world.files import OpenFiles
from racecheck.world.resolve import Watched
from racecheck.world.session import Session, wipe
from racecheck.world.tasks import Rank


def run(session: Session, target: str, world: World, *, seed: str) -> Outcome:
    """Run a world once; ranks that have not ended after its timeout are stopped.

    Raises `CannotRun` or `UsageError` where no run came about.
    """
    started = time.perf_counter()
    session.make_ready(target, world.ranks, world.timeout)
    number, slot = session.next_world(), session.slot
    pairs = [socket.socketpair() for _ in range(world.ranks)]
    ranks = [Rank(each, ours, OpenFiles(Watched({}))) for each, (ours, _) in enumerate(pairs)]
    job = Job(
        target=target, ranks=world.ranks, seed=seed, watched=str(slot.watched), scratch=str(slot.scratch),
        output=str(slot.output), controlled=False,
    )  # fmt: skip
    session.fork(number, asdict(job), tuple(theirs for _, theirs in pairs))
    try:
        for _, theirs in pairs:
            theirs.close()
        _wait(session, number, ranks, time.monotonic() + world.timeout)
        results = tuple(
            rank.result or Stopped("running", f"it had not ended after {world.timeout:g} s") for rank in ranks
        )
    finally:
        session.end_world(number, thorough=True)
        for rank in ranks:
            rank.close()
        wipe(slot.output / str(number))
    coverage = Coverage(notes={"free mode: nothing was controlled": 1})
    seconds = time.perf_counter() - started
    return Outcome(world, (), (), results, disk.read(slot.watched), coverage=coverage, seconds=seconds)


def _wait(session: Session, number: int, ranks: list[Rank], deadline: float) -> None:
    watch = select.poll()
    watch.register(session.socket, select.POLLIN)
    while not all(rank.gone for rank in ranks):
        left = deadline - time.monotonic()
        if left <= 0 or not watch.poll(left * 1000):
            break
        for message in session.gone(number):
            rank = ranks[message["gone"]]
            hear(rank)
            rank.end(message["status"])
    for rank in ranks:
        hear(rank)
