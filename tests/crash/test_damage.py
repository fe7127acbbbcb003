"""Files that are damaged after a run: which bytes, which disks, and what real recoveries make of them."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_tensors

from racecheck.crash.damage.damages import _smaller
from racecheck.crash.damage.file_parts import parts
from racecheck.explore.findings import load
from racecheck.explore.replaying import replay
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.report.crash import counts_text, crash_text
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target

STATE = {"first": torch.ones(3), "largest": torch.ones(500), "between": torch.ones(4), "last": torch.ones(2)}


def archive(state: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file, **options)
    return file.getvalue()


def saved_array(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def saved_arrays(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def flipped(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def test_the_tensors_of_an_archive_are_hit() -> None:
    data = archive(STATE)
    found = parts("model.pt", data)
    names = [name for _, name in found]
    assert names == [
        "archive/data.pkl", "archive/data/0", "archive/data/1", "archive/data/3", "the archive's directory"
    ]  # fmt: skip
    hit = set()
    for offset, name in found:
        if "/data/" in name:
            loaded = torch.load(io.BytesIO(flipped(data, offset)))
            hit |= {key for key in STATE if not torch.equal(loaded[key], STATE[key])}
    assert hit == {"first", "largest", "last"}


def test_the_tensors_and_the_header_of_a_safetensors_file_are_hit() -> None:
    data = save_tensors(STATE)
    found = {name: offset for offset, name in parts("model.safetensors", data)}
    assert {"the header", "largest"} < found.keys(), "the order of the others is the library's"
    assert len(found) == 4
    (length,) = struct.unpack_from("<Q", data)
    assert 8 <= found.pop("the header") < 8 + length
    header = json.loads(data[8 : 8 + length])
    for name, offset in found.items():
        start, end = (8 + length + each for each in header[name]["data_offsets"])
        assert start <= offset < end


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("state.json", b'{"step": 37, "lr": 0.1}', ["the digit 3", "the digit 0", "the digit 1"]),
        ("latest", b"step-4", ["the digit 4"]),
        ("latest", b"no number", ["", "", "", ""]),
        ("old.bin", b"\x80\x04" * 100, ["", "", "", ""]),
        ("one", b"\0", [""]),
        ("a.npy", saved_array(np.ones(5)), ["the header", "the numbers"]),
        ("none.npy", saved_array(np.ones(0)), ["the header"]),
        ("a.npz", saved_arrays(w=np.ones(5), b=np.ones(2)), ["w.npy", "b.npy", "the archive's directory"]),
        ("empty", b"", []),
        ("cut.pt", b"PK\x03\x04 and no more", ["", "", "", ""]),
        ("cut.safetensors", b"\xff" * 30, ["", "", "", ""]),
        ("strange.safetensors", struct.pack("<Q", 2) + b"[]" + b"\0" * 9, ["", "", "", ""]),
    ],
)
def test_other_files_are_hit_in_their_numbers_or_at_four_places(path: str, data: bytes, expected: list[str]) -> None:
    found = parts(path, data)
    assert [name for _, name in found] == expected
    assert all(0 <= offset < len(data) for offset, _ in found)


@pytest.mark.parametrize(
    "data",
    [
        saved_array(np.ones(9)),
        saved_arrays(w=np.ones(9)),
        save_tensors(STATE),
        archive(STATE),
        archive(STATE, _use_new_zipfile_serialization=False),
    ],
)
def test_no_part_of_a_file_is_beyond_its_end(data: bytes) -> None:
    for size in (*range(1, 200), *range(200, len(data), 97), len(data)):
        for path in ("model.pt", "model.safetensors"):
            assert all(0 <= offset < size for offset, _ in parts(path, data[:size])), size


@pytest.mark.parametrize(
    ("path", "other", "number"),
    [
        ("step-10", "step-9", 9),
        ("run1/step-3", "run1/step-2", 2),
        ("step-3", "step-4", -1),
        ("run2/step-3", "run1/step-2", -1),
        ("last", "step-2", -1),
        ("", "", -1),
    ],
)
def test_the_directory_of_an_older_save(path: str, other: str, number: int) -> None:
    assert _smaller(path, other) == number


def search(session: Session, name: str, spec: str = "damage", findings: Path | None = None) -> Report:
    scenario = target("damaged", name)
    world = make_world(scenario.world, faults=[spec])
    return explore(
        session, Search(scenario, world, scenario.invariants, schedules=2, findings=findings, keep_going=True)
    )


def ways(report: Report) -> dict[str, int]:
    """Return the messages of damage, each with its number of disks."""
    assert report.crashes_total is not None
    return {each.violation.message.replace("node0/", ""): each.states for each in report.crashes_total.groups}


BIT = "with a flipped bit in step-2/rank0.pt, the resumed job loads what nobody saved, without an error"
OLD = "with the step-2/rank0.pt of an older save, the resumed job loads a mix of saves, without an error"


@pytest.mark.parametrize("name", ["trusting", "on_two_nodes"])
def test_a_job_that_loads_whatever_is_there_fails(session: Session, name: str) -> None:
    report = search(session, name)
    assert report.verdict is Verdict.FAIL
    assert ways(report) == {BIT: 4, OLD: 2}, "two tensors and two ranks; a file of each rank"
    assert report.crashes_total is not None
    judged = {name: each.judged for name, each in report.crashes_total.counts.items()}
    assert judged == {"flip": 8, "cut": 4, "zero": 2, "empty": 2, "missing": 2, "older": 2}


def test_a_job_of_one_rank_falls_back_as_a_whole(session: Session) -> None:
    """An old file is an older checkpoint then, which is right."""
    assert ways(search(session, "alone")) == {BIT: 2}


def test_a_page_of_zeros_becomes_a_weight(session: Session) -> None:
    said = "with a page of zeros in w.pt, the resumed job loads what nobody saved, without an error"
    assert ways(search(session, "of_pages", "damage kind=zero")) == {said: 1}


def test_a_job_that_compares_digests_passes(session: Session) -> None:
    report = search(session, "comparing")
    assert report.verdict is Verdict.PASS, report.reasons
    assert [str(each) for each in report.tried] == ["all 38 damaged files"], "14 bits, 8 cuts, 4 of each other kind"
    assert "one file is damaged, at a few of its bytes" in report.claim.conditions


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("alone", "damage path=*.txt"),
        ("trusting", "damage kind=older path=rank0.json"),
        ("of_pages", "damage kind=older"),
    ],
)
def test_damage_that_meets_no_file_leaves_the_verdict_open(session: Session, name: str, spec: str) -> None:
    report = search(session, name, spec)
    assert report.verdict is Verdict.UNKNOWN
    assert f"never reached: {spec}" in report.reasons


def test_a_recovery_without_loads_is_not_judged(session: Session) -> None:
    report = search(session, "loading_in_silence")
    assert report.verdict is Verdict.UNKNOWN
    assert any("no load and no training step was observed" in each for each in report.reasons), report.reasons


def test_kinds_and_paths_limit_the_damage(session: Session) -> None:
    report = search(session, "trusting", "damage kind=cut|empty path=step-2/rank1.pt")
    assert report.verdict is Verdict.PASS
    assert report.crashes_total is not None
    assert {name: each.judged for name, each in report.crashes_total.counts.items()} == {"cut": 2, "empty": 1}


def test_damage_and_crashes_in_one_world(session: Session) -> None:
    scenario = target("damaged", "alone")
    world = make_world(scenario.world, faults=["crash model=kill", "damage kind=flip"])
    report = explore(session, Search(scenario, world, scenario.invariants, schedules=2, explain=5.0))
    assert {each.what for each in report.tried} == {"crash state", "damaged file"}
    assert set(report.repaired) == set() or "flip" not in next(iter(report.repaired.values())).counts


def test_the_report_names_the_byte(session: Session) -> None:
    report = search(session, "alone", "damage kind=flip")
    (crashes,) = report.crashes
    text = crash_text(crashes.groups[0], crashes)
    assert "  damage      the lowest bit of byte " in text
    assert "(rank0/data/" in text
    assert "shows on    a bit flipped: 2 of 4 states" in text
    assert "a bit flipped: 4 damaged disks, 2 violate an invariant" in counts_text(crashes)


def test_a_finding_replays(session: Session, tmp_path: Path) -> None:
    report = search(session, "alone", "damage kind=flip", tmp_path)
    assert report.finding is not None
    finding = load(report.finding)
    assert finding.outcome.crash is not None
    assert finding.outcome.crash.damage
    replayed = replay(session, target("damaged", "alone"), finding, times=2)
    assert (replayed.reproduced, replayed.times) == (2, 2)


def test_damage_needs_a_recovery(session: Session) -> None:
    with pytest.raises(UsageError, match="damage needs a recovery that loads the files: give without_recovery one"):
        search(session, "without_recovery")
