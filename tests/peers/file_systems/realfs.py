"""Try models on real file systems: run random programs, crash, and check that the model allows what is left.

ext4 and XFS are crashed by an ioctl (FS_IOC_SHUTDOWN without a flush of the log), btrfs by a copy of its image while it
lives.  All of it happens in a process of its own, on a loop device, with mounts that no other process sees.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from racecheck.crash.log import Stored
from tests.peers.file_systems import litmus
from tests.peers.file_systems.contains import contains
from tests.peers.file_systems.loopfs import FILE_SYSTEMS, LoopFs, own_mounts, why_not

__all__ = ["FILE_SYSTEMS", "Certificate", "certify"]

_MODEL = {"ext4": "ext4", "xfs": "xfs", "btrfs": "btrfs"}
_FRESH = 100
"""The file system is made again after this many crashes."""

Found = dict[str, bytes | None]
"""The files that were found, by path: the bytes of a file, or None for a directory."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of trying a model on a file system.

    ``programs`` were run, after ``lossy`` of them the crash lost something, and ``outside`` are those (as text) that
    left what the model does not allow.  ``reason`` says why fewer were run than asked for, "" if not.
    """

    fs: str
    model: str
    programs: int
    lossy: int
    outside: tuple[str, ...] = ()
    reason: str = ""


def certify(
    fs: str,
    programs: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    directory: str | None = None,
) -> Certificate:
    """Try a model on ``fs`` with random programs.

    ``progress`` gets how many have been run; images are in ``directory`` (default: where temporary files are).  Raises
    `ValueError` for a file system that there is no model of.
    """
    if fs not in _MODEL:
        raise ValueError(f"no model of {fs!r}; there are: {', '.join(FILE_SYSTEMS)}")
    reason = why_not(fs)
    if reason:
        return Certificate(fs, _MODEL[fs], 0, 0, reason=reason)
    place = tempfile.mkdtemp(prefix="racecheck-", dir=directory)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.peers.file_systems.realfs", fs, str(programs), str(seed), place],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        return _collected(fs, programs, child, progress)
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(place, ignore_errors=True)


def _collected(
    fs: str, programs: int, child: subprocess.Popen[str], progress: Callable[[int], None] | None
) -> Certificate:
    done, lossy, outside, reason = 0, 0, [], "the test process died"
    with child.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY)) as lines:
        for line in lines:
            result: dict[str, Any] = json.loads(line)
            if "reason" in result:
                reason = result["reason"]
                break
            done += 1
            lossy += result["lossy"]
            outside += [result["outside"]] if result["outside"] else []
            if progress is not None:
                progress(done)
    return Certificate(fs, _MODEL[fs], done, lossy, tuple(outside), "" if done == programs else reason)


def main(arguments: Sequence[str]) -> None:
    """Run in the child process; write the result of each program as a line of JSON."""
    fs, programs, seed, place = arguments
    try:
        own_mounts()
        _try(fs, int(programs), seed, Path(place))
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", b"") or b""
        _say(
            {
                "reason": " ".join(
                    f"cannot crash {fs} on this machine: {error} {detail.decode(errors='replace')}".split()
                )
            }
        )


def _try(fs: str, programs: int, seed: str, place: Path) -> None:
    for begin in range(0, programs, _FRESH):
        own = place / str(begin)
        own.mkdir()
        disk = LoopFs(fs, own)
        try:
            for number in range(begin, min(programs, begin + _FRESH)):
                _say(_tried(disk, number, litmus.program(Random(f"{seed}:{number}"))))
        finally:
            disk.close()
            shutil.rmtree(own, ignore_errors=True)


def _tried(disk: LoopFs, number: int, program: litmus.Program) -> dict[str, Any]:
    """Run a program, crash, and return what is left."""
    directory = disk.mount / f"program{number}"
    directory.mkdir()
    disk.sync()
    litmus.perform(program, str(directory), disk)
    whole = _read(directory)
    disk.crash()
    found = _read(directory)
    if allows(_MODEL[disk.fs], program, found):
        return {"lossy": found != whole, "outside": ""}
    return {"lossy": found != whole, "outside": _text(number, program, found)}


def allows(model: str, program: litmus.Program, found: Found) -> bool:
    """Return whether a crash after a program may have left this."""
    sizes = {path: -1 if each is None else len(each) for path, each in found.items()}

    def matches(path: str, stored: Stored) -> bool:
        wanted = found[path]
        if wanted is None or stored.kind != "file":
            return wanted is None and stored.kind == "directory"
        return litmus.content(stored) == wanted

    log = litmus.log_of(program, shared_journal=model in {"ext4", "xfs"})
    return contains(log, model, sizes, matches)


def _read(directory: Path) -> Found:
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }


def _text(number: int, program: litmus.Program, found: Found) -> str:
    left = [f"  {path}{'/' if each is None else f': {_spans(each)}'}" for path, each in found.items()]
    return "\n".join([f"program {number}:", *(f"  {call}" for call in program), "left:", *(left or ["  nothing"])])


def _spans(content: bytes) -> str:
    """Return a short form of a file's bytes: how often each value occurs."""
    spans: list[tuple[int, int]] = []
    for byte in content:
        if spans and spans[-1][1] == byte:
            spans[-1] = (spans[-1][0] + 1, byte)
        else:
            spans.append((1, byte))
    return ", ".join(f"{count} x {byte:#04x}" for count, byte in spans) or "empty"


def _say(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
