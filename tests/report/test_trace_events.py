"""A finding as a trace, event by event against the Trace Event Format and what Perfetto asks for beyond it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from racecheck.explore.findings import Finding
from racecheck.report.trace_events import trace_json
from tests.support import pictures

FIELDS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "cat", "name", "ts", "dur", "pid", "tid", "args"},
    "s": {"ph", "cat", "name", "id", "ts", "pid", "tid"},
    "t": {"ph", "cat", "name", "id", "ts", "pid", "tid"},
    "f": {"ph", "cat", "name", "id", "ts", "pid", "tid", "bp"},
    "i": {"ph", "cat", "name", "ts", "pid", "tid", "s"},
}
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}
ALL = {**pictures.ALL, "hostile": pictures.hostile, "large": lambda: pictures.large(16, 1000)}


def trace(finding: Finding) -> list[dict[str, Any]]:
    data = json.loads(trace_json(finding))
    assert set(data) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert data["displayTimeUnit"] in {"ms", "ns"}
    return list(data["traceEvents"])


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in events if each["ph"] == kind]


@pytest.mark.parametrize("name", ALL)
def test_each_event_has_the_fields_of_its_phase(name: str) -> None:
    for event in trace(ALL[name]()):
        assert set(event) - {"args"} == FIELDS[event["ph"]] - {"args"}
        assert event["pid"] > 0
        assert event["tid"] > 0
        assert isinstance(event["name"], str)
        assert event.get("ts", 0) >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
        elif event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}
        elif event["ph"] == "f":
            assert event["bp"] == "e"
        elif event["ph"] == "i":
            assert event["s"] in {"t", "p", "g"}


@pytest.mark.parametrize("name", ALL)
def test_slices_of_a_thread_nest(name: str) -> None:
    threads = defaultdict(list)
    for event in of(trace(ALL[name]()), "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        around: list[tuple[int, int]] = []
        for begun, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while around and around[-1][1] <= begun:
                around.pop()
            assert not around or end <= around[-1][1]
            around.append((begun, end))


@pytest.mark.parametrize("name", ALL)
def test_flows_join_slices(name: str) -> None:
    events = trace(ALL[name]())
    slices = {(each["pid"], each["tid"], each["ts"]) for each in of(events, "X")}
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            assert (event["pid"], event["tid"], event["ts"]) in slices
            flows[event["cat"], event["id"]].append(event["ph"])
    for kinds in flows.values():
        assert kinds == ["s", *"t" * (len(kinds) - 2), "f"]


@pytest.mark.parametrize("name", ALL)
def test_threads_and_processes_have_names_of_their_own(name: str) -> None:
    events = trace(ALL[name]())
    named = {each["tid"] for each in of(events, "M") if each["name"] == "thread_name"}
    assert {each["tid"] for each in events} == named
    processes = {each["pid"]: each["args"]["name"] for each in of(events, "M") if each["name"] == "process_name"}
    assert len(set(processes.values())) == len(processes)
    owners = {(each["tid"], each["pid"]) for each in events}
    assert len(owners) == len(named), "a thread belongs to one process"


def test_a_race_is_there_op_by_op_with_its_arrow() -> None:
    made = pictures.race()
    events = trace(made)
    ops = sorted((each for each in of(events, "X") if each["cat"] == "op"), key=lambda each: each["ts"])
    assert [each["args"]["step"] for each in ops] == [*range(1, 16)]
    assert [each["name"] for each in ops[-3:]] == ["rmdir ckpt", "rmdir ckpt", "mkdir ckpt"]
    assert ops[-2]["args"] == {
        "step": 14, "path": "ckpt", "result": "ENOENT", "syscall": "rmdir", "role": "victim", "virtual_ns": 0,
        "stack": ["python3.11/shutil.py:752 rmtree", "project/train.py:10 save", "project/train.py:40 main"],
    }  # fmt: skip
    start, end = (next(each for each in events if each["ph"] == kind and each["cat"] == "decides") for kind in "sf")
    assert (start["ts"], end["ts"]) == (ops[-3]["ts"], ops[-2]["ts"])
    functions = [each["name"] for each in of(events, "X") if each["cat"] == "function"]
    assert functions == ["main", "save"] * 2


def test_a_collective_is_on_each_of_its_ranks() -> None:
    events = trace(pictures.stale())
    both = [each for each in of(events, "X") if each["cat"] == "collective"]
    assert [each["pid"] for each in both] == [1, 2]
    assert both[0]["ts"] == both[1]["ts"]


def test_a_recovery_comes_after_the_run_in_processes_of_its_own() -> None:
    events = trace(pictures.mixed())
    processes = {each["args"]["name"]: each["pid"] for each in of(events, "M") if each["name"] == "process_name"}
    assert [*processes] == ["rank 0", "rank 1", "recovery, rank 0"]
    after = processes["recovery, rank 0"]
    slices = of(events, "X")
    own = [each["ts"] for each in slices if each["pid"] == after]
    assert max(each["ts"] for each in slices if each["pid"] != after) < min(own)


def test_time_is_virtual_so_two_equal_runs_are_equal() -> None:
    made = pictures.race()
    slower = replace(made, outcome=replace(made.outcome, seconds=99.0))
    assert trace_json(made) == trace_json(slower)
    late = replace(made.outcome.trace[-1], time=5_000_000)
    slept = replace(made, outcome=replace(made.outcome, trace=(*made.outcome.trace[:-1], late)))
    assert max(each["ts"] for each in of(trace(slept), "X")) == 5000


def test_a_crash_and_what_ranks_declared_are_marked() -> None:
    marks = of(trace(pictures.power_loss()), "i")
    assert [each["name"] for each in marks] == ["saved step 2", "acked step 2", "crash: ext4", "loaded step 1"]
