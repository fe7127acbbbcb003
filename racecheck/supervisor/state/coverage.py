"""The coverage statement: the calls and effects that a run did not see or did not control."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections import Counter

from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Coverage
from racecheck.model.ops import op_kinds
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.files.paths import kind_of
from racecheck.supervisor.state.outside import Outside
from racecheck.supervisor.state.tasks import Request

_NAMES_EXISTING = op_kinds.REMOVES | {"rename"}
_CHANGES_EXISTING = _NAMES_EXISTING | op_kinds.SETS - {"utime"} | {"truncate"}
_MAKES_NEW = op_kinds.MAKES | {"link"}
_ALLOWED = ("/proc/", "/sys/")
"""What is not storage: settings of the kernel."""
_MEMORY = tuple(f"/dev/shm/{each}" for each in ("sem.", "torch_", "psm_", "pym-"))  # noqa: S108  (compared with, never opened)
"""Memory that processes share under a name: semaphores of the C library, tensors of torch, and what multiprocessing
makes (`SharedMemory`, `Value`).  It is no storage; several ranks that use it are a gap.
"""
MEMORY = "memory, a semaphore, a message queue or a key that several ranks share"
LOCKED = "a lock on a file outside the watched directory that several ranks use"
PIPED = "messages through a FIFO"
SENT = "messages over the program's own sockets"
OTHERS = "what the kernel tells a rank about other processes"
_BY_TOOLS = re.compile(r"/__pycache__(/[^/]+\.pyc(\.\d+)?)?$|/\.coverage\.[^/]+$")
"""What Python itself writes, where each rank writes the same, and what coverage.py writes, a file for each process."""
SUBMITTED = "asynchronous I/O on a watched file"
_NOT_MODELLED = {
    "watch": "an inotify watch on a watched file: its events are not controlled",
    "bind": "a socket bound below the watched directory",
    "handle": "a file handle of a watched file",
    "admin": "a privileged call on a watched file",
}


class Ledger:
    """Counts calls that are not controlled, and names them.

    ``own`` is our directory for the output of ranks, which is not "written outside"; it is beside the watched one.
    """

    def __init__(self, own: str) -> None:
        self._own, self._above = f"{own}/", f"{os.path.dirname(own)}/"
        self._passed = 0
        self._holes: Counter[str] = Counter()
        self._untried: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._outside: dict[str, set[str]] = {}
        self._others, self._pipes = Outside(), Outside()

    def hole(self, what: str) -> None:
        """Note something that makes a PASS impossible."""
        self._holes[what] += 1

    def untried(self, what: str) -> None:
        """Note something that no schedule tries: a search that meets it proves nothing."""
        self._untried[what] += 1

    def note(self, what: str) -> None:
        self._notes[what] += 1

    def refused(self, request: Request) -> None:
        text = f"{request.call.name} was refused ({request.call.errno})"
        (self.hole if request.touches else self.note)(text)

    def kept(self, request: Request) -> None:
        """Check whether a call that becomes an op has effects that we do not see."""
        self._note_outside(request)
        call = request.call
        if call.family == "bind" and all((each.shown or "").startswith("TMPDIR/") for each in request.located.values()):
            self.note("a socket in TMPDIR")
        elif call.family in _NOT_MODELLED:
            self.hole(_NOT_MODELLED[call.family])
        elif call.family == "mmap" and request.flags >= {"MAP_SHARED", "PROT_WRITE"}:
            self.hole("a writable shared mapping of a watched file")
        elif call.family == "mmap" and "MAP_SHARED" in request.flags and _is_open_to_write(request.file):
            self.untried("writes through a shared mapping, if the program makes it writable")
        elif call.name in {"splice", "tee", "vmsplice", "getxattrat", "setxattrat", "getdents"}:
            self.hole(f"{call.name} on a watched file")
        elif request.task.rank.mount is not None and _only_the_kernel(request):
            raise CannotRun(
                f"rank {request.task.rank.number} calls {call.name} on a node-local disk, which the kernel does "
                "not know: use absolute paths, or storage shared"
            )

    def passed_by(self, request: Request) -> None:
        """Count a call outside the watched directories, which is not touched; one that writes is remembered."""
        self._passed += 1
        self._note_outside(request)

    def _note_outside(self, request: Request) -> None:
        family = request.op.call
        for located in request.located.values():
            if located.shown is not None:
                continue
            exists = located.status is not None
            writes = (
                (family == "open" and _opens_to_write(request, exists=exists))
                or (family in _CHANGES_EXISTING and exists)
                or (family in _MAKES_NEW and not exists)
            )
            if located.status is not None and stat.S_ISFIFO(located.status.st_mode):
                self._pipe(located.path, request.task.rank.number)
            if kind_of(located.status) == "other" or self._is_allowed(located.path):
                continue
            if writes and not located.path.startswith(_MEMORY):
                self._outside.setdefault(located.path, set()).add(f"rank {request.task.rank.number} {family}")
            self._share(located.path, request, exists=exists, writes=writes)

    def _pipe(self, path: str, rank: int) -> None:
        if self._pipes.meets(path, rank, writes=True, names=False):
            self.untried(PIPED)

    def _share(self, path: str, request: Request, *, exists: bool, writes: bool) -> None:
        """Check whether a rank uses a path outside that another one changes."""
        family, makes = request.op.call, op_kinds.may_create(request.op)
        names = exists if family in _NAMES_EXISTING else not exists and (family in _MAKES_NEW or makes)
        names |= family == "rename"  # its new name, too
        if self._others.meets(path, request.task.rank.number, writes=writes, names=names):
            is_memory = path.startswith(_MEMORY)
            what = (
                MEMORY if is_memory else f"ops of several ranks on {self._shown(path)}, outside the watched directory"
            )
            self.untried(what)

    def _is_allowed(self, path: str) -> bool:
        return path.startswith((*_ALLOWED, self._own)) or bool(_BY_TOOLS.search(path))

    def outside(self) -> dict[str, str]:
        """Return the paths that ranks wrote, with the ranks; those beside the watched directory are relative to it."""
        return dict(sorted((self._shown(path), ", ".join(sorted(who))) for path, who in self._outside.items()))

    def _shown(self, path: str) -> str:
        return f"../{path.removeprefix(self._above)}" if path.startswith(self._above) else path

    def coverage(self, ops: int) -> Coverage:
        holes, untried, notes = (dict(sorted(each.items())) for each in (self._holes, self._untried, self._notes))
        return Coverage(ops, self._passed, holes, untried, notes)


def _only_the_kernel(request: Request) -> bool:
    """Return whether a call on a path has to be left to the kernel, which does not know the disks of nodes."""
    if request.call.name in {"chdir", "execve", "execveat"}:
        return True
    is_directory = any(kind_of(each.status) == "directory" for each in request.located.values())
    as_handle = "O_PATH" in request.flags and "O_DIRECTORY" not in request.flags and not is_directory
    return bool(request.how and request.how[2]) or as_handle


def _is_open_to_write(file: OpenFile) -> bool:
    return fcntl.fcntl(file.descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _opens_to_write(request: Request, *, exists: bool) -> bool:
    flags = request.flags
    if "O_TRUNC" in flags or "O_TMPFILE" in flags:
        return True
    return bool(flags & {"O_WRONLY", "O_RDWR"}) or ("O_CREAT" in flags and not exists)
