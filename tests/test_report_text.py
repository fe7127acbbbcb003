"""Reports in text.  Golden files hold what a person sees; ``python tests/test_report_text.py`` writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from racecheck import model
from racecheck.model import (
    Collective, Coverage, Died, Event, Frame, Mismatch, Op, Outcome, Place, Raised, RankResult, Result, Returned,
    Stopped, Violation, World,
)  # fmt: skip
from racecheck.report import words
from racecheck.report.shorten import kept
from racecheck.report.text import coverage_text, render, summary

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path("/home/user/project")
LIBRARY = Frame("/usr/lib/python3.11/shutil.py", 678, "_rmtree_safe_fd")
TORCH = Frame("/venv/lib/python3.11/site-packages/torch/serialization.py", 500, "save")


def user(line: int, function: str = "prepare_directory") -> tuple[Frame, ...]:
    return LIBRARY, TORCH, Frame(str(ROOT / "train.py"), line, function), Frame(str(ROOT / "train.py"), 99, "main")


def op(rank: int, call: str, *paths: str, line: int = 0, kind: str = "", inode: int = 0, **fields: Any) -> Op:
    places = tuple(Place(path, 0, os.path.basename(path), inode, kind) for path in paths)  # type: ignore[arg-type]
    result = Result(errno=fields.pop("errno", ""), size=fields.pop("size", 0), known=fields.pop("known", True))
    fields = {"thread": str(rank), "syscall": call, "stack": user(line) if line else None, **fields}
    return Op(rank, call=call, places=places, result=result, **fields)


def collective(kind: str, number: int, *ranks: int, root: int = -1, group: str = "0", line: int = 0) -> Collective:
    stacks = {rank: user(line, "save") for rank in ranks} if line else {}
    return Collective(kind, group, number, ranks, root, stacks=stacks)


def outcome(*trace: Event, ranks: int = 2, results: tuple[RankResult, ...] = (), **fields: Any) -> Outcome:
    return Outcome(World(ranks=ranks), trace, (), results, **fields)


def violation(*events: int) -> Violation:
    return Violation("no-file-errors", "FileNotFoundError", events=events)


# What a person sees.


def overwrite(first: int = 0, second: int = 1) -> tuple[Event, ...]:
    """Two ranks remove and make one directory, as openpi did."""
    return (
        op(first, "stat", "ckpt", kind="directory", inode=1, line=41),
        op(second, "stat", "ckpt", kind="directory", inode=1, line=41),
        op(first, "open", "ckpt", inode=1, line=42),
        op(first, "list", "ckpt", inode=1, size=2, line=42),
        op(first, "close", "ckpt", inode=1, known=False, line=42),
        op(second, "open", "ckpt", inode=1, line=42),
        op(first, "unlink", "ckpt/f0", inode=2, line=42),
        op(second, "unlink", "ckpt/f0", errno="ENOENT", line=42),
        op(first, "rmdir", "ckpt", inode=1, line=42),
        op(first, "stat", "ckpt", errno="ENOENT", line=43),
        op(first, "mkdir", "ckpt", line=43),
        collective("barrier", 0, 0, 1, line=44),
        op(first, "open", "ckpt/model.pt", flags=("O_CREAT", "O_TRUNC", "O_WRONLY"), line=45),
        op(first, "write", "ckpt/model.pt", inode=3, size=1_048_576, line=45),
        op(first, "open", "ckpt/latest", inode=4, flags=("O_CREAT", "O_TRUNC", "O_WRONLY"), line=46),
        op(first, "rename", "ckpt/tmp", "ckpt/latest", inode=5, line=46),
        op(second, "flock", "ckpt/.lock", inode=6, flags=("LOCK_UN",), line=47),
        op(second, "sleep", args={"nanoseconds": 100_000_000}, line=48),
    )


def long_run() -> tuple[Event, ...]:
    """200 ops of two ranks, in turns of twenty, with the race in the middle and a barrier near the end."""
    other = [op(i // 20 % 2, "write", f"rank{i // 20 % 2}/shard{i}", inode=i + 10, size=i, line=7) for i in range(200)]
    trace: list[Event] = list(other)
    trace[3] = op(0, "mkdir", "ckpt", line=2)
    trace[90] = op(0, "unlink", "ckpt/f0", inode=500, line=42)
    trace[125] = op(0, "stat", "ckpt/f0/", errno="ENOTDIR", line=3)
    trace[111] = op(1, "unlink", "ckpt/f0", errno="ENOENT", line=42)
    trace[180] = collective("all_gather", 0, 0, 1, line=50)
    return tuple(trace)


def eight() -> Outcome:
    world = collective("broadcast", 0, *range(8), root=3, line=40)
    half = collective("barrier", 0, 1, 3, 5, 7, group="1")
    message = collective("send/recv", 0, 6, 2, line=60)
    return outcome(world, half, message, *overwrite(2, 5)[:11], ranks=8)


def foreign() -> tuple[Event, ...]:
    names = ["épée/数据.pt", "e\u0301le\u0300ve", "bad\udcff\udc80name", "line\nbreak\x1b[31m", "emoji-🚀\ufe0f", "\u202eabc"]
    return tuple(op(index % 2, "unlink", name, inode=9, line=index) for index, name in enumerate(names, start=1))


def ended() -> Outcome:
    """A rank of each kind; rank 5 waits for those that have gone."""
    message = "[Errno 2] No such file or directory: '/run/ckpt/f0'\nNote: more below"
    return outcome(
        ranks=7,
        results=(
            Returned(),
            Returned({"step": 2, "digest": "3f2a9c"}),
            Raised("FileNotFoundError", message, stack=user(42)),
            Raised("RuntimeError", "Connection closed by peer", stack=user(44), echo=True),
            Died(signal="SIGSEGV", output="Loading.\n\nFatal Python error: Segmentation fault\n"),
            Died(status=3),
            Stopped("echo", "waits in barrier #3 of group 0 for rank 2, which has failed", user(44)),
        ),
    )


def deadlock() -> Outcome:
    stack = (TORCH, *(Frame(str(ROOT / "train.py"), line, f"level{line}") for line in range(1, 10)))
    return outcome(
        op(0, "stat", "ckpt", errno="ENOENT", line=41),
        results=(
            Stopped("collective", "waits in barrier #3 of group 0 for rank 1", stack),
            Stopped("lock", "waits for the lock on ckpt/.lock", user(47)),
        ),
    )


def mismatch() -> Outcome:
    calls = {0: "barrier()", 1: "all_reduce(float32[4])", 2: "all_reduce(float32[4])", 3: "all_reduce(float32[4])"}
    stacks = {0: user(50, "save"), 1: user(60, "train"), 2: user(60, "train"), 3: user(61, "train")}
    results = tuple(Stopped("echo", "the run was stopped", stacks[rank]) for rank in range(4))
    return outcome(ranks=4, results=results, mismatch=Mismatch("0", 7, calls, stacks))


RENDERED: dict[str, Callable[[], str]] = {
    "two-ranks": lambda: render(outcome(*overwrite()), [violation(6, 7)], root=ROOT),
    "two-ranks-80": lambda: render(outcome(*overwrite()), [violation(6, 7)], width=80, root=ROOT),
    "eight-ranks": lambda: render(eight(), [violation(9, 10)], root=ROOT),
    "sixteen-ranks-80": lambda: render(
        outcome(collective("barrier", 0, *range(16)), *overwrite(4, 11), ranks=16), [violation(8)], width=80, root=ROOT
    ),
    "names": lambda: render(outcome(*foreign()), [violation(2)], width=100, root=ROOT),
    "shortened": lambda: render(outcome(*long_run()), [violation(111)], root=ROOT),
    "shortened-no-violation": lambda: render(outcome(*long_run()), [], root=ROOT),
    "summary": lambda: summary(ended(), root=ROOT),
    "summary-60": lambda: summary(ended(), width=60, root=ROOT),
    "deadlock": lambda: summary(deadlock(), root=ROOT),
    "mismatch": lambda: summary(mismatch(), root=ROOT),
}


@pytest.mark.parametrize("name", RENDERED)
def test_golden(name: str) -> None:
    assert RENDERED[name]() + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each, make in RENDERED.items():
        (GOLDEN / f"{each}.txt").write_text(make() + "\n", encoding="utf-8")
