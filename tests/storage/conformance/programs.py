"""What the storage models must allow and must not: small programs of two nodes, A and B, line by line.

::

    B stat f: ENOENT
    A create f x
    B stat f: 1 | ENOENT*
    sleep 31
    B stat f: 1

After the colon is what the call may give, the first being what is really there; the one with the star is what the
program continues with, else the first.  A model must offer exactly these.  `act` carries a line out with real
calls, in a controlled world or on a real mount; `tests.storage.conformance.playing` holds a model against them in
memory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from racecheck.model.errors import UsageError
from racecheck.storage import options

CALLS: Mapping[str, str] = {
    "stat": "the size of a file, dir, or an errno",
    "fstat": "the size, through the kept descriptor",
    "open": "to read; the descriptor is kept under the path",
    "read": "all that the kept descriptor gives from the start",
    "peek": "open to read, and close; the last use of what is kept",
    "openw": "make, to write; the descriptor is kept",
    "write": "a text, through the kept descriptor",
    "fsync": "the kept descriptor",
    "close": "it",
    "create": "make or truncate, write a text, close",
    "excl": "make, unless there is something",
    "mkdir": "", "rmdir": "", "unlink": "", "rename": "to another path",
    "list": "the names in a directory, with commas",
}  # fmt: skip
"""The calls of programs; they answer "ok", unless stated otherwise, or an errno."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line: ``node`` 0 is A; -1 sleeps, and ``path`` is for how many seconds.  ``taken`` is an index into ``may``."""

    text: str
    node: int
    call: str
    path: str
    more: str = ""
    may: tuple[str, ...] = ()
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a storage to check, by its name in a world."""

    name: str
    storage: str
    text: str

    def steps(self) -> tuple[Step, ...]:
        return tuple(_parse(line.strip()) for line in self.text.strip().splitlines())


def _parse(line: str) -> Step:
    what, _, answers = line.partition(":")
    words = what.split()
    if words[0] == "sleep":
        return Step(line, -1, "sleep", words[1])
    if words[0] not in {"A", "B"} or words[1] not in CALLS or len(words) < 3:
        raise UsageError(f"no line of a program: {line!r}")
    given = [each.strip() for each in answers.split("|")] if answers else []
    taken = next((index for index, each in enumerate(given) if each.endswith("*")), 0)
    may = tuple(each.rstrip("*").replace("nothing", "") for each in given)
    return Step(line, "AB".index(words[0]), words[1], words[2], " ".join(words[3:]), may, taken)


def act(step: Step, base: str, files: dict[str, int]) -> str:
    """Carry a line out with real calls below ``base``; ``files`` keeps the open files.  Returns its answer."""
    path = os.path.join(base, step.path)
    try:
        return _act(step, path, base, files)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def _act(step: Step, path: str, base: str, files: dict[str, int]) -> str:
    if step.call in _LOOKS:
        return _LOOKS[step.call](path, files.get(step.path, -1))
    if step.call in _OPENS:
        file = os.open(path, _OPENS[step.call], 0o644)
        if step.call in {"open", "openw"}:
            files[step.path] = file
        elif step.call == "peek":
            os.close(file)
        else:
            os.write(file, step.more.encode())
            os.close(file)
    elif step.call == "write":
        os.write(files[step.path], step.more.encode())
    elif step.call == "fsync":
        os.fsync(files[step.path])
    elif step.call == "close":
        os.close(files.pop(step.path))
    elif step.call == "rename":
        os.rename(path, os.path.join(base, step.more))
    else:
        {"mkdir": os.mkdir, "rmdir": os.rmdir, "unlink": os.unlink}[step.call](path)
    return "ok"


_LOOKS: Mapping[str, Callable[[str, int], str]] = {
    "stat": lambda path, _: _size(os.stat(path)),
    "fstat": lambda _, file: _size(os.fstat(file)),
    "list": lambda path, _: ",".join(sorted(os.listdir(path))),
    "read": lambda _, file: os.pread(file, 1 << 16, 0).decode(),
}
"""Calls that answer more than "ok", given a path and the descriptor that is kept for it."""
_OPENS: Mapping[str, int] = {
    "open": os.O_RDONLY,
    "peek": os.O_RDONLY,
    "openw": os.O_WRONLY | os.O_CREAT,
    "create": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "excl": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


def _size(status: os.stat_result) -> str:
    return "dir" if stat.S_ISDIR(status.st_mode) else str(status.st_size)


def programs(model: str) -> list[Program]:
    """Those of a model: ``shared``'s are for every one on which they say the same."""
    return [each for each in PROGRAMS if options.split(each.storage)[0] == model]


PROGRAMS = (
    Program("one disk", "shared", """
        A create f x: ok
        B stat f: 1
        B stat g: ENOENT
        A create g xy: ok
        B stat g: 2
        A rename g f: ok
        B stat f: 2
        B stat g: ENOENT
        A mkdir d: ok
        B mkdir d: EEXIST
        A openw d/f: ok
        A write d/f abc: ok
        B stat d/f: 3
        B list d: f
        B open d/f: ok
        B read d/f: abc
        A unlink d/f: ok
        B read d/f: abc
        B rmdir d: ok
    """),
    Program("what was missed goes on missing", "nfs", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1 | ENOENT*
        sleep 29
        B stat f: 1 | ENOENT*
        sleep 2
        B stat f: 1
    """),
    Program("listing finds it", "nfs", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1 | ENOENT*
        B list .: f
        B stat f: 1
    """),
    Program("what is missed is not opened", "nfs", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1 | ENOENT*
        B open f: ok | ENOENT*
        B openw f: ok
        B stat f: 1
    """),
    Program("nor with version 3", "nfs(vers=3)", """
        B stat f: ENOENT
        A create f x: ok
        B open f: ok | ENOENT*
        B stat f: 1 | ENOENT*
    """),
    Program("another lookup tells of the directory with version 3", "nfs(vers=3)", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1 | ENOENT*
        B stat g: ENOENT
        B stat f: 1
    """),
    Program("another lookup tells nothing with version 4", "nfs", """
        B stat f: ENOENT
        A create f x: ok
        B stat g: ENOENT
        B stat f: 1 | ENOENT*
    """),
    Program("a change of one's own tells of the directory", "nfs", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1 | ENOENT*
        B create g y: ok
        B stat f: 1
    """),
    Program("nothing is trusted", "nfs(lookupcache=pos)", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1
        A unlink f: ok
        B stat f: ENOENT | 1*
    """),
    Program("no name is trusted", "nfs(lookupcache=none)", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1
        A unlink f: ok
        B stat f: ENOENT
    """),
    Program("no cache", "nfs(actimeo=0)", """
        B stat f: ENOENT
        A create f x: ok
        B stat f: 1
        A create f xyz: ok
        B stat f: 3
        A unlink f: ok
        B stat f: ENOENT
    """),
    Program("noac writes at once", "nfs(noac)", """
        A openw f: ok
        B stat f: 0
        A write f abc: ok
        B stat f: 3
    """),
    Program("names are made on the server", "nfs", """
        B stat d: ENOENT
        B stat f: ENOENT
        A mkdir d: ok
        A create f x: ok
        B mkdir d: EEXIST
        B stat d: dir
        B excl f: EEXIST
        B stat f: 1
    """),
    Program("what is gone is still shown", "nfs", """
        A create f x: ok
        B stat f: 1
        A unlink f: ok
        B stat f: ENOENT | 1*
        B open f: ENOENT
        B stat f: ENOENT
    """),
    Program("sizes are old for three seconds", "nfs", """
        A create f x: ok
        B stat f: 1
        A create f xyz: ok
        B stat f: 3 | 1*
        sleep 2
        B stat f: 3 | 1*
        sleep 2
        B stat f: 3
    """),
    Program("what has not changed is trusted for twice as long", "nfs", """
        A create f x: ok
        B stat f: 1
        sleep 4
        B stat f: 1
        A create f xyz: ok
        sleep 5
        B stat f: 3 | 1*
        sleep 2
        B stat f: 3
    """),
    Program("open asks how long the file is", "nfs", """
        A create f x: ok
        B stat f: 1
        A create f xyz: ok
        B open f: ok
        B read f: xyz
        B stat f: 3
    """),
    Program("and is trusted from then on", "nfs", """
        A create f x: ok
        B stat f: 1
        sleep 2
        B open f: ok
        A create f xyz: ok
        sleep 2
        B stat f: 3 | 1*
        sleep 2
        B stat f: 3
    """),
    Program("what is not closed is not sent", "nfs", """
        A openw f: ok
        A write f abc: ok
        B stat f: 3 | 0*
        B open f: ok
        B read f: abc | nothing*
        A stat f: 3
        A close f: ok
        B open f: ok
        B read f: abc
        B stat f: 3
    """),
    Program("a close of who has only read does not send", "nfs", """
        A openw f: ok
        A write f abc: ok
        A peek f: ok
        B open f: ok
        B read f: abc | nothing*
    """),
    Program("asking for the size sends", "nfs", """
        A openw f: ok
        A write f abc: ok
        A stat f: 3
        B open f: ok
        B read f: abc
    """),
    Program("and through the descriptor", "nfs", """
        A openw f: ok
        A write f abc: ok
        A fstat f: 3
        B open f: ok
        B read f: abc
    """),
    Program("fsync sends", "nfs", """
        A openw f: ok
        A write f abc: ok
        A fsync f: ok
        B open f: ok
        B read f: abc
        B stat f: 3
    """),
    Program("who has seen it has seen that it was sent", "nfs", """
        A openw f: ok
        A write f abc: ok
        B open f: ok
        B read f: abc* | nothing
        B read f: abc
        B stat f: 3
    """),
    Program("pages are sent after a while", "nfs", """
        A openw f: ok
        A write f abc: ok
        sleep 36
        B open f: ok
        B read f: abc
    """),
    Program("who has it open reads on in the old one", "nfs", """
        A create f x: ok
        B open f: ok
        B read f: x
        A create f yz: ok
        B read f: yz | x*
        B open f: ok
        B read f: yz
    """),
    Program("a file that another node removes is gone", "nfs(vers=3)", """
        A create f x: ok
        B open f: ok
        A unlink f: ok
        B fstat f: 1 | ESTALE*
        B read f: x | ESTALE*
    """),
    Program("and one that it replaces", "nfs(vers=3)", """
        A create f x: ok
        B open f: ok
        A create g yz: ok
        A rename g f: ok
        B read f: x | ESTALE*
        B open f: ok
        B read f: yz
    """),
    Program("its bytes are still there with version 4", "nfs", """
        A create f x: ok
        B open f: ok
        A create g yz: ok
        A rename g f: ok
        B read f: x
        sleep 4
        B fstat f: 1 | ESTALE*
        B read f: x
        B open f: ok
        B read f: yz
    """),
    Program("listing asks", "nfs", """
        A mkdir d: ok
        A create d/f x: ok
        B list d: f
        A create d/g y: ok
        B list d: f,g
    """),
    Program("listing does not ask without close-to-open", "nfs(nocto)", """
        A mkdir d: ok
        A create d/f x: ok
        B list d: f
        sleep 1
        B list d: f
        A create d/g y: ok
        B list d: f,g | f*
        sleep 31
        B list d: f,g
    """),
    Program("a taken name is denied to who has missed it", "incoherent-fuse", """
        B stat d: ENOENT
        A mkdir d: ok
        B mkdir d: EEXIST
        B stat d: dir | ENOENT*
        sleep 9
        B stat d: dir | ENOENT*
        sleep 2
        B stat d: dir
    """),
    Program("a file too", "incoherent-fuse", """
        B stat f: ENOENT
        A create f x: ok
        B excl f: EEXIST
        B open f: ok | ENOENT*
        B stat f: 1* | ENOENT
        B stat f: 1
    """),
    Program("who has not looked before sees it", "incoherent-fuse", """
        A mkdir d: ok
        B mkdir d: EEXIST
        B stat d: dir
    """),
    Program("who has made it sees it", "incoherent-fuse", """
        A mkdir d: ok
        A mkdir d: EEXIST
        A stat d: dir
    """),
    Program("an upload is seen when it is closed", "object(gcsfuse)", """
        A openw f: ok
        A write f abc: ok
        A stat f: 3
        B stat f: ENOENT
        B list .: nothing
        A fsync f: ok
        B stat f: ENOENT
        A close f: ok
        B stat f: 3 | ENOENT*
        B list .: f
        sleep 6
        B stat f: 3
        B open f: ok
        B read f: abc
    """),
    Program("the first upload wins", "object(gcsfuse)", """
        A openw f: ok
        B openw f: ok
        A write f a: ok
        B write f bb: ok
        A close f: ok
        B close f: ESTALE
        B open f: ok
        B read f: a
    """),
    Program("who made it first has it, whoever asks to be alone", "object(gcsfuse)", """
        A openw f: ok
        B excl f x: ok
        A write f a: ok
        A close f: ESTALE
        A open f: ok
        A read f: x
    """),
    Program("attributes are old for a minute", "object(gcsfuse)", """
        A create f x: ok
        B stat f: 1
        A create f yz: ok
        B stat f: 2 | 1*
        sleep 59
        B stat f: 2 | 1*
        sleep 2
        B stat f: 2
    """),
    Program("files are renamed, and directories while they are empty", "object(gcsfuse)", """
        A create g x: ok
        A rename g f: ok
        B open f: ok
        B read f: x
        B stat g: ENOENT
        A mkdir d: ok
        B stat d: dir
        A create d/f x: ok
        B rename d e: EMFILE
        A unlink d/f: ok
        B rmdir d: ok
        A stat d: ENOENT
    """),
    Program("directories are renamed where the bucket has them", "object(gcsfuse, hns)", """
        A mkdir d: ok
        A create d/f x: ok
        A rename d e: ok
        B list e: f
    """),
    Program("what others have open is of the past", "object(gcsfuse)", """
        A create f x: ok
        B open f: ok
        A create f yz: ok
        B read f: x | ESTALE*
        B open f: ok
        B read f: yz
        A unlink f: ok
        B read f: yz | ESTALE*
    """),
    Program("an upload is seen when it is closed, at once", "object(mountpoint-s3)", """
        B stat f: ENOENT
        A openw f: ok
        A write f abc: ok
        A open f: EBUSY
        B stat f: ENOENT
        A close f: ok
        B stat f: 3
        A open f: ok
        A read f: abc
    """),
    Program("fsync completes it", "object(mountpoint-s3)", """
        A openw f: ok
        A write f abc: ok
        A fsync f: ok
        B stat f: 3
        A write f d: EIO
        A close f: ok
        B stat f: 3
    """),
    Program("the last upload wins", "object(mountpoint-s3)", """
        A openw f: ok
        B openw f: ok
        A write f a: ok
        B write f bb: ok
        A close f: ok
        B close f: ok
        A open f: ok
        A read f: bb
    """),
    Program("no renames, nothing is changed or removed", "object(mountpoint-s3)", """
        A create f x: ok
        A rename f g: ENOTSUP
        A create f y: EACCES
        B openw f: EACCES
        A unlink f: EPERM
        A mkdir d: ok
        A rename d e: EPERM
        A rmdir d: ok
    """),
    Program("unless it is allowed", "object(mountpoint-s3, allow-delete, allow-overwrite)", """
        A create f x: ok
        B stat f: 1
        A create f yz: ok
        B stat f: 2 | 1*
        sleep 2
        B stat f: 2
        B openw f: EACCES
        A unlink f: ok
        B stat f: ENOENT | 2*
        B open f: ENOENT
        sleep 2
        B stat f: ENOENT
    """),
    Program("a directory is the node's own until an object is in it", "object(mountpoint-s3, allow-delete)", """
        A mkdir d: ok
        A stat d: dir
        B stat d: ENOENT
        B mkdir d: ok
        B mkdir e: ok
        B create d/f x: ok
        A list d: f
        A rmdir d: ENOTEMPTY
        A unlink d/f: ok
        B list .: d,e
        B list d: nothing
    """),
    Program("and no longer than that", "object(mountpoint-s3, allow-delete)", """
        A mkdir d: ok
        A create d/f x: ok
        B list d: f
        A unlink d/f: ok
        B list .: nothing
    """),
)  # fmt: skip
"""The sources of what these programs say are in each model's module."""
