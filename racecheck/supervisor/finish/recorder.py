"""The recorder: the bytes that a run's ops put into files, and its disks as they were before.

The supervisor tells it of each op that has been performed.  What an op has written is read back from the file at once,
while nobody else can have changed it: so it is what the file holds, whatever call wrote it.

Of a storage of objects only published ones last: there the recorder compares the store after each op.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from racecheck.model.nouns import Op
from racecheck.model.ops import op_kinds
from racecheck.model.ops.unstable_names import Names
from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.files.paths import Identities
from racecheck.supervisor.state.tasks import Request

LIMIT = 512 << 20
"""Bytes that are kept of a run, unless another limit is given."""

_CHUNK = 1 << 20
_ABSENT = -10
"""The number of a disk that is not there when a run begins; the next one has one less.  No op has met it."""
_CHANGES = op_kinds.CHANGES - op_kinds.SETS
_MAPS = frozenset({"MAP_SHARED", "PROT_WRITE"})
_FILLING, _PUNCHING = frozenset[str](), frozenset({"FALLOC_FL_PUNCH_HOLE", "FALLOC_FL_ZERO_RANGE"})


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes in a file: ``length`` from ``offset`` on.  They are the blob ``digest``; "" stands for zeros."""

    offset: int
    length: int
    digest: str


@dataclass(frozen=True, slots=True)
class Thing:
    """Something on a disk: for a file its ``spans`` and size, for a symbolic link its ``target``.

    ``time`` is when it was changed last, in nanoseconds.
    """

    kind: Literal["file", "directory", "symlink"]
    spans: tuple[Span, ...] = ()
    size: int = 0
    target: str = ""
    time: int = 0


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """The effects of an op, beyond its places and its result.

    ``inode`` is the identity of the object it made, ``names`` the names that it was about as they are on the disk,
    ``spans`` the bytes it wrote, ``size`` how large the file was afterwards, ``target`` where a new link leads.
    ``lasting``: the bytes are on the disk when it returns, with all that an fsync ("all": O_SYNC) or an fdatasync
    ("data": O_DSYNC) adds.
    """

    inode: int = 0
    names: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    size: int = 0
    target: str = ""
    lasting: Literal["", "data", "all"] = ""


@dataclass(frozen=True, slots=True)
class Published:
    """Names, as (directory, name), that went from a storage of objects, and that came, with their objects."""

    gone: Mapping[tuple[int, str], int] = field(default_factory=dict)
    come: Mapping[tuple[int, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Recorder:
    """The record of one run.  Blobs lie one after the other in the file ``spool``, each once.

    ``things`` are the objects on the disks at the start, by identity, ``names`` their identities by (directory, name),
    and ``roots`` the identities of the disks' own directories, by how their paths begin in an outcome.  ``changes`` are
    by the op's index in the trace; of a storage of objects there are ``published`` instead, with the new objects among
    the things.  ``blobs`` says where in the spool a blob begins.  ``problem`` says why the record is not complete, ""
    if it is; what it has is then no ground to judge on.  ``unstable`` are the names that differ from run to run.
    """

    spool: Path
    limit: int = LIMIT
    problem: str = ""
    things: dict[int, Thing] = field(default_factory=dict)
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    roots: dict[str, int] = field(default_factory=dict)
    changes: dict[int, RecordedChange] = field(default_factory=dict)
    published: dict[int, Published] = field(default_factory=dict)
    again: dict[int, int] = field(default_factory=dict)
    """The disks that were made in the run, where there was none or it had been removed: each with its root."""
    blobs: dict[str, int] = field(default_factory=dict)
    size: int = 0
    unstable: Names = field(default_factory=Names)
    _store: Path | None = None
    _places: dict[str, Path] = field(default_factory=dict)
    _stored: dict[tuple[int, str], int] = field(default_factory=dict)

    def begin(
        self, disks: Mapping[str, Path], kept: Collection[str], scratch: Path, identities: Identities, names: Names, *,
        objects: bool,
    ) -> None:  # fmt: skip
        """Take in the disks (by prefix), and the ranks' scratch directories.

        The entries ``kept`` of the disks are left out.  ``names`` are those that differ from run to run; ``objects``:
        the one disk has only published objects.
        """
        self.unstable = names
        self.spool.write_bytes(b"")
        if objects:
            (self._store,) = disks.values()
        for prefix, root in [*disks.items(), *([] if objects else [("TMPDIR/", scratch)])]:
            self._places[prefix] = root
            if not root.exists():
                self.roots[prefix] = _ABSENT - len(self.roots)
                self.things[self.roots[prefix]] = Thing("directory")
                continue
            self.roots[prefix] = self._take_in(root, identities)
            self.names.update(self._names(root, identities, kept if root != scratch else ()))
        self._stored = dict(self.names)

    def look(self, event: int, identities: Identities) -> None:
        """Record the objects published by the end of an op, which will be the event ``event`` of the trace."""
        if self._store is None:
            return
        before, self._stored = self._stored, dict(self._names(self._store, identities))
        if before != self._stored:
            gone, come = before.items() - self._stored.items(), self._stored.items() - before.items()
            self.published[event] = Published(dict(gone), dict(come))

    def _names(
        self, directory: Path, identities: Identities, kept: Collection[str] = ()
    ) -> Iterator[tuple[tuple[int, str], int]]:
        """Yield all names below a directory, with their objects, which are taken in."""
        above = identities.of(directory.lstat())
        for entry in sorted(os.scandir(directory), key=lambda each: each.name):
            if entry.name in kept:
                continue
            yield (above, entry.name), self._take_in(Path(entry.path), identities)
            if entry.is_dir(follow_symlinks=False):
                yield from self._names(Path(entry.path), identities)

    def _take_in(self, path: Path, identities: Identities) -> int:
        status = path.lstat()
        identity, when = identities.of(status), status.st_mtime_ns
        if identity in self.things:
            return identity
        if stat.S_ISDIR(status.st_mode):
            self.things[identity] = Thing("directory", time=when)
        elif stat.S_ISLNK(status.st_mode):
            self.things[identity] = Thing("symlink", target=os.readlink(path), time=when)
        elif stat.S_ISREG(status.st_mode):
            spans = self._read(str(path), 0, status.st_size)
            self.things[identity] = Thing("file", spans, status.st_size, time=when)
        else:
            self._fail(f"{path.name} is neither a file, nor a directory, nor a link")
        return identity

    def performed(self, event: int, request: Request, answer: Answer, identities: Identities) -> None:
        """Record the changes of an op, which will be the event ``event`` of the trace, before the rank is answered."""
        if answer.errno or self._store is not None:
            return
        op = request.op
        if not self._is_change(request):
            return
        if answer.carry_on:
            self._fail(f"{op.label} ({op.syscall}) was performed by the kernel and not observed")
            return
        try:
            self.changes[event] = self._change(request, answer, identities)
        except OSError as error:
            self._fail(f"what {op.label} did cannot be read back: {error.strerror}")

    def _is_change(self, request: Request) -> bool:
        op, flags = request.op, request.flags
        if op.call == "mmap":
            if flags >= _MAPS and request.touches:
                self._fail(f"{op.label}: what is written through shared memory is not seen")
            return False
        if op.call == "submit":
            self._fail("what is written by io_submit is not seen")
        if op.call == "open":
            return request.touches and (_is_made(op, flags) or op_kinds.truncates(op))
        return op.call in _CHANGES and request.touches

    def _change(self, request: Request, answer: Answer, identities: Identities) -> RecordedChange:
        op = request.op
        names = tuple(os.path.basename(request.located[index].path) for index in sorted(request.located))
        made, target = 0, ""
        if op.call in op_kinds.MAKES | {"open"} and _is_made(op, request.flags):
            status = os.fstat(answer.opened) if answer.opened >= 0 else os.lstat(_made(request))
            made = identities.of(status)
            for prefix, root in self._places.items() if op.call == "mkdir" else ():
                if root.exists() and os.path.samestat(root.lstat(), status):
                    self.again[made] = self.roots[prefix]
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(_made(request))
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                self._fail(f"{op.label}: it is neither a file, nor a directory, nor a link")
        if op.call in op_kinds.WRITES:
            return self._written(request, answer)
        if op.call == "allocate":
            return self._allocated(request)
        return RecordedChange(made, names, target=target)

    def _written(self, request: Request, answer: Answer) -> RecordedChange:
        descriptor, moved = _target(request), answer.value
        size, flags = os.fstat(descriptor).st_size, fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if "RWF_APPEND" in request.flags or (flags & os.O_APPEND and "RWF_NOAPPEND" not in request.flags):
            start = size - moved
        else:
            start = _offset(request, descriptor, moved)
        spans = self._read(f"/proc/self/fd/{descriptor}", start, moved)
        return RecordedChange(spans=spans, size=size, lasting=_lasting(flags, request.flags))

    def _allocated(self, request: Request) -> RecordedChange:
        op, kind = request.op, frozenset(request.flags) - {"FALLOC_FL_KEEP_SIZE"}
        size = request.file.status().st_size
        if kind == _FILLING:
            return RecordedChange(size=size)
        if len(kind) != 1 or not kind <= _PUNCHING:
            self._fail(f"{op.label} with {', '.join(sorted(kind))}")
        return RecordedChange(
            spans=(Span(op.args["offset"], max(0, min(op.args["length"], size - op.args["offset"])), ""),)
        )

    def _read(self, path: str, start: int, length: int) -> tuple[Span, ...]:
        """Keep bytes of a file; raises `OSError`."""
        return tuple(self._spans(path, start, length))

    def _spans(self, path: str, start: int, length: int) -> Iterator[Span]:
        if not length:
            return
        with open(path, "rb", buffering=0) as file:
            while length > 0 and (data := os.pread(file.fileno(), min(length, _CHUNK), start)):
                yield Span(start, len(data), self.keep(data))
                start, length = start + len(data), length - len(data)
        if length:
            self._fail(f"{length} written bytes are missing")

    def read(self, extents: Sequence[tuple[int, tuple[str, int] | None]]) -> bytes:
        """Return bytes of a file: pieces of blobs, each a length, the digest and where in the blob; None for zeros."""
        with self.spool.open("rb") as spool:
            return b"".join(self._piece(spool, length, blob) for length, blob in extents)

    def _piece(self, spool: BinaryIO, length: int, blob: tuple[str, int] | None) -> bytes:
        if blob is None:
            return bytes(length)
        digest, offset = blob
        spool.seek(self.blobs[digest] + offset)
        return spool.read(length)

    def keep(self, data: bytes) -> str:
        """Keep bytes, once; returns their digest, "" for zeros."""
        if data == bytes(len(data)):
            return ""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.blobs:
            if self.size + len(data) > self.limit:
                self._fail(f"the ops wrote more than {self.limit} bytes, the limit of the recorder")
                return digest
            with self.spool.open("ab", buffering=0) as file:
                file.write(data)
            self.blobs[digest], self.size = self.size, self.size + len(data)
        return digest

    def _fail(self, why: str) -> None:
        self.problem = self.problem or why

    def close(self) -> None:
        """Release the space."""
        self.spool.unlink(missing_ok=True)


def _lasting(opened: int, given: frozenset[str]) -> Literal["", "data", "all"]:
    """Return how much a write makes durable by itself, given how its file is opened and the flags of the call."""
    if opened & os.O_SYNC == os.O_SYNC or "RWF_SYNC" in given:  # O_DSYNC is a part of O_SYNC
        return "all"
    return "data" if opened & os.O_DSYNC or "RWF_DSYNC" in given else ""


def _is_made(op: Op, flags: frozenset[str]) -> bool:
    """Return whether a call that may create something has."""
    return "O_TMPFILE" in flags or (bool(op.places) and not op.places[-1].inode)


def _made(request: Request) -> str:
    return [*request.located.values()][-1].via.rstrip("/")


def _target(request: Request) -> int:
    """Return our descriptor of the file that a call writes to."""
    for index, arg in enumerate(request.call.args):
        if arg.name == "to" and index in request.files:
            return request.files[index].descriptor
    return request.file.descriptor


def _offset(request: Request, descriptor: int, moved: int) -> int:
    """Return where a call that has written ``moved`` bytes began to write."""
    given = request.op.args.get("offset", -1)
    if request.call.family == "write" and given >= 0:
        return given
    if request.call.name == "copy_file_range" and request.arguments[3]:
        after = request.task.process.memory.read(request.arguments[3], 8)
        return int.from_bytes(after, "little") - moved
    return os.lseek(descriptor, 0, os.SEEK_CUR) - moved
