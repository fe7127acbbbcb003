"""The ways in which processes of one machine reach each other, and how racecheck treats each of them.

`CHANNELS` is the list: the pages of section 7 of the Linux manual on interprocess communication, and the calls with
which one process looks at another.  A way is either controlled or, where several ranks use it, a gap with a name.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from racecheck.kernel.real_files import real
from racecheck.kernel.signature import Notify, Role
from racecheck.kernel.syscalls import TABLE
from racecheck.supervisor.calls import connections
from racecheck.supervisor.calls.locks import RECORD_LOCKS
from racecheck.supervisor.state.coverage import LOCKED, MEMORY, OTHERS, PIPED, SENT, SUBMITTED, Ledger
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Rank, Request

DESCRIPTOR = "a descriptor of a watched file that is sent to another process"
EVENTS = "events of an inotify watch outside the watched directory"
INSIDE = "threads and processes of a rank are switched only at their ops"
SIGNAL = "other moments for a signal between ranks"
FILES = "ops of several ranks on "
_RIGHTS = 1
"""SCM_RIGHTS of unix(7)."""
_IPC_PRIVATE = 0
_FILDES, _MOST_SUBMITTED = 20, 1 << 12
"""Where ``struct iocb`` has its descriptor, and how many of them are looked at."""
_ABOUT_PROCESSES = (
    "pidfd_open", "process_vm_readv", "process_vm_writev", "ptrace",
    *(call.name for call in TABLE.values() if call.notify is Notify.NAMED),
)  # fmt: skip
_LOCKS = RECORD_LOCKS | {"F_SETLEASE"}


@dataclass(frozen=True, slots=True)
class Channel:
    """A way from one process to another; ``page`` of the manual describes it.

    ``says`` is the gap, condition or note that the report names where ranks use it, "" if it is controlled.
    """

    name: str
    page: str
    says: str = ""


CHANNELS = (
    Channel("files in the watched directory", "open(2)"),
    Channel("file locks in the watched directory", "flock(2), fcntl(2)"),
    Channel("collectives of torch.distributed", "torch.distributed"),
    Channel("keys of torch's stores", "torch.distributed.Store"),
    Channel("the exit status of a child", "wait(2)"),
    Channel("a connect to a listener on this machine", "tcp(7)"),
    Channel("files outside the watched directory", "open(2)", FILES),
    Channel("file locks outside the watched directory", "flock(2), fcntl(2)", LOCKED),
    Channel("signals", "signal(7)", SIGNAL),
    Channel("signals through a pidfd", "pidfd_send_signal(2)", SIGNAL),
    Channel("the signal 0, which asks whether a process lives", "kill(2)", OTHERS),
    Channel("pipes and socket pairs that a child inherits", "pipe(7)", INSIDE),
    Channel("FIFOs", "fifo(7)", PIPED),
    Channel("sockets of the Internet", "ip(7)", SENT),
    Channel("Unix sockets with a path", "unix(7)", SENT),
    Channel("abstract Unix sockets", "unix(7)", SENT),
    Channel("descriptors in messages", "unix(7), SCM_RIGHTS", DESCRIPTOR),
    Channel("POSIX shared memory", "shm_overview(7)", MEMORY),
    Channel("POSIX semaphores", "sem_overview(7)", MEMORY),
    Channel("POSIX message queues", "mq_overview(7)", MEMORY),
    Channel("System V shared memory", "sysvipc(7)", MEMORY),
    Channel("System V semaphores", "sysvipc(7)", MEMORY),
    Channel("System V message queues", "sysvipc(7)", MEMORY),
    Channel("keys of the kernel", "keyrings(7)", "add_key was refused"),
    Channel("inotify outside the watched directory", "inotify(7)", EVENTS),
    Channel("/proc about another process", "proc(5)", OTHERS),
    Channel("/proc/locks", "proc_locks(5)", OTHERS),
    Channel("pidfds of another rank's process", "pidfd_open(2)", OTHERS),
    Channel("the memory of another process", "process_vm_readv(2), ptrace(2)", OTHERS),
    Channel("the group, session, processors, priority and limits of another process", "getpgid(2), prlimit(2)", OTHERS),
)
"""Every channel.  Memory that is shared by mapping a watched file is a hole of its own (`Ledger.kept`)."""


class Channels:
    """The uses of channels in one run; ``ranks`` are all of the run's."""

    def __init__(self, ledger: Ledger, ranks: list[Rank]) -> None:
        self._ledger, self._ranks = ledger, ranks
        self._users: defaultdict[tuple[str, Hashable], set[int]] = defaultdict(set)

    def ask(self, request: Request) -> None:
        """Note a use of a channel by a call that is about to be made."""
        note = _BY_CALL.get(request.call.name)
        if note is not None:
            with suppress(OSError):  # its memory cannot be read: the kernel refuses the call
                note(self, request)

    def _meet(self, says: str, key: Hashable, request: Request) -> None:
        """Note that a rank uses something, and check whether another one does."""
        users = self._users[says, key]
        users.add(request.task.rank.number)
        if len(users) > 1:
            self._ledger.untried(says)

    def lock(self, request: Request) -> None:
        is_lock = request.call.name == "flock" or not _LOCKS.isdisjoint(request.flags)
        if is_lock and not request.touches:
            descriptor = signed(request.arguments[0])
            self._meet(LOCKED, os.readlink(f"/proc/{request.task.process.pid}/fd/{descriptor}"), request)

    def use_key(self, request: Request) -> None:
        """Look at a call that finds a System V object by its key; a private one has none."""
        if request.arguments[0] & 0xFFFFFFFF != _IPC_PRIVATE:
            self._meet(MEMORY, (request.call.name, request.arguments[0] & 0xFFFFFFFF), request)

    def use_number(self, request: Request) -> None:
        """Look at a call on a System V object, by the object's number."""
        self._meet(MEMORY, (request.call.name[:3], request.arguments[0] & 0xFFFFFFFF), request)

    def use_name(self, request: Request) -> None:
        """Look at a call that finds an object by its name, the argument that the table calls a string."""
        index = next(index for index, arg in enumerate(request.call.args) if arg.role is Role.STRING)
        name = request.task.process.memory.string(request.arguments[index])
        self._meet(MEMORY, (request.call.name, name), request)

    def look_at_process(self, request: Request) -> None:
        pid = request.number("pid")
        if any(pid in rank.processes or pid in rank.tasks for rank in self._ranks if rank is not request.task.rank):
            self._ledger.untried(OTHERS)

    def bind(self, request: Request) -> None:
        """Look at a Unix socket that gets a name; one for datagrams may be reached by a send alone."""
        name = _unix_name(request)
        if not name or request.task.makes_group:
            return
        self._meet(SENT, name, request)
        if _is_datagram(request):
            self._ledger.untried(SENT)

    def connect(self, request: Request) -> None:
        name = _unix_name(request)
        if name:
            self._meet(SENT, name, request)
            if _is_of_a_process_outside(name, request):
                self._ledger.note(
                    f"refused: a connect to {os.fsdecode(name)}, where a process outside of the run listens"
                )

    def send(self, request: Request) -> None:
        """Look for descriptors in a message: the receiver gets them where the filter does not see them."""
        memory, process = request.task.process.memory, request.task.process
        control, length = struct.unpack_from("QQ", memory.read(request.arguments[1], 56), 32)
        raw = memory.part(control, min(length, 1 << 12)) if control else b""
        while len(raw) >= 16:
            size, level, kind = struct.unpack_from("Qii", raw)
            if level == socket.SOL_SOCKET and kind == _RIGHTS:
                sent = struct.unpack_from(f"{max(0, min(size, len(raw)) - 16) // 4}i", raw, 16)
                if any(process.descriptors.look_up(each) is not None for each in sent if each >= 0):
                    self._ledger.hole(DESCRIPTOR)
            raw = raw[max(16, (size + 7) // 8 * 8) :]

    def submit(self, request: Request) -> None:
        """Look for watched files in the arguments of io_submit(2): pointers to ``struct iocb`` (linux/aio_abi.h)."""
        memory, process = request.task.process.memory, request.task.process
        count = min(max(0, request.number("count")), _MOST_SUBMITTED)
        for (block,) in struct.iter_unpack("Q", memory.read(request.arguments[2], 8 * count)):
            (descriptor,) = struct.unpack("i", memory.read(block + _FILDES, 4))
            if descriptor >= 0 and process.descriptors.look_up(descriptor) is not None:
                self._ledger.hole(SUBMITTED)

    def watch(self, request: Request) -> None:
        if not request.touches:
            self._ledger.untried(EVENTS)


def _unix_name(request: Request) -> bytes:
    """Return the name of a Unix socket in a call's address: a path, or the bytes after the zero of an abstract one."""
    length = min(request.number("length"), 110)
    raw = request.task.process.memory.part(request.arguments[1], length) if length > 2 else b""
    if len(raw) < 3 or struct.unpack_from("H", raw)[0] != socket.AF_UNIX:
        return b""
    return raw[2:] if not raw[2] else raw[2:].split(b"\0")[0]


def _is_of_a_process_outside(name: bytes, request: Request) -> bool:
    """Return whether a layer covers a socket: an overlay has another inode, to which nobody is bound."""
    if name.startswith(b"\0"):
        return False
    path = Path(os.readlink(f"/proc/{request.task.process.pid}/cwd"), os.fsdecode(name))
    try:
        shown, original = os.stat(path), os.stat(real(path))
    except OSError:
        return False
    is_covered = stat.S_ISSOCK(original.st_mode) and shown.st_dev != original.st_dev
    return is_covered and shown.st_ctime_ns == original.st_ctime_ns


def _is_datagram(request: Request) -> bool:
    found = connections.open_socket(request.task.process.descriptors.fetch(signed(request.arguments[0])))
    if found is None:
        return False
    with found:
        return found.type != socket.SOCK_STREAM


_BY_CALL: Mapping[str, Callable[[Channels, Request], None]] = {
    **dict.fromkeys(("flock", "fcntl"), Channels.lock),
    **dict.fromkeys(("msgget", "semget", "shmget"), Channels.use_key),
    **dict.fromkeys(("msgsnd", "msgrcv", "semop", "semtimedop", "shmat"), Channels.use_number),
    **dict.fromkeys(("mq_open",), Channels.use_name),
    **dict.fromkeys(_ABOUT_PROCESSES, Channels.look_at_process),
    "bind": Channels.bind,
    "connect": Channels.connect,
    "sendmsg": Channels.send,
    "io_submit": Channels.submit,
    "inotify_add_watch": Channels.watch,
}
