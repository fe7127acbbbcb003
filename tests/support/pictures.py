"""Findings to draw, each of another kind, written by hand: what they show is known."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from racecheck.explore.evidence import Before, Evidence, Repair, Source
from racecheck.explore.findings import Finding, Reference, Versions
from racecheck.model.nouns import (
    Collective,
    Crash,
    DiskEntry,
    Event,
    Frame,
    Judgement,
    Mismatch,
    Op,
    Outcome,
    Place,
    Result,
    Verdict,
    Violation,
    World,
)
from tests.support.builders import acked, collective, died, loaded, op, outcome, raised, returned, saved, stopped

FILE = "/home/someone/project/train.py"
LINES = {
    8: "    ckpt = path / 'ckpt'",
    9: "    if ckpt.exists():",
    10: "        shutil.rmtree(ckpt)",
    11: "    ckpt.mkdir()",
}
VERSIONS = Versions("0.1.0", "3.11.7", "2.13.0", "6.1.0")


def at(line: int) -> dict[str, Any]:
    """The stack of an op that this line of the user's code made."""
    library = Frame("/usr/lib/python3.11/shutil.py", 752, "rmtree")
    return {"stack": (library, Frame(FILE, line, "save"), Frame(FILE, 40, "main"))}


def holding(made: Op, **fields: Any) -> Op:
    """The op with these fields of its first place."""
    return replace(made, places=(replace(made.places[0], **fields), *made.places[1:]))


def finding(run: Outcome, *violations: Violation, pair: tuple[int, ...] = (), **evidence: Any) -> Finding:
    known = Evidence("2026-11-26T01:30:00+00:00", 3, sources={FILE: Source("0" * 64, LINES)}, **evidence)
    return Finding(
        scenario=Reference("scenarios/train.py::save", "0" * 64), seed="0", run=2, strategy="auto",
        invariants=("no-file-errors",), outcome=run, judgement=Judgement(Verdict.FAIL, violations), versions=VERSIONS,
        pair=pair, evidence=known,
    )  # fmt: skip


def race() -> Finding:
    """Rank 1 removes what rank 0 is about to remove; the order in which rank 1 makes it again first passes."""
    looks = [op(f"{rank} stat ckpt", **at(9), inode=2) for rank in (0, 0, 0, 1, 1, 1)]
    gone, fails = op("1 rmdir ckpt", **at(10), inode=2), op("0 rmdir ckpt", errno="ENOENT", **at(10))
    made = op("1 mkdir ckpt", **at(11))
    passed = op("0 rmdir ckpt", **at(10), inode=3)
    missing = raised("FileNotFoundError", "[Errno 2] No such file or directory: 'ckpt'", errno="ENOENT", path="ckpt")
    failing = outcome(
        replace(missing, stack=at(10)["stack"]), returned(), trace=[*looks, *looks, gone, fails, made], disk={
            "ckpt": DiskEntry("directory")},
    )  # fmt: skip
    passing = outcome(returned(), returned(), trace=[*looks, *looks, gone, made, passed])
    broken = Violation("no-file-errors", "FileNotFoundError on rank 0: ckpt", (0,), (13,))
    return finding(
        failing, broken, pair=(13, 14), passing=passing, before=Before(40, 8, 30), claim="INCOMPLETE", failed=20,
        completions=20,
    )  # fmt: skip


def power_loss() -> Finding:
    """A rename that a crash took, after the save had returned."""
    trace = [
        op("0 open new.pt", **at(8), flags=("O_CREAT", "O_WRONLY")),
        op("0 write new.pt", inode=3, **at(9), result=Result(size=1500)),
        holding(op("0 rename new.pt -> model.pt", **at(10)), inode=3, size=1500),
        op("0 stat model.pt", inode=3, **at(11)),
    ]
    after = outcome(returned(), weights=(loaded(0, 1),))
    run = outcome(
        returned(), trace=trace, weights=(saved(0, 2, event=0), *acked(2, 0, event=3)), recovery=after,
        disk={"new.pt": DiskEntry("file", 1500)}, crash=Crash("ext4", (0, 1, 2), lost=(2,)),
    )  # fmt: skip
    repairs = (Repair("as it is", {"ext4": 30, "kill": 0}, True), Repair("fsync files", {"ext4": 0, "kill": 0}, True))
    broken = Violation("durable-after-ack", "step 2 was saved on all ranks, but then rank 0 loaded step 1", (), (2,))
    return finding(run, broken, repairs=repairs, judged={"ext4": 40, "kill": 4})


def stale() -> Finding:
    """A node that is still answered that a file is missing."""
    trace = [
        op("1 stat latest", errno="ENOENT", **at(8)),
        op("0 rename latest.tmp -> latest", **at(9)),
        collective(),
        op("1 stat latest", errno="ENOENT", **at(10), fault="stale: no entry (cached 0.0 s ago)"),
    ]
    waits = stopped("collective", "waits in barrier #1 of group 0 for rank 1, which has returned")
    run = outcome(waits, returned(), trace=trace, world=World(ranks=2, nodes=2, storage="nfs"), disk=["latest"])
    broken = Violation("no-deadlock", "deadlock: rank 0 waits in barrier #1 of group 0 for rank 1", (0,), (3,))
    return finding(run, broken, pair=(0, 1))


def deadlock() -> Finding:
    """Ranks that look at different times, and then wait in different collectives."""
    trace = [op("1 stat ckpt", errno="ENOENT", **at(9)), op("0 mkdir ckpt", **at(11))]
    calls = {0: "broadcast(root 0, 1 x int64)", 1: "barrier()"}
    run = outcome(
        stopped("echo"), stopped("collective"), trace=trace, disk={"ckpt": DiskEntry("directory")},
        mismatch=Mismatch("0", 0, calls, {0: at(40)["stack"], 1: at(40)["stack"]}),
    )  # fmt: skip
    return finding(run, Violation("no-deadlock", "deadlock: rank 1 waits in barrier #0", (1,)), pair=(0, 1))


def mixed() -> Finding:
    """A job that is killed between two writes of a save, and a recovery that loads shards of two steps."""
    trace: list[Event] = []
    for step in (1, 2):
        for rank in (0, 1):
            if (step, rank) != (2, 1):
                name = f"{rank} {{}} ckpt/{rank}.pt"
                trace.append(op(name.format("open"), flags=("O_CREAT", "O_TRUNC"), inode=(step - 1) * 3, **at(8)))
                trace.append(op(name.format("write"), inode=3, result=Result(size=100 * step), **at(9)))
        trace.append(collective(number=step)) if step == 1 else None
    killed = replace(op("1 kill ckpt/1.pt", inode=4, **at(8)), syscall="SIGKILL", flags=("before open",))
    trace.append(replace(killed, fault="kill-job"))
    weights = [saved(rank, step, event=event) for step, event in ((1, 0), (2, 5)) for rank in (0, 1)]
    reads = [op(f"0 read ckpt/{rank}.pt", inode=3, result=Result(size=8)) for rank in (0, 1)]
    after = outcome(returned(), trace=reads, weights=(loaded(0, 1, event=2),))
    run = outcome(
        died(signal="SIGKILL"), died(signal="SIGKILL"), trace=trace, weights=tuple(weights), recovery=after,
        disk={"ckpt": DiskEntry("directory"), "ckpt/0.pt": DiskEntry("file", 200), "ckpt/1.pt": DiskEntry("file", 100)},
    )  # fmt: skip
    return finding(run, Violation("consistent-weights", "rank 0 loaded a mix of step 1 (b) and step 2 (a)", (0,)))


def node_local() -> Finding:
    """Metadata on one node only."""
    world = World(ranks=2, nodes=2, storage="node-local")
    trace = [op(f"{rank} open ckpt/{name}", flags=("O_CREAT",), **at(8)) for rank, name in ((0, ".metadata"), (1, "1"))]
    fails = op("1 open ckpt/.metadata", errno="ENOENT", **at(10))
    missing = raised("FileNotFoundError", "ckpt/.metadata", errno="ENOENT", path="ckpt/.metadata")
    after = outcome(returned(), missing, trace=[fails], world=world)
    disk = ["node0/ckpt/.metadata", "node1/ckpt/1"]
    run = outcome(returned(), returned(), trace=trace, world=world, recovery=after, disk=disk)
    return finding(run, Violation("recovers", "the recovery failed: FileNotFoundError on rank 1", (1,)))


def injected() -> Finding:
    """A write that runs out of space."""
    trace = [
        op("0 mkdir ckpt", **at(8)),
        op("1 mkdir ckpt", errno="EEXIST", **at(8)),
        op("1 write ckpt/1", errno="ENOSPC", fault="ENOSPC", **at(10)),
    ]
    run = outcome(returned(), returned(), trace=trace, disk=["ckpt/1"])
    broken = Violation("error-honesty", "rank 1's write failed, but the save returned", (1,), (2,))
    return finding(run, broken, pair=(0, 1))


def without_trace() -> Finding:
    """A run in free mode: nothing is known but its end."""
    run = outcome(raised("FileNotFoundError", "gone"), returned(), disk={"ckpt": DiskEntry("directory")})
    return replace(finding(run, Violation("no-file-errors", "FileNotFoundError on rank 0", (0,))), strategy="free")


def earlier() -> Finding:
    """A finding of the version before: without evidence."""
    return replace(race(), evidence=None)


ALL = {
    "race": race, "power-loss": power_loss, "stale": stale, "deadlock": deadlock, "mixed": mixed,
    "node-local": node_local, "injected": injected, "without-trace": without_trace, "earlier": earlier,
}  # fmt: skip


def large(ranks: int, ops: int) -> Finding:
    """A run of many ranks, each with files of its own; at its end one fails because rank 0 was faster."""
    random, trace = Random(7), list[Event]()
    step = 0
    while len(trace) < ops - 2:
        step += 1
        folder = f"checkpoints/step-{step:05d}"
        trace.append(op(f"0 mkdir {folder}", **at(8)))
        trace.append(collective(number=step, ranks=tuple(range(ranks))))
        todo = dict.fromkeys(range(ranks), 0)
        while todo and len(trace) < ops - 2:
            rank = random.choice([*todo])
            trace.append(_part(rank, f"{folder}/__{rank}_0.distcp", todo[rank], step * ranks + rank))
            todo[rank] += 1
            if todo[rank] == 5:
                del todo[rank]
    folder = f"checkpoints/step-{step:05d}"
    trace.append(op(f"0 rename {folder} -> checkpoints/latest", **at(10)))
    trace.append(op(f"{ranks - 1} open {folder}/last", errno="ENOENT", **at(11)))
    missing = raised("FileNotFoundError", "gone", errno="ENOENT", path=f"{folder}/last")
    results = [*(returned() for _ in range(ranks - 1)), missing]
    timed = [replace(each, time=1000 * place) if isinstance(each, Op) else each for place, each in enumerate(trace)]
    run = outcome(*results, trace=timed, world=World(ranks=ranks, nodes=8))
    broken = Violation("no-file-errors", "FileNotFoundError on the last rank", (ranks - 1,), (len(trace) - 1,))
    return finding(run, broken)


def _part(rank: int, path: str, number: int, inode: int) -> Op:
    if number == 0:
        return op(f"{rank} stat {path}", errno="ENOENT", **at(9))
    if number == 1:
        return op(f"{rank} open {path}", flags=("O_CREAT", "O_WRONLY"), **at(10))
    call = {2: "write", 3: "fsync", 4: "close"}[number]
    return op(f"{rank} {call} {path}", inode=inode, result=Result(size=65536 if call == "write" else 0), **at(11))


HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>`${1}`'\"&<!--",
    "a\u202egnp.exe", "tab\there\nline\x00nul\x1b[31m", "\udcff\udcfe raw", "שלום/עולם", "x" * 4090 + "/last",
    "zero\u200bwidth\ufeff", "a" + "\u0301" * 40, "__proto__", "constructor",
)  # fmt: skip
"""Texts that must come to nothing but a picture of themselves."""


def hostile() -> Finding:
    """Hostile text in every field."""
    evil = HOSTILE[0]
    stack = (Frame(evil, 1, evil), Frame("\x00bad", 0, "f"))
    trace: list[Event] = [
        Op(number % 2, f"{number % 2}", evil, evil, (Place(name, 1, name, number, "file"),), (evil,), {evil: 1},
           Result(errno=evil if number == 2 else "", text=evil), stack=stack, fault=evil if number == 3 else "")
        for number, name in enumerate(HOSTILE)
    ]  # fmt: skip
    trace.append(Collective(evil, evil, 0, (0, 1), stacks={0: stack}))
    trace.append(op("0 mkdir a", stack=stack))
    disk = {name: DiskEntry("file", 3, evil, evil) for name in HOSTILE}
    wrong = raised("ValueError", evil, path=evil)
    run = outcome(wrong, stopped("lock", evil), trace=trace, disk=disk, weights=(saved(0, 1, evil, event=1),))
    world = World(ranks=2, storage=evil, backend=evil)
    made = finding(replace(run, world=world), Violation(evil, evil, (0,), (2,)), claim=evil, pair=(0, 1))
    sources = {evil: Source(evil, {1: evil})}
    assert made.evidence is not None
    return replace(
        made, scenario=Reference(evil, evil), seed=evil, strategy=evil, versions=Versions(evil, evil, evil, evil),
        evidence=replace(made.evidence, made=evil, sources=sources, repairs=(Repair(evil, {evil: 1}, False),) * 2),
    )  # fmt: skip
