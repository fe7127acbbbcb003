"""Locks as one process sees them: flock, and record locks of processes and of open files."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Any

from tests.programs.fidelity_raw import attempt, program, raw, write

READ, WRITE, UNLOCK = 0, 1, 2
GET, SET = 36, 37


def flock_struct(kind: int, start: int, length: int, whence: int = 0, pid: int = 0) -> bytes:
    return struct.pack("hhqqi4x", kind, whence, start, length, pid)


def asked(descriptor: int, kind: int, start: int, length: int, command: int = GET, whence: int = 0) -> Any:
    """What stands in the way of a lock, by F_OFD_GETLK or F_GETLK."""
    found = attempt(fcntl.fcntl, descriptor, command, flock_struct(kind, start, length, whence))
    return found if isinstance(found, str) else struct.unpack("hhqqi4x", found)


def taken(descriptor: int, kind: int, start: int, length: int, command: int = SET, whence: int = 0) -> Any:
    """Take a lock, by F_OFD_SETLK or F_SETLK."""
    found = attempt(fcntl.fcntl, descriptor, command, flock_struct(kind, start, length, whence))
    return found if isinstance(found, str) else "ok"


def open_as(number: int) -> int:
    """The file, open under a number of one's own."""
    found = os.open("file", os.O_RDWR)
    os.dup2(found, number)
    os.close(found)
    return number


@program()
def whole_files() -> Any:
    """flock: shared, exclusive, converted, duplicated, and not had."""
    write("file")
    one, two = os.open("file", os.O_RDONLY), os.open("file", os.O_RDWR)
    copy = os.dup(one)
    flock = lambda number, how: raw("flock", number, how)  # noqa: E731
    answers = [
        flock(one, 1),
        flock(two, 1 | 4),
        flock(one, 2 | 4),
        flock(two, 2 | 4),
        flock(one, 1 | 4),
        flock(two, 8),
        flock(one, 2 | 4),
    ]
    answers += [
        flock(copy, 2 | 4),
        flock(two, 2 | 4),
        flock(copy, 8),
        flock(two, 2 | 4),
        flock(one, 1 | 4),
        flock(two, 8),
    ]
    answers += [flock(one, each) for each in (0, 3, 4, 10, 16, 12, 9)]
    answers += [flock(one, 2), os.close(copy), flock(two, 2 | 4), os.close(one), flock(two, 2 | 4)]
    three = open_as(900)
    copy = os.dup(three)
    answers += [flock(two, 8), flock(copy, 2), os.close(three), flock(two, 5), os.close(copy), flock(two, 5)]
    directory = os.open(".", os.O_RDONLY)
    answers += [flock(directory, 2 | 4), flock(directory, 8)]
    for each in (two, directory):
        os.close(each)
    return answers


@program()
def closed_by_other_means() -> Any:
    """A lock goes with its last descriptor, however that goes."""
    write("file")
    answers = []
    for way in ("nothing", "close", "dup2", "other", "close_range"):
        holder, other = open_as(950), os.open("file", os.O_RDWR)
        answers += [
            way,
            raw("flock", holder, 2),
            taken(holder, WRITE, 0, 10),
            raw("flock", other, 6),
            taken(other, READ, 0, 1),
        ]
        answers += [taken(holder, WRITE, 20, 10, fcntl.F_SETLK)]
        if way == "close":
            os.close(holder)
        elif way == "dup2":
            os.dup2(0, holder)
        elif way == "other":
            os.dup2(other, holder)
        elif way == "close_range":
            raw("close_range", holder, holder, 0)
        answers += [raw("flock", other, 6), taken(other, WRITE, 0, 1), taken(other, WRITE, 20, 1)]
        attempt(os.close, holder)
        os.close(other)
    return answers


@program()
def open_file_records() -> Any:
    """Locks of open files: they conflict within a process, split, merge and upgrade."""
    write("file", b"0123456789" * 10)
    one, two, reader = os.open("file", os.O_RDWR), os.open("file", os.O_RDWR), os.open("file", os.O_RDONLY)
    writer = os.open("file", os.O_WRONLY)
    answers: list[Any] = [
        taken(one, WRITE, 0, 10),
        taken(two, READ, 5, 10),
        taken(two, READ, 10, 10),
        asked(two, WRITE, 0, 100),
    ]
    answers += [
        asked(one, WRITE, 0, 100),
        asked(one, WRITE, 0, 5),
        taken(one, UNLOCK, 3, 4),
        asked(two, READ, 0, 0),
        asked(two, READ, 4, 0),
    ]
    answers += [
        taken(one, WRITE, 3, 4),
        asked(two, READ, 4, 0),
        taken(one, READ, 0, 10),
        taken(two, WRITE, 0, 1),
        taken(two, READ, 0, 30),
    ]
    answers += [
        asked(one, WRITE, 15, 1),
        taken(one, WRITE, 0, 1),
        taken(two, UNLOCK, 0, 0),
        taken(one, WRITE, 50, 0),
        asked(two, WRITE, 200, 5),
    ]
    answers += [
        asked(reader, READ, 1, 1),
        taken(reader, WRITE, 900, 1),
        taken(writer, READ, 900, 1),
        taken(one, UNLOCK, 0, 0),
    ]
    answers += [
        taken(writer, WRITE, 40, 1),
        asked(one, READ, 0, 0),
        taken(one, 7, 0, 1),
        taken(one, WRITE, -1, 5),
        taken(one, WRITE, 5, -5),
    ]
    answers += [
        taken(one, WRITE, 5, -6),
        taken(one, WRITE, (1 << 63) - 1, 5),
        taken(one, WRITE, (1 << 63) - 5, 5),
        taken(one, WRITE, 0, 1, whence=5),
    ]
    answers += [taken(one, UNLOCK, 0, 0), taken(writer, UNLOCK, 0, 0)]
    os.lseek(one, 30, os.SEEK_SET)
    answers += [
        taken(one, WRITE, -5, 10, whence=1),
        asked(two, READ, 0, 0),
        taken(one, WRITE, -10, 5, whence=2),
        asked(two, READ, 40, 0),
    ]
    answers += [
        asked(two, READ, 0, 10, whence=2),
        taken(one, WRITE, -200, 5, whence=2),
        asked(two, UNLOCK, 0, 10),
        asked(two, 9, 0, 1),
    ]
    answers += [
        attempt(fcntl.fcntl, one, SET, flock_struct(WRITE, 0, 1, 0, 5)),
        attempt(fcntl.fcntl, one, GET, flock_struct(WRITE, 0, 1, 0, 5)),
    ]
    path = os.open("file", os.O_PATH)
    answers += [taken(path, READ, 0, 1), attempt(fcntl.flock, path, 1)]
    copy = os.dup(one)
    answers += [
        taken(copy, UNLOCK, 0, 0),
        asked(two, WRITE, 0, 0),
        taken(one, WRITE, 0, 0),
        os.close(one),
        asked(two, READ, 5, 5),
    ]
    answers += [os.close(copy), asked(two, READ, 5, 5)]
    for each in (two, reader, writer, path):
        os.close(each)
    return answers


@program()
def process_records() -> Any:
    """Locks of a process: never in its own way, gone when it closes the file anywhere."""
    write("file", b"0123456789" * 10)
    one, two, reader = os.open("file", os.O_RDWR), os.open("file", os.O_RDWR), os.open("file", os.O_RDONLY)
    answers: list[Any] = [
        taken(one, WRITE, 0, 10, fcntl.F_SETLK),
        taken(two, WRITE, 5, 10, fcntl.F_SETLK),
        asked(two, WRITE, 0, 0, fcntl.F_GETLK),
    ]
    seen = asked(two, WRITE, 0, 0)
    answers += [
        [*seen[:4], seen[4] == os.getpid()],
        taken(two, READ, 3, 1),
        taken(one, READ, 0, 15, fcntl.F_SETLK),
        taken(two, READ, 3, 1),
    ]
    own = asked(one, WRITE, 0, 0, fcntl.F_GETLK)
    answers += [
        own,
        taken(two, UNLOCK, 0, 0),
        taken(reader, WRITE, 0, 1, fcntl.F_SETLK),
        taken(reader, READ, 50, 1, fcntl.F_SETLKW),
    ]
    answers += [
        attempt(fcntl.lockf, one, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 70),
        attempt(fcntl.lockf, one, fcntl.LOCK_UN),
    ]
    answers += [
        attempt(fcntl.lockf, reader, fcntl.LOCK_EX | fcntl.LOCK_NB),
        attempt(fcntl.lockf, one, fcntl.LOCK_EX),
    ]
    answers += [asked(two, READ, 0, 0)[:4], os.close(reader), asked(two, READ, 0, 0)]
    child = os.fork()
    if child == 0:
        os._exit(0 if taken(one, WRITE, 0, 5, fcntl.F_SETLK) == "ok" else 1)
    answers += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), taken(one, WRITE, 0, 5, fcntl.F_SETLK)]
    child = os.fork()
    if child == 0:
        seen = asked(one, READ, 0, 0, fcntl.F_GETLK)
        os._exit(10 * (taken(one, READ, 0, 5, fcntl.F_SETLK) == "EAGAIN") + (seen[4] == os.getppid()))
    answers += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    for each in (one, two):
        os.close(each)
    return answers
