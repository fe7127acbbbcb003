"""Free mode: the same world at full speed, without control.  Nothing is chosen and nothing is seen of what it does,
only what comes of it.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from dataclasses import asdict

from racecheck import storage
from racecheck.errors import UsageError
from racecheck.model import Coverage, Outcome, Stopped, World
from racecheck.world import disk
from racecheck.world.ending import hear
from racecheck.world.files import OpenFiles
from racecheck.world.resolve import Watched
from racecheck.world.session import Session, wipe
from racecheck.world.tasks import Rank


def run(session: Session, target: str, world: World, *, seed: str) -> Outcome:
    """Run a world once; ranks that have not ended after its timeout are stopped.

    Raises `CannotRun` or `UsageError` where no run came about.
    """
    if storage.make(world).per_node:
        raise UsageError(f"storage {world.storage} needs control: without it there is one disk; leave --mode free out")
    started = time.perf_counter()
    session.make_ready(target, world)
    number, slot = session.next_world(), session.slot
    pairs = [socket.socketpair() for _ in range(world.ranks)]
    ranks = [Rank(each, ours, OpenFiles(Watched({}))) for each, (ours, _) in enumerate(pairs)]
    job = session.job(target, world, seed, controlled=False)
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
    said = tuple(each for rank in ranks for each in rank.weights)
    seconds = time.perf_counter() - started
    on_disk = disk.read(slot.disks(world))
    return Outcome(world, (), (), results, on_disk, weights=said, coverage=coverage, seconds=seconds)


def _wait(session: Session, number: int, ranks: list[Rank], deadline: float) -> None:
    watch = select.poll()
    watch.register(session.socket, select.POLLIN)
    for rank in ranks:
        watch.register(rank.channel, select.POLLIN)
    while not all(rank.gone for rank in ranks):
        left = deadline - time.monotonic()
        if left <= 0 or not (ready := watch.poll(left * 1000)):
            break
        for descriptor, event in ready:
            if event & select.POLLHUP and descriptor != session.socket.fileno():
                watch.unregister(descriptor)
        for message in session.gone(number):
            rank = ranks[message["gone"]]
            hear(rank)
            rank.end(message["status"])
        _let_leave(ranks)
    for rank in ranks:
        hear(rank)


def _let_leave(ranks: list[Rank]) -> None:
    """Ranks that have returned wait for each other."""
    for rank in ranks:
        hear(rank)
    if all(rank.gone or rank.result is not None for rank in ranks):
        for rank in ranks:
            with suppress(OSError):
                rank.channel.send(b"x")
