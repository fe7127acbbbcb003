"""The tools of the fidelity programs: raw system calls, and what a descriptor or a file tells of itself.

A program is a function of an empty directory, its working directory, that gives JSON data.  It runs twice, plainly and under
control, and must give the same.  Not collected by pytest.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import fcntl
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from racecheck.kernel import libc, syscalls

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, AT_EACCESS = (
    0x100,
    0x200,
    0x400,
    0x1000,
    0x200,
)

Body = Callable[[], Any]
Setup = Callable[[], Any]


@dataclass
class Program:
    """``before`` fills the program's directory, uncontrolled."""

    run: Body
    before: Setup = field(default=lambda: None)


PROGRAMS: dict[str, Program] = {}
"""By name, in the order in which they run."""


def program(before: Setup = lambda: None) -> Callable[[Body], Body]:
    """Make a function part of the battery."""

    def enter(function: Body) -> Body:
        PROGRAMS[function.__name__] = Program(function, before)
        return function

    return enter


def raw(name: str, *arguments: Any) -> Any:
    """A system call by name: its value, or the name of its errno.  Paths may be given as text."""
    number = syscalls.number(name, libc.MACHINE)
    assert number is not None
    passed = [os.fsencode(each) if isinstance(each, (str, Path)) else each for each in arguments]
    value, error = libc.syscall(number, *passed)
    return errno.errorcode[error] if error else value


def attempt(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What a function gives, or the errno or type of what it raises."""
    try:
        return function(*arguments, **more)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except Exception as error:
        return type(error).__name__


def descriptor(value: Any) -> Any:
    """What a freshly opened descriptor tells of itself; closes it.  An errno stays what it is."""
    if isinstance(value, str):
        return value
    told = [
        fcntl.fcntl(value, fcntl.F_GETFD),
        oct(fcntl.fcntl(value, fcntl.F_GETFL)),
        oct(os.fstat(value).st_mode),
        attempt(os.lseek, value, 0, os.SEEK_CUR),
        attempt(os.path.basename, os.readlink(f"/proc/self/fd/{value}")),
    ]
    os.close(value)
    return told


def opened(name: str, *arguments: Any) -> Any:
    """An opening call and what its descriptor tells."""
    return descriptor(raw(name, *arguments))


def status(found: os.stat_result) -> list[Any]:
    """What does not differ between two runs: no numbers of inodes, no times."""
    directory = stat.S_ISDIR(found.st_mode)
    return [oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, 0 if directory else found.st_size]


def tree(path: str = ".") -> dict[str, Any]:
    """Everything below a directory: status, and content or target."""
    found: dict[str, Any] = {}
    for name in sorted(os.listdir(os.fsencode(path))):
        entry = os.path.join(os.fsencode(path), name)
        state = os.lstat(entry)
        key, told = repr(name)[2:-1], status(state)
        if stat.S_ISLNK(state.st_mode):
            told.append(os.fsdecode(os.readlink(entry)))
        elif stat.S_ISREG(state.st_mode):
            with open(entry, "rb") as file:
                told.append(repr(file.read(200)))
        found[key] = told
        if stat.S_ISDIR(state.st_mode):
            found |= {f"{key}/{below}": told for below, told in tree(os.fsdecode(entry)).items()}
    return found


def write(path: str | Path, data: bytes | str = b"") -> None:
    """Make a file."""
    with open(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def room(size: int, fill: bytes = b"\xaa") -> ctypes.Array[ctypes.c_char]:
    """A buffer that shows what is written to it."""
    return ctypes.create_string_buffer(fill * size, size)


def prepare(directory: Path) -> None:
    """Make each program's directory and let its setup fill it."""
    for name, each in PROGRAMS.items():
        own = directory / name
        own.mkdir()
        os.chdir(own)
        each.before()
    os.chdir(directory)


def run(directory: Path) -> dict[str, Any]:
    """Run every program in its directory; its answer, or what it raised."""
    answers: dict[str, Any] = {}
    for name, each in PROGRAMS.items():
        os.chdir(directory / name)
        mask = os.umask(0o022)
        try:
            answers[name] = each.run()
        except Exception as error:
            line = error.__traceback__.tb_next.tb_lineno if error.__traceback__ and error.__traceback__.tb_next else 0
            answers[name] = f"line {line}: {type(error).__name__}: {error}".replace(str(directory), "<directory>")
        os.umask(mask)
    os.chdir(directory)
    return json.loads(json.dumps(answers).replace(str(directory), "<directory>"))  # type: ignore[no-any-return]


def packed(answers: dict[str, Any]) -> str:
    """Answers as text that is not too long for a rank's result."""
    return base64.b64encode(zlib.compress(json.dumps(answers).encode())).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The inverse of `packed`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))  # type: ignore[no-any-return]


def main(directory: Path) -> None:
    """The plain run: in the caller's process, without control."""
    prepare(directory)
    json.dump(run(directory), sys.stdout)
