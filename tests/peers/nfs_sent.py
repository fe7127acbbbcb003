"""What an NFS server has while a client works: is that what the model says the client can lose?  nfs_in_uml.sh runs it.

    python tests/peers/nfs_sent.py /mnt/a /mnt/export 300

The first directory is a mount of the second.  Random programs run in it, and what they have open stays open: so bytes
wait on the client.  What would last if the client lost power now is what the server's own directory holds, and has to
be among the states of the model "nfs".  Exit status 1: it was not, or everything had been sent.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from racecheck.crash.changes import Changes, LastingChoice
from racecheck.crash.legal import Limits
from racecheck.crash.log import Stored
from racecheck.crash.models import MODELS
from tests.peers.file_systems import litmus

_KEPT = ".nfs"
"""How names begin that the client gives to files that are removed while they are open."""

Found = dict[str, bytes | None]


def main(arguments: list[str]) -> int:
    mount, export, programs = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    lost: list[int] = []
    for number in range(programs):
        name = f"racecheck-{os.getpid()}-{number}"
        (mount / name).mkdir()
        program = litmus.program(Random(f"sent:{number}"))
        client = _Client(mount / name, Random(number))
        client.run(program)
        found = _read(export / name)
        client.close()
        lost.append(_lost(program, found))
        if lost[-1] < 0:
            print(f"OUTSIDE program {number}:", *map(str, program), f"left {sorted(found)}", sep="\n  ")
    outside, lossy = lost.count(-1), sum(each > 0 for each in lost)
    said = f"{lossy} with writes that had not been sent, up to {max(lost)} of them"
    print(f"{programs} programs, {said}; {outside} outside the model")
    return 1 if outside or not lossy else 0


class _Client:
    """Makes the calls of a program, and closes files only where the program syncs them, if then.

    It never asks for the attributes of a file: that would send its bytes.
    """

    def __init__(self, directory: Path, random: Random) -> None:
        self._directory, self._random = directory, random
        self._names: dict[str, int] = {}
        self._open: dict[int, int] = {}

    def run(self, program: litmus.Program) -> None:
        for number, call in enumerate(program):
            if call.kind == "create":
                self._names[call.path] = number
            if call.kind in {"write", "fsync"} and call.path in self._names:
                self._use(call, self._names[call.path])
            else:
                litmus.perform([call], str(self._directory), self)
            if call.kind == "rename":
                self._names[call.to] = self._names.pop(call.path)
            elif call.kind == "unlink":
                del self._names[call.path]

    def _use(self, call: litmus.Call, file: int) -> None:
        if file not in self._open:
            self._open[file] = os.open(self._directory / call.path, os.O_RDWR)
        descriptor = self._open[file]
        if call.kind == "write":
            os.pwrite(descriptor, bytes([call.fill]) * call.length, call.offset)
        elif self._random.random() < 0.5:
            os.fsync(descriptor)
        else:
            os.close(self._open.pop(file))

    def close(self) -> None:
        """Close what is left."""
        while self._open:
            os.close(self._open.popitem()[1])

    def flush(self, descriptor: int) -> None:
        """There is no promise in it."""

    def sync(self) -> None:
        os.sync()

    def commit(self) -> None:
        """There is no journal."""


def _read(directory: Path) -> Found:
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if not path.name.startswith(_KEPT)
    }


def _lost(program: litmus.Program, found: Found) -> int:
    """How many writes to pages are missing at least, if the client lost power after the program; -1: that cannot be."""
    log = litmus.log_of(program, shared_journal=False)
    changes = Changes(log)
    limits = Limits(changes, MODELS["nfs"])
    legal = limits.after((1 << len(log.entries)) - 1)
    tree = changes.tree(legal.happened)
    if [path for path, _ in tree] != sorted(found):
        return -1
    lost = 0
    for path, inode in tree:
        own = changes.of_inode.get(inode, 0)
        left = ((lasts, changes.stored(inode, LastingChoice(lasts))) for lasts in legal.sets(own))
        fits = [(own & ~lasts).bit_count() for lasts, each in left if _content(each) == found[path]]
        if not fits:
            return -1
        lost += min(fits)
    return lost


def _content(stored: Stored) -> bytes | None:
    return litmus.content(stored) if stored.kind == "file" else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
