"""A crew: the ranks of one world, from their fork until every one has its process group and is ready."""

from __future__ import annotations

import json
import mmap
import select
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from racecheck.agent.job import Job
from racecheck.kernel.path_walk import Mount
from racecheck.kernel.seccomp import HYPERCALL, Listener, Notification
from racecheck.kernel.trees import wipe
from racecheck.model.epoch import CLOCK
from racecheck.model.errors import CannotRun
from racecheck.model.hints import of_limit
from racecheck.model.hypercalls import MakesGroup, Ready, UseStore, decode
from racecheck.model.nouns import World
from racecheck.sessions import disk
from racecheck.sessions.session import Session
from racecheck.supervisor.files.open_files import OpenFiles
from racecheck.supervisor.files.paths import Watched
from racecheck.supervisor.finish.answers import answer_call, reply
from racecheck.supervisor.state.rank_parts import RankEnd, Wire
from racecheck.supervisor.state.store import Store
from racecheck.supervisor.state.tasks import HypercallStop, Rank

_BOOT_SECONDS = 120.0


@dataclass(slots=True)
class Members:
    """The ranks of a world, wherever they were started, with their open files and their store.

    ``number`` is the world's in its session, ``output`` the directory for the output of its ranks.
    """

    number: int
    ranks: list[Rank]
    files: OpenFiles
    output: Path
    store: Store = field(default_factory=Store)
    parent: Rank | None = None
    """The rank that starts the others, if one does."""
    told_ends: set[int] = field(default_factory=set)
    """The ranks of whose ends the parent knows."""


class Crew(Members):
    """Forked on construction; `boot` waits until it is ready."""

    def __init__(self, session: Session, job: Job, world: World) -> None:
        disks = session.slot.mounts(world)
        roots = dict.fromkeys([job.watched, *map(str, disks)], "")
        number = session.next_world()
        output = session.slot.output / str(number)
        clock = output / "clock"
        clock.write_bytes(bytes(CLOCK))
        with clock.open("r+b") as file:
            self.clock = mmap.mmap(file.fileno(), CLOCK)
        files = OpenFiles(Watched({**roots, job.scratch: "TMPDIR"}, frozenset(job.kept)))
        self.poll = select.epoll()
        self._session, self._forks = session, job.forks
        pairs = [socket.socketpair() for _ in range(job.ranks)]
        super().__init__(
            number,
            [Rank(each, Wire(ours), files, RankEnd(job.program)) for each, (ours, _) in enumerate(pairs)],
            files,
            output,
        )
        if len(roots) > 1:
            for rank in self.ranks:
                rank.mount = Mount(job.watched, str(disks[world.node(rank.number)]))
        self._by_descriptor = {rank.wire.channel.fileno(): rank for rank in self.ranks}
        for descriptor in self._by_descriptor:
            self.poll.register(descriptor, select.EPOLLIN)
        session.fork(self.number, asdict(job), tuple(theirs for _, theirs in pairs))
        for _, theirs in pairs:
            theirs.close()

    def boot(self) -> None:
        """Wait until every rank is ready; raises `CannotRun` if one dies, or the process group does not come up."""
        deadline = time.monotonic() + _BOOT_SECONDS
        while not self.is_ready:
            self.serve(0.1)
            for message in self._session.gone(self.number):
                words = self._last_words(message["gone"])
                hint = of_limit(words)
                raise CannotRun(f"rank {message['gone']} failed to start: {words}{'; ' * bool(hint)}{hint}")
            if time.monotonic() > deadline:
                raise CannotRun(f"the process group did not start within {_BOOT_SECONDS:.0f} seconds")
        for rank in self.ranks:
            self.poll.unregister(rank.wire.channel.fileno())
        if self._forks:
            self._session.adopt(self.number, [rank.pid for rank in self.ranks[:-1]])

    @property
    def is_ready(self) -> bool:
        return all(rank.wire.listener is not None and isinstance(rank.main.call, Ready) for rank in self.ranks)

    def serve(self, seconds: float) -> None:
        """Take in messages of the ranks, for at most this time if there are none."""
        for descriptor, _ in self.poll.poll(seconds):
            rank = self._by_descriptor[descriptor]
            if rank.wire.listener is None:
                self._meet(rank)
            elif descriptor == rank.wire.listener.descriptor:
                self._hear(rank)
            else:
                self.poll.modify(descriptor, 0)
        for rank in self.ranks:
            call = rank.main.call if rank.wire.listener is not None else None
            if isinstance(call, UseStore) and not self.store.missing(call.do, call.arguments):
                reply(rank.main, self.store.do(call.do, call.arguments, {}))
            elif isinstance(call, MakesGroup):
                reply(rank.main)

    def _meet(self, rank: Rank) -> None:
        """Take in the rank's first message: its pid, its listener, and the pipe for its stacks."""
        data, received, _, _ = socket.recv_fds(rank.wire.channel, 64, 2)
        if not data:
            self.poll.modify(rank.wire.channel.fileno(), 0)
            return
        rank.wire.channel.setblocking(False)
        rank.pid, rank.wire.listener, rank.wire.stack_pipe = (
            json.loads(data),
            Listener(received[0]),
            received[1],
        )
        self._by_descriptor[received[0]] = rank
        self.poll.register(received[0], select.EPOLLIN)

    def _hear(self, rank: Rank) -> None:
        """Receive a hypercall; nothing else is controlled yet."""
        assert rank.wire.listener is not None
        notification = rank.wire.listener.receive()
        if notification is None:
            return
        if notification.number != HYPERCALL:
            answer_call(rank, notification.id)
        else:
            rank.main.stop(hypercall(rank, notification))

    def _last_words(self, rank: int) -> str:
        """Return the end of a rank's output, in one line."""
        lines = disk.tail(self.output / str(rank)).splitlines()
        return lines[-1] if lines else "no output"

    def end(self) -> None:
        """Kill the ranks, with all that they have started, and release their resources."""
        self._session.end_world(self.number, thorough=any(rank.past.forked for rank in self.ranks))
        self.poll.close()
        self.clock.close()
        for rank in self.ranks:
            rank.close()
        self.files.close()
        wipe(self.output)


def hypercall(rank: Rank, notification: Notification) -> HypercallStop:
    """Return a thread's hypercall, from its memory."""
    address, length, answer, room = notification.arguments[:4]
    raw = rank.process(notification.thread).memory.read(address, length)
    return HypercallStop(notification.id, decode(raw), answer, room)
