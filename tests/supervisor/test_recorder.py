"""A run's record: whoever replays it gets the disk that the run left, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from racecheck.crash.build import build
from racecheck.crash.changes import Changes, LastingChoice
from racecheck.crash.cut_outcome import Cutting
from racecheck.crash.log import Log
from racecheck.crash.states import states
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Crash, DiskEntry, Outcome
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.one_run import Supervisor
from tests.support.targets import TARGETS, target

SCENARIOS = TARGETS.parents[1] / "scenarios"


@pytest.fixture(autouse=True)
def _nothing_stays(session: Session) -> Iterator[None]:
    """What was recorded: others look at what is left in the slot."""
    yield
    (session.slot.path / "blobs").unlink(missing_ok=True)


def recorded(session: Session, reference: str, name: str = "", limit: int = 1 << 30) -> tuple[Outcome, Recorder]:
    """A run in the default order, with its record."""
    from racecheck.targets import resolve

    scenario = target(reference, name) if name else resolve.load(reference)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    recorder = Recorder(session.slot.path / "blobs", limit)
    run = Supervisor(session, scenario.reference, scenario.world, lambda _: 0, seed="0", recorder=recorder)
    return run.run(), recorder


def replayed(outcome: Outcome, recorder: Recorder, log: Log) -> dict[str, DiskEntry]:
    """The disk that all entries of the log make, as an outcome has it."""
    changes = Changes(log)
    disks = dict(log.split(changes.disk(LastingChoice(changes.of_entries((1 << len(log.entries)) - 1)))))
    crash = Crash("kill", tuple(range(len(outcome.trace))))
    return dict(Cutting(outcome, recorder).cut(crash, disks).disk)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("recording", "everything"),
        ("recording", "per_node"),
        ("crashing", "overwriting"),
        ("crashing", "replacing"),
        ("crashing", "dcp_twice"),
        ("crashing", "trees_of_objects"),
        ("crashing", "no_copy_synced"),
    ],
)
def test_a_replayed_record_is_what_the_run_left(session: Session, file: str, name: str) -> None:
    outcome, recorder = recorded(session, file, name)
    assert not recorder.problem
    assert all(type(result).__name__ == "Returned" for result in outcome.results), outcome.results
    assert replayed(outcome, recorder, build(outcome, recorder)) == outcome.disk


def test_in_a_session_of_another_number_too(tmp_path: Path) -> None:
    """Its number is in DCP's metadata, which has the watched directory as a pickled path."""
    with Session(tmp_path), Session(tmp_path) as second:
        outcome, recorder = recorded(second, "crashing", "dcp_twice")
        assert replayed(outcome, recorder, build(outcome, recorder)) == outcome.disk
        recorder.close()


@pytest.mark.parametrize(
    "reference",
    [
        "test_transformers_rotation.py::main_process",
        "test_openpi_overwrite.py::guarded",
    ],
)
def test_savers_of_trainers_too(session: Session, reference: str) -> None:
    outcome, recorder = recorded(session, f"{SCENARIOS}/{reference}")
    assert replayed(outcome, recorder, build(outcome, recorder)) == outcome.disk


def test_the_start_is_what_setup_left(session: Session) -> None:
    outcome, recorder = recorded(session, "recording", "everything")
    log = build(outcome, recorder)
    start = Changes(Log(log.start, ())).disk(LastingChoice(0))
    assert [path for path, _ in start.paths] == [
        "gone", "link", "old", "old/again", "old/kept", "old/twice",
    ]  # fmt: skip
    assert start["old/again"] == start["old/twice"]
    assert start["link"].target == "old/kept"
    assert start["old/kept"].size == 400


def test_only_what_asks_for_it_is_durable(session: Session) -> None:
    outcome, recorder = recorded(session, "recording", "synchronous")
    log = build(outcome, recorder)
    kinds = [entry.kind for entry in log.entries]
    assert kinds == ["create", "write", "fsync", "write", "fsync", "write", "fsync", "fsync", "write", "fsync"]
    syncs = [entry for entry in log.entries if entry.kind == "fsync"]
    assert [(each.offset, each.length, each.datasync) for each in syncs] == [
        (0, 5, True), (0, 10, True), (0, 0, True), (0, 0, False), (5, 4, False),
    ]  # fmt: skip
    assert syncs[3].inode == log.start.root
    assert {each.inode for each in syncs if each is not syncs[3]} == {log.entries[0].inode}


def test_objects_come_and_go_with_their_directories_at_once(session: Session) -> None:
    log = build(*recorded(session, "crashing", "one_object_in_a_tree"))
    left = {tuple(path for path, _ in state.disk.paths) for state in states(log, "object").states}
    assert left == {(), ("a", "a/b", "a/b/object")}
    assert [entry.kind for entry in log.entries] == ["link", "mkdir", "mkdir", "rmdir", "rmdir", "unlink"]


def test_an_object_moves_in_one_step(session: Session) -> None:
    log = build(*recorded(session, "crashing", "one_object_moved"))
    assert {tuple(path for path, _ in state.disk.paths) for state in states(log, "object").states} == {
        (),
        ("a",),
        ("b",),
    }


def test_bytes_are_kept_once_and_zeros_not_at_all(session: Session) -> None:
    _, recorder = recorded(session, "recording", "everything")
    sizes = sorted(recorder.blobs.values())
    assert Path(recorder.spool).stat().st_size == recorder.size
    assert recorder.size < 3_300_000  # "large" has as many bytes, and as many zeros behind them
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    ("name", "why"),
    [("mapped", "through shared memory"), ("exchanging", "exchanges two names")],
)
def test_what_is_not_seen_is_said(session: Session, name: str, why: str) -> None:
    outcome, recorder = recorded(session, "recording", name)
    with pytest.raises(LookupError, match=why):
        build(outcome, recorder)


def test_a_record_has_a_limit_and_says_when_it_is_met(session: Session) -> None:
    outcome, recorder = recorded(session, "recording", "everything", limit=10_000)
    assert recorder.size <= 10_000
    with pytest.raises(LookupError, match="more than 10000 bytes"):
        build(outcome, recorder)


def test_recording_changes_nothing(session: Session) -> None:
    scenario = target("crashing", "dcp_twice")
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    outcome, _ = recorded(session, "crashing", "dcp_twice")
    plain = Supervisor(session, scenario.reference, scenario.world, lambda _: 0, seed="0").run()
    assert outcome.trace == plain.trace
    assert outcome.disk == plain.disk
