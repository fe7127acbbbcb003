"""Loaders run the scenario's recovery on many states of the disk, fast.

A loader is a process forked from the zygote (`racecheck.agent.recovery_worker`), in which the recovery loads
one state after the other; two of them go at the same time where each can have a disk of its own at the same path.  For
a recovery of one rank, not under control.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from racecheck.agent.disk_writer import DiskItem
from racecheck.agent.recovery_worker import ENOUGH
from racecheck.kernel import proc
from racecheck.kernel.trees import wipe
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Content, Died, RankResult, Stopped, Weights, World
from racecheck.sessions import disk, stacks
from racecheck.sessions.session import Session, content
from racecheck.supervisor.calls import real_waits
from racecheck.supervisor.run.ending import result_of
from racecheck.supervisor.state.rank_parts import signal_name

LOADERS = 2
_AHEAD = 3
"""The most states that a loader is given at once, so that it need not wait for the next."""
_LONG = 1 << 15
"""A state with a longer message is given to an idle loader only: otherwise both sides might wait for the other to read.
"""
_BOOT, _DYING = 120.0, 10.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of the recovery on one state.  ``modules`` are those that it had to import."""

    result: RankResult
    weights: tuple[Weights, ...] = ()
    contents: Mapping[str, Content] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


class Loaders:
    """The loaders of one recovery.

    ``world`` is the recovery's, ``spool`` the file with the bytes of the states; ``reading``: the contents of
    checkpoint files are wanted, too.  ``hung`` counts loads that did not end in time.
    """

    def __init__(self, session: Session, target: str, world: World, spool: Path, *, seed: str, reading: bool) -> None:
        job = session.job(target, world, seed, controlled=False, recovering=True)
        self._session, self._timeout = session, world.timeout
        self._job = replace(job, spool=str(spool), reading=reading)
        self._home = session.slot.path / "crash"
        self._loaders: list[_Loader] = []
        self._dying: list[_Loader] = []
        self._lines: dict[int, bytes] = {}
        self._waiting: deque[int] = deque()
        self.hung = 0

    def load(self, states: Iterable[Sequence[DiskItem]], *, alone: bool = False) -> Iterator[tuple[int, Loaded]]:
        """Have the recovery load each of these states; yields their numbers with the results, in order of arrival.

        ``alone``: each in a process of its own.  Raises `CannotRun` or `UsageError` if that cannot be.
        """
        coming = enumerate(states)
        for loader in list(self._loaders) if alone else ():
            self._end(loader)
        try:
            while True:
                self._fill(coming, 1 if alone else _AHEAD)
                busy = [loader for loader in self._loaders if loader.given]
                if not busy:
                    return
                for loader in self._ready(busy):
                    for number, loaded in self._hear(loader):
                        del self._lines[number]
                        yield number, loaded
                    if alone and loader.done and loader in self._loaders:
                        self._end(loader)
        finally:
            for loader in [each for each in self._loaders if each.given]:
                self._end(loader)
            self._waiting.clear()
            self._lines.clear()

    def _fill(self, coming: Iterator[tuple[int, Sequence[DiskItem]]], ahead: int) -> None:
        """Hand states to the loaders, the least busy first; start as many loaders as can run."""
        while True:
            if not self._waiting:
                for number, items in coming:
                    self._lines[number] = json.dumps(items).encode() + b"\n"
                    self._waiting.append(number)
                    break
                else:
                    return
            free = min(self._loaders, key=lambda each: len(each.given), default=None)
            if free is None or (free.given and len(self._loaders) < LOADERS and self._may_be_more()):
                free = self._start()
            room = 1 if len(self._lines[self._waiting[0]]) > _LONG else ahead
            if len(free.given) >= room:
                return
            number = self._waiting.popleft()
            free.give(number, self._lines[number])

    def _may_be_more(self) -> bool:
        """Return whether another loader could run at the same time."""
        return all(loader.moved for loader in self._loaders)

    def _start(self) -> _Loader:
        """Start another loader."""
        self._bury()
        ours, theirs = socket.socketpair()
        number = self._session.next_world()
        home = self._home / str(number)
        self._session.fork(number, asdict(replace(self._job, loads=str(home))), (theirs,))
        theirs.close()
        self._loaders.append(_Loader(number, ours, home, self._session.slot.output / str(number)))
        return self._loaders[-1]

    def _ready(self, busy: list[_Loader]) -> list[_Loader]:
        """Return the loaders that have sent something, or have taken too long."""
        watch = select.poll()
        for loader in busy:
            watch.register(loader.channel, select.POLLIN)
        ends = min(self._ends(loader) for loader in busy)
        ready = {descriptor for descriptor, _ in watch.poll(max(0, ends - time.monotonic()) * 1000)}
        now = time.monotonic()
        return [each for each in busy if each.channel.fileno() in ready or self._ends(each) <= now]

    def _ends(self, loader: _Loader) -> float:
        """Return when a loader has to have sent something."""
        return loader.since + (self._timeout if loader.pid else _BOOT)

    def _hear(self, loader: _Loader) -> Iterator[tuple[int, Loaded]]:
        """Yield the results of the states that a loader was given."""
        lines = loader.hear()
        if lines is None:
            yield from self._ended(loader)
        elif lines:
            for line in lines:
                yield from loader.take(json.loads(line))
        elif self._ends(loader) <= time.monotonic():
            if not loader.pid:
                raise loader.not_ready()
            self.hung += 1
            stopped = loader.stopped(f"still running after {self._timeout:g} s")
            yield loader.given.popleft(), Loaded(stopped, tuple(loader.said))
            self._give_up(loader)

    def _ended(self, loader: _Loader) -> Iterator[tuple[int, Loaded]]:
        """Handle the end of a loader: it ended by itself before the next state, or because of the current one.

        Then it is to be seen whether that happens also to one that has loaded nothing before.
        """
        status = self._status(loader)
        if not loader.pid:
            raise loader.not_ready()
        if not loader.done:
            died = Died(max(status, 0), signal_name(-status) if status < 0 else "", loader.output())
            yield loader.given.popleft(), Loaded(died, tuple(loader.said))
            self._give_up(loader)
        elif status == ENOUGH:
            self._give_up(loader)
        else:
            suspect = loader.given.popleft()
            self._give_up(loader)
            self._start().give(suspect, self._lines[suspect])

    def _status(self, loader: _Loader) -> int:
        """Return how a loader ended whose channel is closed."""
        watch = select.poll()
        watch.register(self._session.socket, select.POLLIN)
        others = [each.world for each in self._loaders]
        while not (gone := self._session.gone(loader.world, others=others)):
            if not watch.poll(_DYING * 1000):
                raise CannotRun("the recovery closed its connection to racecheck")
        return gone[0]["status"]

    def _give_up(self, loader: _Loader) -> None:
        self._waiting.extend(loader.given)
        self._end(loader)

    def _end(self, loader: _Loader, *, thorough: bool = False) -> None:
        self._loaders.remove(loader)
        self._session.end_world(loader.world, thorough=thorough)
        loader.channel.close()
        self._dying.append(loader)
        if not loader.moved:
            self._bury(_DYING)

    def _bury(self, seconds: float = 0.0) -> None:
        """Release what belongs to killed loaders, as far as they are gone after this number of seconds."""
        self._dying = [loader for loader in self._dying if not loader.is_buried(seconds)]

    def close(self) -> None:
        """End the loaders, with all that their recoveries have started."""
        for loader in list(self._loaders):
            self._end(loader, thorough=True)
        self._bury(_DYING)
        if self._home.exists():
            wipe(self._home)


@dataclass(slots=True, eq=False)
class _Loader:
    """A loader's process.

    ``given`` are the numbers of the states that it has been given and has not answered, ``said`` the weights of the
    first of them, which it has had ``since`` then; ``done`` counts its answers.  ``moved``: what it sees as the watched
    directory is its own.
    """

    world: int
    channel: socket.socket
    home: Path
    printed: Path
    given: deque[int] = field(default_factory=deque)
    said: list[Weights] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    done: int = 0
    moved: bool = False
    pid: int = 0
    _pipe: int = -1
    _handle: int = -1
    _received: bytes = b""

    def not_ready(self) -> CannotRun:
        """Return the error to raise if it has not said hello."""
        words = self.output().splitlines()[-1:] or ["no output"]
        return CannotRun(f"the recovery process did not start: {words[0]}")

    def give(self, number: int, line: bytes) -> None:
        if not self.given:
            self.since = time.monotonic()
        self.given.append(number)
        with suppress(OSError):  # it has ended; that shows when its channel is read
            self.channel.sendall(line)

    def hear(self) -> list[bytes] | None:
        """Return whole lines that it has sent after its hello; None if it is gone."""
        watch = select.poll()
        watch.register(self.channel, select.POLLIN)
        if not watch.poll(0):  # recv_fds takes no MSG_DONTWAIT
            return []
        try:
            data, received, _, _ = socket.recv_fds(self.channel, 1 << 16, 2)
        except ConnectionError:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        if lines and not self.pid:
            hello = json.loads(lines.pop(0))
            self.pid, self.moved = hello["pid"], hello["moved"]
            self._pipe, self._handle = received
            self.since = time.monotonic()
        return lines if data else None

    def take(self, message: dict[str, Any]) -> Iterator[tuple[int, Loaded]]:
        """Handle one line; the last one is the result of the load."""
        if "usage" in message:
            raise UsageError(message["usage"])
        if "problem" in message:
            raise CannotRun(f"{message['problem']}; free space there, or set RACECHECK_RUNS")
        if "weights" in message:
            self.said.append(Weights(rank=0, **message["weights"]))
            return
        contents = {path: content(raw, "") for path, raw in message["contents"].items()}
        loaded = Loaded(result_of(message["result"]), tuple(self.said), contents, tuple(message["modules"]))
        self.said, self.since, self.done = [], time.monotonic(), self.done + 1
        yield self.given.popleft(), loaded

    def stopped(self, late: str) -> Stopped:
        """Return its state: it waits for something that never comes, or it still runs."""
        stack = stacks.capture(self.pid, self.pid, self._pipe) or ()
        call = proc.stopped_call(self.pid, self.pid)
        if call is not None and not real_waits.has_timeout(call[0], call[1]):
            return Stopped("asleep", f"sleeps and nothing woke it: {late}", stack)
        return Stopped("running", late, stack)

    def output(self) -> str:
        """Return the end of its output."""
        return disk.tail(self.printed / "0")

    def is_buried(self, seconds: float) -> bool:
        """Return whether its killed process is gone after this number of seconds; then nothing of it is left."""
        if self._handle >= 0:
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            if not ended.poll(seconds * 1000):
                return False
            os.close(self._handle)
            os.close(self._pipe)
        for path in (self.printed, self.home):
            if path.exists():
                wipe(path)
        return True
