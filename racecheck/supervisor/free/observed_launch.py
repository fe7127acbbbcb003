"""One run of a launch command by its real launcher: nothing is controlled, and each file call of a rank is seen.

The calls of all ranks are performed one after the other, so their order is known.  The order itself, clocks, randomness
and the process group are those of the machine and the launcher.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from racecheck.kernel.seccomp import Listener, Notification
from racecheck.kernel.signature import Treatment
from racecheck.kernel.trees import wipe
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Op, World
from racecheck.model.ops import op_kinds
from racecheck.model.ops.file_ops import is_on_file
from racecheck.sessions import disk
from racecheck.sessions.launchers import capture
from racecheck.sessions.session import Session, environment, guarded
from racecheck.supervisor.calls import locks, sleeps
from racecheck.supervisor.calls.perform import CARRY_ON, Answer, perform
from racecheck.supervisor.files.open_files import OpenFiles
from racecheck.supervisor.files.paths import Watched
from racecheck.supervisor.free.faults import FreeFaults
from racecheck.supervisor.run.boot import Members
from racecheck.supervisor.state.rank_parts import Wire
from racecheck.supervisor.state.tasks import Rank, Request

_SECONDS = 300
_LOCKS = op_kinds.LOCKS


@dataclass(frozen=True, slots=True)
class RealRun:
    """A run by the real launcher: the ops on files in the order in which they happened, and each rank's exit status.

    A rank without a status was ended by a signal.
    """

    ops: tuple[Op, ...]
    statuses: Mapping[int, int]


def run(session: Session, target: str, command: Sequence[str], directory: str, world: World) -> RealRun:
    """Run a launch command once by its real launcher in a directory; nothing that it writes is real (`kernel.layer`).

    Raises `CannotRun` if its ranks do not start, or if it has not ended after five minutes.
    """
    session.make_ready(target, world)
    slot = session.slot
    output = slot.output / "real"
    output.mkdir()
    watch = _Watch(session, command, directory, world, output)
    try:
        return watch.run()
    finally:
        watch.close()


class _Watch:
    """The launcher, its guardian, and the ranks that have joined."""

    def __init__(self, session: Session, command: Sequence[str], directory: str, world: World, output: Path) -> None:
        slot = session.slot
        files = OpenFiles(Watched({str(slot.watched): "", str(slot.scratch): "TMPDIR"}, slot.kept))
        self._members, self._output, self._name = Members(0, [], files, output), output, command[0]
        self._eyes = _Eyes(self._members, world, str(slot.output))
        self._by_descriptor: dict[int, Rank] = {}
        self._ranks = world.ranks
        self._poll = select.poll()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(str(output / "door"))
        self._door.listen(world.ranks)
        (output / "home").mkdir()
        own = {"RACECHECK_OBSERVE": str(output / "door"), "RACECHECK_SCRATCH": str(slot.scratch)}
        words, variables = capture.intercepted(command, output, **own)
        with open(output / "said", "wb") as said:
            self._launcher = subprocess.Popen(
                guarded(output / "home", words),
                env={**variables, **environment()},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._over = os.pidfd_open(self._launcher.pid)
        for each in (self._over, self._door.fileno()):
            self._poll.register(each, select.POLLIN)

    def run(self) -> RealRun:
        end = time.monotonic() + _SECONDS
        while (left := end - time.monotonic()) > 0:
            ready = dict(self._poll.poll(left * 1000))
            for descriptor, event in ready.items():
                if descriptor == self._door.fileno():
                    self._let_in()
                elif descriptor in self._by_descriptor and event & select.POLLIN:
                    self._eyes.take(self._by_descriptor[descriptor])
                elif descriptor in self._by_descriptor:
                    self._poll.unregister(descriptor)
            if self._over in ready:
                break
        else:
            raise CannotRun(f"{self._name} had not ended after {_SECONDS} s: {self._last_words()}")
        if len(self._members.ranks) != self._ranks:
            raise CannotRun(f"{self._name} started {len(self._members.ranks)} ranks: {self._last_words()}")
        return RealRun(tuple(self._eyes.state.trace.ops), self._eyes.statuses)

    def _let_in(self) -> None:
        channel, _ = self._door.accept()
        data, received, _, _ = socket.recv_fds(channel, 64, 1)
        number, pid = json.loads(data)
        rank = Rank(number, Wire(channel), self._members.files)
        rank.pid, rank.wire.listener = pid, Listener(received[0])
        self._members.ranks.append(rank)
        self._by_descriptor[received[0]] = rank
        self._poll.register(received[0], select.POLLIN)
        channel.send(b".")

    def _last_words(self) -> str:
        lines = disk.tail(self._output / "said").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def close(self) -> None:
        """Kill the launcher and all that it has started, and release their resources."""
        self._launcher.terminate()
        self._launcher.wait()
        os.close(self._over)
        self._door.close()
        for rank in self._members.ranks:
            rank.close()
        self._members.files.close()
        wipe(self._output)


class _Eyes(FreeFaults):
    """The treatment of the calls of observed ranks: each is performed at once, and those on files are recorded."""

    def __init__(self, members: Members, world: World, own: str) -> None:
        super().__init__(members, world, own, lambda _: 0)
        self.statuses: dict[int, int] = {}

    def _request(self, rank: Rank, notification: Notification) -> Request | None:
        row = self._calls.get(notification.number)
        if row is not None and row.family == "exit" and notification.thread == rank.pid:
            self.statuses[rank.number] = notification.arguments[0] & 0xFF
        return super()._request(rank, notification)

    def _counts(self, op: Op) -> bool:
        return is_on_file(op)

    def _carry_out(self, request: Request) -> Answer:
        if request.call.family in _LOCKS or request.call.treatment is Treatment.CONTINUE:
            return CARRY_ON
        try:
            return sleeps.perform(request, lambda each: locks.perform(each, perform, held=self.state.locks))
        except OSError:
            return CARRY_ON
