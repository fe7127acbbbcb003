"""Searches that try one fault after the other: in which order, and what they need not do twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck.explore import exploration as searches
from racecheck.explore.reports import Report
from racecheck.explore.requests import KnownRecoveries, Search
from racecheck.explore.runner import undisturbed
from racecheck.explore.search import explore
from racecheck.model.nouns import Choice, Frame, Outcome, Point, Verdict, World
from racecheck.scheduling.strategies import RoundRobin, Sweep
from racecheck.sessions import disk
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.builders import op

FILE = Path(__file__).parents[1] / "programs" / "gated.py"


def searched(session: Session, name: str, **more: Any) -> Report:
    scenario = resolve.load(f"{FILE}::{name}")
    asked = Search(scenario, scenario.world, scenario.invariants, strategy="round-robin", schedules=1, keep_going=True)
    return explore(session, replace(asked, **{"swept": 100, **more}))


def order(lines: Sequence[int], most: int | None = None) -> list[int]:
    """The places of points, one on each of these lines, in the order in which a sweep tries them."""
    sweep, tried = Sweep(RoundRobin(), most=most), []
    while not sweep.is_swept:
        assert sweep.begin(Random(0))
        schedule = []
        for line in lines:
            of = op("0 write f", stack=(Frame("a.py", line, "save"),))
            schedule.append(Choice("fault", 2, sweep.choose(Point("fault", (of, replace(of, fault="EIO")))), ""))
        sweep.end(Outcome(World(), (), tuple(schedule), ()))
        if sweep.tries is not None:
            tried.append(sweep.tries[0])
    return tried


def test_the_last_op_of_each_line_comes_first() -> None:
    assert order([1, 2, 3]) == [2, 1, 0]
    assert order([1, 2, 1, 2, 2]) == [4, 2, 3, 0, 1]
    assert order([1, 2, 1, 2, 2], most=2) == [4, 2]


def test_what_each_fault_did_is_kept(session: Session) -> None:
    report = searched(session, "InPlace[kill]")
    assert [(each.number, each.fault) for each in sorted(report.struck, key=lambda each: each.number)] == [
        (number, "kill-job") for number in range(4)
    ]
    found = {each.number: (each.op.label, each.loaded, each.fails, bool(each.broken)) for each in report.struck}
    assert found[0] == ("0 open checkpoint.json: kill-job", (), False, False)
    assert found[2] == ("0 open checkpoint.json: kill-job", (1,), False, False)
    assert found[3] == ("0 write checkpoint.json: kill-job", (), True, True)
    assert all(each.op.stack for each in report.struck), "each has its line of code"
    assert all(each.stack for ending in report.endings if ending.violations for each in ending.outcome.ops)


def test_a_recovery_of_the_same_disk_is_not_run_again(session: Session) -> None:
    known: KnownRecoveries = {}
    alone, together = searched(session, "Careful[kill]"), searched(session, "Careful[kill]", recoveries=known)
    assert together.struck == alone.struck
    assert {each.loaded for each in together.struck} == {(), (1,), (2,)}, "most disks differ"
    assert 3 <= len(known) < together.schedules
    before = len(known)
    assert searched(session, "Careful[kill]", recoveries=known).struck == alone.struck
    assert len(known) == before


def test_an_undisturbed_run_of_another_check_tells_whether_the_first_run_repeats(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = resolve.load(f"{FILE}::Careful[kill]")
    base, seconds = undisturbed(session, scenario, scenario.world, seed="0")
    assert seconds > 0
    runs: list[object] = []
    original = searches.run
    monkeypatch.setattr(searches, "run", lambda *given, **more: runs.append(given) or original(*given, **more))
    report = searched(session, "Careful[kill-rank]", base=base)
    assert report.verdict is Verdict.PASS
    assert len(runs) == report.schedules
    other = searched(session, "Careful[kill-rank]", base=replace(base, trace=base.trace[:-1]))
    assert other.verdict is Verdict.UNKNOWN, "it is compared"


def test_as_many_crash_states_are_judged_as_are_asked_for(session: Session) -> None:
    scenario = resolve.load(f"{FILE}::Careful[power-loss]")
    asked = Search(scenario, scenario.world, scenario.invariants, schedules=1)
    (few,), (all_,) = (explore(session, replace(asked, states=each)).tried for each in (3, None))
    assert (few.of, few.is_all, all_.is_all) == (all_.done, False, True)
    report = explore(session, replace(asked, states=3))
    assert any("states were not judged: 3 disks were asked for" in each for each in report.claim.against)
    assert report.verdict is Verdict.PASS


def test_disks_that_a_program_can_tell_apart_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    first = disk.state([tmp_path], ())
    assert disk.state([tmp_path], ()) == first
    seen = {first}
    file.write_bytes(b"y")
    seen.add(disk.state([tmp_path], ()))
    file.chmod(0o600)
    seen.add(disk.state([tmp_path], ()))
    (tmp_path / "link").hardlink_to(file)
    seen.add(disk.state([tmp_path], ()))
    (tmp_path / "link").unlink()
    (tmp_path / "link").write_bytes(b"y")
    (tmp_path / "link").chmod(0o600)
    seen.add(disk.state([tmp_path], ()))
    (tmp_path / "empty").mkdir()
    seen.add(disk.state([tmp_path], ()))
    assert len(seen) == 6
