"""One-line builders for hand-written traces, results and outcomes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from racecheck.model import (
    Collective,
    Died,
    DiskEntry,
    Event,
    Op,
    Outcome,
    Place,
    Raised,
    RankResult,
    Result,
    Returned,
    Stopped,
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


def outcome(*results: RankResult, trace: Iterable[Event] = (), disk: Iterable[str] = (), **fields: Any) -> Outcome:
    """What ranks that ended so left: ``disk`` are paths of empty files."""
    world = World(ranks=max(1, len(results)))
    entries = {path: DiskEntry("file") for path in disk}
    return Outcome(world, tuple(trace), (), results, entries, **fields)
