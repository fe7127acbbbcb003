"""One-line builders for hand-written traces, results and outcomes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from racecheck.model.nouns import (
    Collective,
    Content,
    Died,
    DiskEntry,
    Event,
    Op,
    Outcome,
    Piece,
    Place,
    Raised,
    RankResult,
    Result,
    Returned,
    Stopped,
    Weights,
    World,
)


def op(label: str, *, errno: str = "", inode: int = 0, **fields: Any) -> Op:
    """The op with this label: ``op("0 mkdir ckpt", errno="EEXIST")``, ``op("1.2 rename a -> b")``.

    ``inode`` is what its last path led to just before it, 0 for nothing.
    """
    thread, call, paths = f"{label} ".split(" ", 2)
    places = [place(path) for path in paths.strip().split(" -> ") if path]
    if places and inode:
        places[-1] = replace(places[-1], inode=inode, kind="file")
    made = Op(int(thread.split(".")[0]), thread, call, call, tuple(places), result=Result(errno=errno))
    assert made.label == label, f"{made.label!r} is what {label!r} would be read as"
    return replace(made, **fields)


def use(label: str, file: int, *, inode: int, size: int = 0, text: str = "", **fields: Any) -> Op:
    """An op on an open file: ``use("0 write ckpt/f0", 7, inode=3, size=5)``.  ``file`` numbers the open file."""
    made = op(label, inode=inode)
    here = replace(made.places[-1], open_file=file)
    size = size or len(text)
    return replace(made, places=(*made.places[:-1], here), result=Result(size=size, text=text), **fields)


def opens(label: str, how: str, *, inode: int = 0) -> Op:
    """``opens("0 open ckpt/f0", "w")``, as Python's open would; ``inode`` is 0 where there is no such file yet."""
    flags = {
        "r": ("O_RDONLY",),
        "w": ("O_WRONLY", "O_CREAT", "O_TRUNC"),
        "a": ("O_WRONLY", "O_CREAT", "O_APPEND"),
        "r+": ("O_RDWR",),
    }[how]
    return op(label, inode=inode, flags=flags, syscall="openat")


def place(path: str) -> Place:
    """A path that leads to nothing."""
    return Place(path, directory=1, name=path.rpartition("/")[2], inode=0, kind="")


def collective(kind: str = "barrier", *, number: int = 0, ranks: tuple[int, ...] = (0, 1)) -> Collective:
    return Collective(kind, "0", number, ranks)


def returned(value: Any = None) -> Returned:
    return Returned(value)


def raised(kind: str, message: str = "", *, base: str = "Exception", **fields: Any) -> Raised:
    """An exception by its name: a built-in one with its real bases, another derived from ``base``.

    ``fields`` are errno, path, stack and echo.
    """
    known = getattr(builtins, kind, None)
    bases = known.__mro__[1:-1] if known else getattr(builtins, base).__mro__[:-1]
    return Raised(kind, message, tuple(each.__name__ for each in bases), **fields)


def died(*, status: int = 0, signal: str = "", output: str = "") -> Died:
    return Died(status, signal, output)


def stopped(kind: Any, why: str = "waits") -> Stopped:
    return Stopped(kind, why)


def saved(rank: int, step: int, at: str = "", *, event: int = 0, **tensors: str) -> Weights:
    """``saved(0, 1, "ckpt", w="digest")``."""
    return _said("saved", rank, step, at, event, tensors)


def loaded(rank: int, step: int = -1, at: str = "", *, event: int = 0, **tensors: str) -> Weights:
    return _said("loaded", rank, step, at, event, tensors)


def acked(step: int, *ranks: int, at: str = "", event: int = 0) -> tuple[Weights, ...]:
    """The save of a step has returned on these ranks: ``acked(1, 0, 1)``."""
    return tuple(_said("acked", rank, step, at, event, {}) for rank in ranks)


def _said(
    kind: Literal["saved", "loaded", "acked"], rank: int, step: int, at: str, event: int, tensors: Mapping[str, str]
) -> Weights:
    return Weights(rank, kind, step, at, tensors, event)


def piece(name: str, file: str, problem: str = "") -> Piece:
    return Piece(name, file, 0, 8, (2,), (0,), (2,), "" if problem else "digest", problem)


def metadata(*pieces: Piece, problem: str = "") -> Content:
    return Content("dcp-metadata", problem, pieces)


def outcome(
    *results: RankResult,
    trace: Iterable[Event] = (),
    disk: Iterable[str] | Mapping[str, DiskEntry] = (),
    world: World | None = None,
    **fields: Any,
) -> Outcome:
    """What ranks that ended so left: ``disk`` are paths of empty files, or entries."""
    world = world or World(ranks=max(1, len(results)))
    entries = disk if isinstance(disk, Mapping) else {path: DiskEntry("file") for path in disk}
    return Outcome(world, tuple(trace), (), results, entries, **fields)
