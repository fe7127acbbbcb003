"""A finding with something in every field."""

from __future__ import annotations

import os
from dataclasses import replace

from racecheck.explore.evidence import Before, Evidence, Repair, Source
from racecheck.explore.findings import Finding, Reference, Versions
from racecheck.model.nouns import (
    Choice,
    Content,
    Coverage,
    DiskEntry,
    Frame,
    Judgement,
    Mismatch,
    Verdict,
    Violation,
    World,
)
from tests.support.builders import (
    collective,
    died,
    loaded,
    metadata,
    op,
    outcome,
    piece,
    raised,
    returned,
    saved,
    stopped,
)

NOT_UTF8 = os.fsdecode(b"ckpt/\xff\xfe")
FRAMES = (Frame("train.py", 41, "save"),)


FULL = Finding(
    scenario=Reference("scenarios/test_overwrite.py::unguarded", "0" * 64),
    seed=7,
    run=12,
    strategy="random",
    invariants=("no-file-errors",),
    outcome=replace(
        outcome(
            returned({"loss": [0.5, None, True]}),
            raised("FileNotFoundError", "gone", errno="ENOENT", path=NOT_UTF8, stack=FRAMES, echo=True),
            died(signal="SIGKILL", output="bye"),
            stopped("lock", "waits"),
            trace=[
                op(
                    f"0 rename a -> {NOT_UTF8}",
                    inode=3,
                    flags=("RENAME_NOREPLACE",),
                    clock={"0": 1},
                    stack=FRAMES,
                ),
                replace(collective(), clock={"0": 2, "1": 1}, stacks={0: FRAMES, 10: (), 2: ()}),
                op("1.1 sleep", args={"nanoseconds": 10**9}, time=10**9, result=None),
            ],
            outside={"/x": "rank 0 open"},
            mismatch=Mismatch("0", 1, {0: "barrier()", 1: "send()"}, {0: FRAMES}),
            coverage=Coverage(3, 400, {"bind": 1}, {"mapping": 2}),
            seconds=0.25,
        ),
        world=World(ranks=4, timeout=1.5),
        schedule=(Choice("next", 2, 1, "1 stat ckpt"),),
        disk={"latest": DiskEntry("symlink", target=NOT_UTF8), NOT_UTF8: DiskEntry("file", 3, "ab")},
        contents={
            "ckpt/.metadata": metadata(piece("w", "ckpt/__0_0.distcp", "__0_0.distcp is missing"), problem="cut"),
            NOT_UTF8: Content("torch", tensors={"w": "digest"}),
        },
        weights=(saved(1, 2, "ckpt", event=3, w="digest"),),
        pending=(op("2 flock lock", result=None),),
        cut=((1, op("0.1 open beat", result=None)),),
        looked=(3, 4),
        lookers=("1",),
        names=("tmp.*",),
        fired=(0, 1),
        recovery=outcome(returned("resumed"), weights=(loaded(0, 2, w="digest"),)),
    ),
    judgement=Judgement(Verdict.FAIL, (Violation("no-file-errors", "gone", (1,), (0,)),), ("not under control",)),
    versions=Versions("0.1.0", "3.11.7", "2.13.0", "6.1.0"),
    evidence=Evidence(
        "2026-11-26T01:30:00+00:00", 13, "INCOMPLETE: not tried", Before(69, 8, 41),
        passing=outcome(returned(), trace=[op("1 mkdir a")]), failed=20, completions=20, judged={"ext4": 7},
        repairs=(Repair("as it is", {"ext4": 3}, is_whole=True), Repair("fsync files", {"ext4": 0}, is_whole=False)),
        sources={"train.py": Source("1" * 64, {9: "", 10: "    os.rmdir(ckpt)"})},
    ),
)  # fmt: skip
