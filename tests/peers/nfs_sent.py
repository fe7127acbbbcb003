"""What an NFS server has while a client works: is that what the model says the client can lose?  nfs_in_uml.sh runs it.

    python tests/peers/nfs_sent.py /mnt/a /mnt/export 300

The first directory is a mount of the second.  Random programs run in it, and what they have open stays open: so bytes
wait on the client.  What would last if the client lost power now is what the server's own directory holds, and has to
be among the states of the model "nfs".  Exit status 1: it was not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from racecheck.crash import litmus
from racecheck.crash.changes import Changes, Choice
from racecheck.crash.legal import Limits
from racecheck.crash.models import MODELS

_KEPT = ".nfs"
"""How names begin that the client gives to files that are removed while they are open."""

Found = dict[str, bytes | None]


def main(arguments: list[str]) -> int:
    mount, export, programs = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    lossy = outside = 0
    for number in range(programs):
        name = f"racecheck-{os.getpid()}-{number}"
        (mount / name).mkdir()
        program = litmus.program(Random(f"sent:{number}"))
        client = _Client(mount / name, Random(number))
        client.run(program)
        found, whole = _read(export / name), _read(mount / name)
        client.close()
        lossy += found != whole
        if not _allows(program, found):
            outside += 1
            print(f"OUTSIDE program {number}:", *map(str, program), f"left {sorted(found)}", sep="\n  ")
    print(f"{programs} programs, {lossy} with bytes that had not been sent, {outside} outside the model")
    return 1 if outside else 0


class _Client:
    """Makes the calls of a program, and closes files only where the program syncs them, if then."""

    def __init__(self, directory: Path, random: Random) -> None:
        self._directory, self._random = directory, random
        self._open: dict[int, int] = {}

    def run(self, program: litmus.Program) -> None:
        for call in program:
            if call.kind in {"write", "fsync"} and not (self._directory / call.path).is_dir():
                self._use(call)
            else:
                litmus.perform([call], str(self._directory), self)

    def _use(self, call: litmus.Call) -> None:
        path = self._directory / call.path
        inode = path.stat().st_ino
        descriptor = self._open.setdefault(inode, -1)
        if descriptor < 0:
            descriptor = self._open[inode] = os.open(path, os.O_RDWR)
        if call.kind == "write":
            os.pwrite(descriptor, bytes([call.fill]) * call.length, call.offset)
        elif self._random.random() < 0.5:
            os.fsync(descriptor)
        else:
            os.close(self._open.pop(inode))

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


def _allows(program: litmus.Program, found: Found) -> bool:
    """Whether the client could leave this if it lost power after the program."""
    log = litmus.log_of(program, shared_journal=False)
    changes = Changes(log)
    limits = Limits(changes, MODELS["nfs"])
    legal = limits.after((1 << len(log.entries)) - 1)
    tree = changes.tree(legal.happened)
    if [path for path, _ in tree] != sorted(found):
        return False
    for path, inode in tree:
        possible = legal.sets(changes.of_inode.get(inode, 0))
        left = (changes.stored(inode, Choice(lasts)) for lasts in possible)
        if not any((litmus.content(each) if each.kind == "file" else None) == found[path] for each in left):
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
