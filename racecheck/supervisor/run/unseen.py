"""Effects between threads without an op of the observer: named where both halves occur in one run.

A read through a mapping is no system call, so it may tear where another thread writes the file while it is mapped.  A
program cannot be executed while a file is open for writing, nor the other way round (ETXTBSY, execve(2)), and when a
file is closed is no point.  getcwd(2) and the links of /proc show a path that another thread's rename changes.  In each
case one half alone changes nothing, so that only a run with both makes a search incomplete.  The same holds for the
acts of an NFS client that its model leaves out (`racecheck.storage.nfs`): lose bytes where two nodes append to one file
(open(2)), follow a symbolic link as it was, and open a file by the name that another node has just taken from it.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Hashable

from racecheck.kernel.path_walk import undeleted
from racecheck.model.nouns import Op, World
from racecheck.model.ops.footprint import Footprint, Mode
from racecheck.supervisor.files.paths import Watched
from racecheck.supervisor.state.coverage import OTHERS, PIPED, SENT, Ledger
from racecheck.supervisor.state.tasks import Request

_TORN = "reads through a mapping while another thread writes the file"
_BUSY = "an exec of a file while another thread has it open for writing (ETXTBSY)"
_PATH = "a path from getcwd or /proc while another thread renames a directory"
_NAME = "the path of an open file from /proc while another thread renames or removes it"
_APPENDED = "bytes lost when two NFS clients append to one file"
_FOLLOWED = "an old symbolic link that an NFS client follows after another client replaced it"
_OPENED = "a file that an NFS client opens by a name that another client has just removed"
_ROOM = "the free space of a file system"
_IDENTITY = "a name or number of the machine, which is the same on all nodes here"
_IDENTITIES = re.compile(
    rb"/proc/sys/kernel/(?:hostname|domainname|random/boot_id)|/etc/(?:hostname|machine-id)|/var/lib/dbus/machine-id"
    rb"|/sys/class/(?:net/[^/]+/address|dmi/id/.*)|(?:.*/)?(?:hostname|hostnamectl|hostid|dnsdomainname)"
)
"""What tells machines apart: files, and programs that print it."""
_ASK = frozenset({"open", "exec", "readlink"})
_ALL = frozenset({b"/proc", b"/proc/locks"})
"""They list things of every process."""
_PROCESS = re.compile(rb"/proc/([0-9]+)(?:/.*)?")
_LINK = re.compile(rb"/proc/(?:self|thread-self|[0-9]+)/(?:task/[0-9]+/)?(?:cwd|fd/[0-9]+)")


class Unseen:
    """The halves that one run has met, each with its threads."""

    def __init__(self, ledger: Ledger, watched: Watched, world: World) -> None:
        self._ledger, self._watched, self._world = ledger, watched, world
        self._halves: defaultdict[tuple[str, Hashable], set[str]] = defaultdict(set)
        self._mapped: defaultdict[int, set[str]] = defaultdict(set)
        self._executed: defaultdict[int, set[str]] = defaultdict(set)
        self._written: defaultdict[int, set[str]] = defaultdict(set)
        self._shown: set[str] = set()
        self._moved: set[str] = set()
        self._read: defaultdict[str, set[str]] = defaultdict(set)
        self._renamed: defaultdict[str, set[str]] = defaultdict(set)

    def ask(self, request: Request) -> None:
        """Note that a thread may be about to be shown a path, or the name of its machine."""
        if self._world.nodes > 1 and request.call.family in _ASK and any(map(_identifies, request.paths.values())):
            self._ledger.hole(_IDENTITY)
        if request.call.family == "bind" and not request.located and not request.task.makes_group:
            self._ledger.untried(SENT)
        shown = [int(found[1]) for path in request.paths.values() if (found := _PROCESS.fullmatch(path))]
        if any(pid not in request.task.rank.processes for pid in shown) or not _ALL.isdisjoint(request.paths.values()):
            self._ledger.untried(OTHERS)
        if request.call.family == "getcwd":
            links = [f"/proc/{request.task.process.pid}/cwd"]
        elif request.call.family == "readlink":
            links = [path.decode() for path in request.paths.values() if _LINK.fullmatch(path)]
        else:
            return
        if any(self._is_below(_own(link, request)) for link in links):
            self._shown.add(request.task.name)
            self._check(self._moved, self._shown, _PATH)
        for link in links:
            path = self._path(_own(link, request))
            if path is not None:
                self._read[path].add(request.task.name)
                self._check(self._renamed[path], self._read[path], _NAME)

    def note(self, op: Op, footprint: Footprint) -> None:
        """Note that an op has succeeded."""
        if op.call in {"mmap", "exec"}:
            half = self._mapped if op.call == "mmap" else self._executed
            half[op.places[-1].inode if op.places else 0].add(op.thread)
        if op.call == "open" and op.places and op.places[-1].kind == "other":
            self._ledger.untried(PIPED)
        if op.call == "statfs":
            self._ledger.untried(_ROOM)
        if op.call == "exec" and op.places:
            self._check(self._written[op.places[-1].inode], {op.thread}, _BUSY)
        if op.call in {"rename", "unlink"}:
            self._note_names(op)
        if self._world.storage.partition(":")[0] == "nfs":
            self._note_client(op, f"node {self._world.node(op.rank)}")
        for location, mode in footprint.items():
            if location.kind == "content" and mode is Mode.WRITE and isinstance(location.key, int):
                self._written[location.key].add(op.thread)
                self._check(self._mapped[location.key], {op.thread}, _TORN)
                self._check(self._executed[location.key], {op.thread}, _BUSY)

    def _note_names(self, op: Op) -> None:
        """Note that names have changed which /proc shows."""
        if op.places[0].kind == "directory":
            self._moved.add(op.thread)
            self._check(self._shown, self._moved, _PATH)
        for place in op.places:
            self._renamed[place.path].add(op.thread)
            self._check(self._renamed[place.path], self._read[place.path], _NAME)

    def _note_client(self, op: Op, node: str) -> None:
        """Note an op of an NFS client, which it and others may remember."""
        for place in op.places:
            for link in place.through:
                self._meet(_FOLLOWED, link, node, first=True)
        if op.call == "open" and op.places:
            self._meet(_OPENED, op.places[-1].path, node, first=True)
            if "O_APPEND" in op.flags:
                self._meet(_APPENDED, op.places[-1].path, node, first=True)
                self._meet(_APPENDED, op.places[-1].path, node, first=False)
        if op.call in {"rename", "unlink", "symlink"} and op.places:
            self._meet(_FOLLOWED, op.places[-1].path, node, first=False)
            self._meet(_OPENED, op.places[0].path, node, first=False)

    def _meet(self, what: str, key: Hashable, node: str, *, first: bool) -> None:
        """Note one half of something that happened to this, and check whether the other half is another node's."""
        halves = self._halves[f"{what} {first}", key], self._halves[f"{what} {not first}", key]
        halves[0].add(node)
        self._check(*halves, what)

    def _check(self, first: set[str], second: set[str], what: str) -> None:
        if first and second and len(first | second) > 1:
            self._ledger.untried(what)

    def _is_below(self, link: str) -> bool:
        """Return whether the object of a link of /proc can be renamed: it lies below a watched directory."""
        return self._path(link) not in {None, "."}

    def _path(self, link: str) -> str | None:
        """Return where the object of a link of /proc is, or was; None outside the watched directories."""
        try:
            return self._watched.shown(undeleted(os.readlink(link), link))
        except OSError:
            return None


def _identifies(path: bytes) -> bool:
    return _IDENTITIES.fullmatch(path) is not None


def _own(link: str, request: Request) -> str:
    """Return the link as seen from here."""
    return re.sub(r"/proc/(?:thread-)?self/", f"/proc/{request.task.process.pid}/", link)
