"""Workers make runs, and nothing of the result tells who has made them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from racecheck import faults
from racecheck.explore.findings import load
from racecheck.explore.replaying import replay, replay_constraints
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.runs import runs
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import OneRun
from racecheck.explore.runs.workers import Worker, Workers
from racecheck.explore.search import explore
from racecheck.model import config
from racecheck.model.compare import first_difference
from racecheck.model.errors import OutOfTime
from racecheck.model.nouns import Verdict
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.doctor import examination
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.outside import eventually

SCENARIOS = '''
import os, threading, time
import racecheck

@racecheck.scenario(ranks=3)
def sound(rank):
    for number in range(3):
        (rank.path / f"{rank.rank} {number}").mkdir()
        (rank.path / "shared").mkdir(exist_ok=True)

@racecheck.scenario(ranks=2)
def deep(rank):
    """It fails if the other rank stops at one place of many."""
    for number in range(6):
        (rank.path / f"{rank.rank} {number}").mkdir()
    if rank.rank == 1 and (rank.path / "0 2").exists() and not (rank.path / "0 4").exists():
        raise RuntimeError("torn")

@racecheck.scenario(ranks=2)
def races(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()

@racecheck.scenario(ranks=2)
def knows_where_it_is(rank):
    (rank.path / rank.path.parent.name).mkdir(exist_ok=True)
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()

@racecheck.scenario(ranks=2)
def appends(rank):
    log = os.open(rank.path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(3):
        os.write(log, b"%d" % rank.rank)
    os.close(log)

@racecheck.scenario(ranks=2)
def appends_torn(rank):
    appends(rank)
    if (rank.path / "log").read_bytes() == b"001101":
        raise RuntimeError("torn")

@racecheck.scenario(ranks=2)
def threads(rank):
    each = [threading.Thread(target=(rank.path / f"{rank.rank} {number}").mkdir) for number in range(2)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    (rank.path / "shared").mkdir(exist_ok=True)

@racecheck.scenario(ranks=2)
def writes(rank):
    for number in range(4):
        (rank.path / f"{rank.rank} {number}").write_text("x")
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("scenarios") / "many_runs.py"
    found.write_text(SCENARIOS)
    return found


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """As fresh as those of the workers: no other test has used its zygote."""
    with examination.start(config.read().runs) as found:
        yield found


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """They start at once."""
    monkeypatch.setattr(runs, "_PATIENCE", 0.0)
    with Workers(2) as found:
        yield found


def told(report: Report) -> dict[str, Any]:
    """All that a report says, but for what takes time."""
    found: dict[str, Any] = {each.name: getattr(report, each.name) for each in fields(report)}
    del found["seconds"]
    del found["cut"]
    for name in ("outcome", "endings", "violations", "explanation"):
        found[name] = str(found[name]) if name != "outcome" else (report.outcome and report.outcome.trace)
    found["endings"] = [(each.runs, each.number, len(each.violations)) for each in report.endings]
    found["violations"] = [(each.violation, each.finding and each.finding.name) for each in report.violations]
    return found


SEARCHES: dict[str, tuple[str, dict[str, Any], str]] = {
    "random": ("sound", {"strategy": "random", "schedules": 60}, ""),
    "portfolio": ("sound", {"strategy": "portfolio", "schedules": 70, "keep_going": True}, ""),
    "auto": ("sound", {"schedules": 60}, ""),
    "auto fails": ("deep", {"schedules": 100, "seed": "3"}, ""),
    "random fails": ("deep", {"strategy": "random", "schedules": 300}, ""),
    "a proof": ("appends", {"strategy": "dpor", "schedules": 400}, ""),
    "a proof, cut": ("appends", {"strategy": "dpor", "schedules": 30}, ""),
    "a proof fails": ("appends_torn", {"strategy": "dpor", "schedules": 400}, ""),
    "threads": ("threads", {"strategy": "dpor", "schedules": 25}, ""),
    "a sweep": ("writes", {"schedules": 60, "strategy": "random"}, "ENOSPC on write nth=each"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_has_the_same_result_with_workers(
    session: Session, workers: Workers, file: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, given, fault = SEARCHES[name]
    scenario = resolve.load(f"{file}::{target}")
    world = replace(scenario.world, faults=(faults.parse(fault),)) if fault else scenario.world
    search = Search(scenario, world, scenario.invariants, **given)
    alone = explore(session, replace(search, findings=tmp_path / "alone"))
    workers.open(config.read(), scenario.reference)
    assert eventually(lambda: workers.answers(0.0) == [] and len([*workers.free()]) == 2)
    made: list[bytes] = []
    give = workers.give

    def counted(worker: Worker, task: bytes) -> int:
        made.append(task)
        return give(worker, task)

    monkeypatch.setattr(workers, "give", counted)
    helped = explore(session, replace(search, findings=tmp_path / "helped"), workers=workers)
    assert made, "the workers have made some of the runs"
    assert not workers.lost
    assert told(helped) == told(alone)
    assert (helped.verdict is Verdict.FAIL) == ("fails" in name)
    if helped.finding is not None and alone.finding is not None:
        assert first_difference(load(helped.finding).outcome, load(alone.finding).outcome) == ""


@pytest.mark.parametrize("name", ["races", "knows_where_it_is"])
def test_replays_with_workers_count_runs_that_follow_the_schedule(
    session: Session, workers: Workers, file: Path, tmp_path: Path, name: str
) -> None:
    """A program can know in which directory it runs; the finding's own is that of this session."""
    scenario = resolve.load(f"{file}::{name}")
    found = explore(session, Search(scenario, scenario.world, scenario.invariants, findings=tmp_path, explain=20.0))
    assert found.finding is not None
    finding = load(found.finding)
    assert finding.constraints
    workers.open(config.read(), scenario.reference)
    assert eventually(lambda: workers.answers(0.0) == [] and len([*workers.free()]) == 2)
    for again in (replay, replay_constraints):
        done = again(session, scenario, finding, 12, workers=workers)
        assert (done.reproduced, done.diverged, done.verdict) == (12, 0, Verdict.FAIL)
        assert bool(done.elsewhere) == (name == "knows_where_it_is" and again is replay)


def test_what_a_worker_cannot_do_is_done_here(session: Session, workers: Workers, file: Path) -> None:
    scenario = resolve.load(f"{file}::sound")
    request = RunRequest.of(scenario, scenario.world, Replay(()), seed="0")
    made = Runs(lambda: nullcontext(session), scenario.reference, workers, lambda: session.until)
    for number in range(12):
        made.submit(number, OneRun(request))
    made.feed()

    def has_given() -> bool:
        made.feed()
        return bool(made._given)

    assert eventually(has_given)
    for pid in workers.pids:
        os.kill(pid, signal.SIGKILL)
    outcomes = [made.result(number)[0] for number in range(12)]
    assert {first_difference(outcomes[0], each) for each in outcomes} == {""}
    assert len(workers.lost) == 2
    assert len(workers) == 0


@dataclass(frozen=True)
class Echo:
    """A task whose result is as large as itself."""

    data: bytes

    def run(self, session: Session, tell: object = None) -> bytes:
        del session, tell
        return self.data


def test_large_tasks_and_large_results_do_not_wait_for_each_other(
    session: Session, workers: Workers, file: Path
) -> None:
    made = Runs(lambda: nullcontext(session), resolve.load(f"{file}::sound").reference, workers)
    made.begin()
    assert eventually(lambda: workers.answers(0.0) == [] and len([*workers.free()]) == 2)
    for number in range(8):
        made.submit(number, Echo(bytes([number]) * (8 << 20)))
    made.feed()
    assert [made.result(number)[:1] for number in range(8)] == [bytes([number]) for number in range(8)]
    assert made.elsewhere


def test_workers_that_cannot_start_are_left_out(session: Session, workers: Workers, tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text(SCENARIOS)
    scenario = resolve.load(f"{file}::sound")
    session.load(scenario.reference)
    file.unlink()
    made = Runs(lambda: nullcontext(session), scenario.reference, workers, lambda: session.until)
    made.submit(0, OneRun(RunRequest.of(scenario, scenario.world, Replay(()), seed="0")))

    def has_lost() -> bool:
        made.feed()
        return not made.has_workers

    assert eventually(has_lost)
    assert [each for each in workers.lost if "no such file" in each] == workers.lost
    assert made.result(0)[0].results


def test_a_wait_for_a_worker_ends_with_the_time_of_the_search(session: Session, workers: Workers, file: Path) -> None:
    scenario = resolve.load(f"{file}::sound")
    made = Runs(lambda: nullcontext(session), scenario.reference, workers, lambda: session.until)
    made.submit(5, OneRun(RunRequest.of(scenario, scenario.world, Replay(()), seed="0")))
    made._waiting.clear()
    made._given[0] = 5
    workers.start()
    workers._all[0].is_open = True
    workers._all[0].tickets.append(0)
    with session.limited(0.0), pytest.raises(OutOfTime):
        made.result(5)


def test_no_worker_outlives_the_process_that_has_started_it(file: Path) -> None:
    with Workers(2) as workers:
        assert not workers.pids
        workers.open(config.read(), resolve.load(f"{file}::sound").reference)
        pids = workers.pids
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
