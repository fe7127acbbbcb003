"""The disks that damage leaves after a run: one file that the recovery reads is not as it was saved.

flip: a bit of a part of the file (`file_parts`) is inverted.  cut: the last byte, or the second half, is missing.
zero: the page in the middle has zeros.  empty, missing: the file has no bytes, or no name.  older: it has the bytes of
an older save.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from racecheck import faults
from racecheck.crash.changes import PAGE, Changes, LastingChoice
from racecheck.crash.damage.file_parts import parts
from racecheck.crash.log import Data, Disk, Log, Stored, merged, overwritten, shortened
from racecheck.crash.states import CrashState
from racecheck.model.nouns import Crash, Fault, Op, Outcome
from racecheck.supervisor.finish.recorder import Recorder

_NUMBER = re.compile(r"\d+")

KINDS = frozenset(faults.DAMAGES)


class Damages:
    """The disks with a damaged file after one run, whose ``outcome`` has the undamaged recovery."""

    def __init__(self, outcome: Outcome, log: Log, recorder: Recorder) -> None:
        changes = Changes(log)
        self._whole = changes.disk(LastingChoice((1 << len(changes.every)) - 1))
        self._files = _Files(self._whole, recorder, log.per_node)
        self._read = self._files.read_by(outcome.recovery)
        self._happened = tuple(range(len(outcome.trace)))

    def states(self, kind: str, asked: Sequence[Fault]) -> list[CrashState]:
        """Return the disks with one kind of damage; ``asked`` are its faults, whose patterns choose the files."""
        found = []
        for path in self._read:
            shown = self._files.shown(path)
            if any(faults.matches(each, self._files.on_node(shown)) for each in asked):
                for stored, said in self._files.damaged(path, kind):
                    left = tuple((name, stored if name == path else each) for name, each in self._whole.paths)
                    disk = Disk(tuple((name, each) for name, each in left if each is not None))
                    found.append(CrashState(disk, Crash(kind, self._happened, damage=said, file=shown)))
        return found


def reads_files(outcome: Outcome) -> bool:
    """Return whether the recovery of a run opened a file to read."""
    ops = outcome.recovery.ops if outcome.recovery is not None else ()
    return any(_reads(op) and any(place.kind == "file" for place in op.places) for op in ops)


@dataclass(frozen=True, slots=True)
class _Files:
    disk: Disk
    recorder: Recorder
    per_node: bool
    """Paths begin with the node whose disk it is."""

    def shown(self, path: str) -> str:
        """Return a path as an outcome has it."""
        return self.recorder.unstable.show(path)

    def on_node(self, shown: str) -> str:
        """Return a path as the ranks of its node name it."""
        return shown.partition("/")[2] if self.per_node else shown

    def read_by(self, recovery: Outcome | None) -> list[str]:
        """Return the files of the disk that a recovery opened to read, in the order of their paths."""
        opened = set()
        for op in filter(_reads, recovery.ops if recovery is not None else ()):
            node = f"node{recovery.world.node(op.rank)}/" if self.per_node and recovery is not None else ""
            opened |= {f"{node}{place.path}" for place in op.places}
        return [
            path for path, each in self.disk.paths if each.kind == "file" and each.size and self.shown(path) in opened
        ]

    def damaged(self, path: str, kind: str) -> Iterator[tuple[Stored | None, str]]:
        """Yield a file as this kind of damage leaves it (None: missing), each with a description."""
        whole, name = self.disk[path], self.shown(path)
        if kind == "missing":
            yield None, f"{name} is missing"
        elif kind == "empty":
            yield Stored("file"), f"{name} is empty"
        elif kind == "cut":
            for size in dict.fromkeys(each for each in (whole.size - 1, whole.size // 2) if each):
                yield _cut(whole, size), f"{name} ends after {size} of {whole.size} bytes"
        elif kind == "zero":
            start = whole.size // 2 // PAGE * PAGE
            length = min(PAGE, whole.size - start)
            said = f"bytes {start} to {start + length - 1} of {name} are zeros"
            yield _with(whole, start, length, None), said
        elif kind == "older":
            older = self._older(path)
            if older:
                yield self.disk[older], f"{name} has the bytes of the older {self.shown(older)}"
        else:
            yield from self._flipped(path, whole, name)

    def _flipped(self, path: str, whole: Stored, name: str) -> Iterator[tuple[Stored, str]]:
        blobs = [(length, (each.digest, each.offset) if each else None) for _, length, each in whole.extents]
        data = self.recorder.read(blobs)
        for offset, part in parts(path, data):
            digest = self.recorder.keep(bytes([data[offset] ^ 1]))
            kept = Data(digest, 0, 1) if digest else None
            where = f" ({part})" if part else ""
            yield _with(whole, offset, 1, kept), f"the lowest bit of byte {offset} of {name}{where} is flipped"

    def _older(self, path: str) -> str:
        """Return the same file in the directory of the save before, "" if there is none.

        Its path differs in one number of a directory, which is smaller.  Numbers of files may be numbers of ranks.
        """
        directory, _, name = path.rpartition("/")
        candidates = []
        for other, each in self.disk.paths:
            theirs, _, same = other.rpartition("/")
            if each.kind == "file" and same == name and each != self.disk[path]:
                number = _smaller(directory, theirs)
                candidates += [(number, other)] if number >= 0 else []
        return max(candidates, default=(0, ""))[1]


def _smaller(path: str, other: str) -> int:
    """Return the one number in which another path differs from a path, if that is smaller; else -1."""
    if _NUMBER.split(path) != _NUMBER.split(other):
        return -1
    pairs = zip(_NUMBER.findall(path), _NUMBER.findall(other), strict=True)
    apart = [(int(mine), int(theirs)) for mine, theirs in pairs if mine != theirs]
    return apart[0][1] if len(apart) == 1 and apart[0][1] < apart[0][0] else -1


def _reads(op: Op) -> bool:
    done = op.result is not None and not op.result.errno
    return op.call == "open" and done and "O_WRONLY" not in op.flags


def _cut(whole: Stored, size: int) -> Stored:
    return Stored("file", merged(shortened(whole.extents, size), size), size)


def _with(whole: Stored, offset: int, length: int, data: Data | None) -> Stored:
    return Stored("file", merged(overwritten(whole.extents, offset, length, data), whole.size), whole.size)
