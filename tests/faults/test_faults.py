"""What goes wrong on purpose: how it is written, which ops it meets, and what follows."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecheck import faults, storage
from racecheck.crash import models
from racecheck.crash.log import Log
from racecheck.explore.findings import load
from racecheck.explore.recovery.judge import Count, Crashes
from racecheck.explore.recovery.recoveries import Recoveries
from racecheck.explore.recovery.runs import CrashedRuns
from racecheck.explore.replaying import replay
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.faults.grammar import CALLS, MODELS
from racecheck.faults.plan import hits
from racecheck.frontends.cli.main import main
from racecheck.invariants import recovers
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Choice, Crash, Died, Fault, Op, Outcome, Point, Returned, Verdict, World
from racecheck.report.files import _contradiction
from racecheck.report.files import load as read
from racecheck.scheduling.strategies import RoundRobin, Sweep
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.programs import crashing
from tests.support.builders import op, opens
from tests.support.targets import TARGETS, target

# How faults are written.

numbers = st.integers(0, 9)
ERRNOS = ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "EACCES", "EMFILE", "EINTR", "ETIMEDOUT", "EROFS")
placed = st.builds(
    Fault,
    st.sampled_from((*ERRNOS, "kill", "kill-node", "kill-job")),
    st.lists(st.sampled_from(CALLS), unique=True, max_size=3).map(tuple),
    st.sampled_from(("**", "latest", "**/*.distcp", "ckpt/?"))
    | st.text(st.characters(exclude_characters="\0"), min_size=1),
    st.integers(-1, 9),
    st.integers(-1, 9),
    numbers,
)
repeated = st.builds(Fault, st.sampled_from(ERRNOS), times=st.integers(0, 9), survive=st.booleans())
kills = st.builds(Fault, st.sampled_from(("kill", "kill-node", "kill-job")), nth=numbers, after=st.booleans())
amounts = st.one_of(
    st.builds(Fault, st.just("slow"), amount=st.integers(0, 99).map(float)),
    st.builds(Fault, st.just("term"), amount=st.integers(0, 99).map(float)),
    st.builds(Fault, st.just("full"), amount=st.integers(0, 99).map(float)),
    st.builds(Fault, st.sampled_from(("short", "torn")), st.just(("write",)), amount=st.integers(0, 99).map(float)),
    st.builds(Fault, st.just("crash"), model=st.sampled_from(("", *MODELS))),
    st.builds(
        Fault,
        st.just("damage"),
        path=st.sampled_from(("**", "a b/*.pt", "rank=1", "it's")),
        model=st.sampled_from(("", *faults.DAMAGES, "flip|cut")),
    ),
)


@given(st.one_of(placed, repeated, kills, amounts))
def test_what_is_written_is_read_again(fault: Fault) -> None:
    assert faults.parse(faults.text(fault)) == fault


@pytest.mark.parametrize(
    ("glob", "path", "other"),
    [
        ("step=2.ckpt", "a/step=2.ckpt", "a/step"),
        ("path=rank=1.pt", "rank=1.pt", "rank"),
        ("'my file'", "my file", "my"),
        ("[*]", "*", "a"),
        ("a[?]/x", "a?/x", "ab/x"),
        ("[ab]{c}#$!", "[ab]{c}#$!", "a"),
    ],
)
def test_a_pattern_may_have_every_character_of_a_name(glob: str, path: str, other: str) -> None:
    world = World(faults=(faults.parse(f"EIO on mkdir {glob} times=all"),))
    hit = [bool(faults.Plan(world).due(op(f"0 mkdir {each}"))) for each in (path, other)]
    assert hit == [True, False]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "empty fault; grammar: WHAT [on CALL"),
        ("EFOO on write", "'EFOO' is neither an errno (such as ENOSPC) nor one of short"),
        ("EIO on wrote", "unknown call 'wrote'; known: any, access"),
        ("EIO on", "no calls after 'on'"),
        ("EIO write", "'write' does not fit the grammar: WHAT [on CALL"),
        ("EIO on write nth=0", "nth must be a number from 1 or each, not '0'"),
        ("EIO on write times=-1", "times must be a number from 1 or all, not '-1'"),
        ("EIO on write rank=one", "rank must be a number from 0, not 'one'"),
        ("EIO on write bytes=5", "bytes= applies only to short, torn, full"),
        ("slow on write seconds=nan", "seconds must be a number from 0, not 'nan'"),
        ("slow on write seconds=-1", "seconds must be a number from 0, not '-1'"),
        ("full bytes=1.5", "bytes must be a number from 0, not '1.5'"),
        ("short on rename", "short applies only to "),
        ("torn on any", "torn applies only to write"),
        ("full on write", "full applies to all writes"),
        ("kill on write times=2", "times= does not apply to a kill"),
        ("crash on write", "crash covers every moment of a run"),
        ("crash model=zfs", "unknown model 'zfs'; known: kill, ext4"),
        ("EIO on write model=ext4", "model= applies only to crash"),
        ("damage model=ext4", "model= applies only to crash"),
        ("crash kind=flip", "kind= applies only to damage"),
        ("damage kind=flip|melt", "unknown kind 'melt'; known: flip, cut, zero"),
        ("damage kind=", "unknown kind ''; known: flip"),
        ("damage on write", "damage comes after the run"),
        ("damage nth=each", "damage comes after the run"),
        ("damage rank=1", "damage comes after the run"),
        ("kill on write when=never", "when must be before or after, not 'never'"),
        ("EIO on write when=after", "when= applies only to kill, kill-node, kill-job"),
        ("EIO on write 'a", "no closing quotation"),
        ("EIO on write a path=b", "path= is empty, or a second path"),
        ("EIO on write path=", "path= is empty, or a second path"),
    ],
)
def test_an_invalid_baseline_is_reported_in_one_line(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        faults.parse(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["EIO on write rank=2", "kill on any node=1", "slow on read rank=7"])
def test_a_rank_or_node_that_is_not_there(spec: str) -> None:
    with pytest.raises(UsageError, match=r"no (rank|node) \d"):
        make_world(World(ranks=2), faults=[spec])


# Which ops they meet.


@pytest.mark.parametrize(
    ("spec", "hit", "missed"),
    [
        ("EIO on write", ["0 write a"], ["0 read a", "0 open a"]),
        ("EIO on write|read", ["0 write a", "1 read b/c"], ["0 open a"]),
        ("EIO on any", ["0 write a", "1 rename a -> b"], ["0 sleep"]),
        ("kill on any", ["0 write a", "0 sleep"], []),
        ("EIO on write latest", ["0 write latest", "0 write ckpt/latest"], ["0 write latest/a", "0 write not_latest"]),
        ("EIO on write ckpt/*", ["0 write ckpt/a"], ["0 write ckpt/a/b", "0 write other/ckpt/a"]),
        ("EIO on write **/*.distcp", ["0 write a.distcp", "0 write a/b/__0_0.distcp"], ["0 write a.distcp.tmp"]),
        ("EIO on write ckpt/**", ["0 write ckpt/a", "0 write ckpt/a/b"], ["0 write ckpt"]),
        ("EIO on rename latest", ["0 rename tmp -> latest", "0 rename latest -> old"], ["0 rename a -> b"]),
        ("EIO on write rank=1", ["1 write a"], ["0 write a", "2 write a"]),
        ("EIO on write node=1", ["2 write a", "3 write a"], ["1 write a"]),
        ("EIO on write a.c", ["0 write a.c"], ["0 write abc"]),
        ("full bytes=1", [], ["0 write a"]),
        ("crash", [], ["0 write a"]),
    ],
)
def test_what_it_hits(spec: str, hit: list[str], missed: list[str]) -> None:
    fault, world = faults.parse(spec), World(ranks=4, nodes=2)
    for labels, expected in ((hit, True), (missed, False)):
        for each in map(op, labels):
            assert faults.hits(fault, each, world.node(each.rank)) is expected, each.label


def plan(*specs: str) -> faults.Plan:
    return faults.Plan(make_world(World(), faults=specs))


def fired(planned: faults.Plan, ops: list[Op], choose: bool = False) -> list[int]:
    """At which of the ops something happens."""
    found = []
    for index, each in enumerate(ops):
        for number, is_certain in planned.due(each):
            if is_certain or choose:
                planned.happens(number)
                found.append(index)
    return found


WRITES = [op(f"{rank} write a") for rank in (0, 1, 0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("EIO on write", [0]),
        ("EIO on write nth=3", [2]),
        ("EIO on write nth=2 times=2", [1, 2]),
        ("EIO on write nth=5 times=all", [4, 5]),
        ("EIO on write rank=1 nth=2", [3]),
        ("EIO on write nth=7", []),
        ("EIO on write nth=each", []),
    ],
)
def test_when_it_is_its_turn(spec: str, expected: list[int]) -> None:
    planned = plan(spec)
    assert fired(planned, WRITES) == expected
    assert planned.fired == (len(expected),)


def test_each_is_a_choice_at_every_op_until_it_has_happened() -> None:
    planned = plan("EIO on write nth=each")
    assert [planned.due(each) for each in WRITES[:2]] == [[(0, False)]] * 2
    planned.happens(0)
    assert planned.due(WRITES[2]) == []
    assert fired(plan("EIO on write nth=each times=3"), WRITES, choose=True) == [0, 1, 2]


def test_what_is_slow_is_asked_for_apart() -> None:
    planned = plan("slow on write", "EIO on write nth=2")
    assert planned.slow(WRITES[0]) == [(0, True)]
    assert planned.due(WRITES[0]) == []
    assert planned.due(WRITES[1]) == [(1, True)]


def test_the_room_that_is_left() -> None:
    planned = plan("full bytes=10")
    assert [planned.room(WRITES[0], each) for each in (4, 4, 4, 4)] == [4, 4, 2, 0]
    assert planned.fired == (2,)


def test_a_nodes_own_disk_is_full() -> None:
    planned = faults.Plan(make_world(World(ranks=2, nodes=2), faults=["full bytes=5 node=1"]))
    assert [planned.room(WRITES[rank], 9) for rank in (0, 1)] == [9, 5]


def test_room_that_is_given_back() -> None:
    planned = plan("full bytes=10")
    assert planned.room(WRITES[0], 10) == 10
    planned.free(WRITES[0], 4)
    assert planned.room(WRITES[0], 10) == 4


# What comes of them.


def search(session: Session, name: str, *specs: str, schedules: int = 30) -> Report:
    scenario = target("faulty", name)
    world = make_world(scenario.world, faults=specs)
    return explore(session, Search(scenario, world, scenario.invariants, schedules=schedules))


@pytest.mark.parametrize(
    ("naive", "right", "spec"),
    [
        ("in_place", "renamed", "ENOSPC on write times=all"),
        ("in_place", "renamed", "EIO on open|write|rename|close nth=each times=all"),
        pytest.param("in_place", "renamed", "torn on write bytes=5", marks=pytest.mark.slow),
        ("in_place", "renamed", "torn on write"),
        ("longer_in_place", "renamed", "full bytes=5"),
        ("unchecked", "renamed", "short on write"),
        pytest.param("unchecked", "renamed", "short on write bytes=3 times=all", marks=pytest.mark.slow),
        ("unchecked", "renamed", "EINTR on write"),
        ("impatient", "patient", "slow on rename published seconds=30"),
        ("in_place", "renamed", "kill on any nth=each"),
        ("early", "in_time", "kill-node on write node=1"),
        pytest.param("early", "in_time", "kill on any rank=1 nth=each", marks=pytest.mark.slow),
        pytest.param("in_place", "renamed", "kill-job on write", marks=pytest.mark.slow),
        ("early", "in_time", "kill-job on rename latest when=after"),
        pytest.param("in_place", "renamed", "kill on open when=after nth=each", marks=pytest.mark.slow),
        ("saves_late", "saves_at_once", "term on stat nth=2"),
        ("in_place", "renamed", "crash model=kill"),
        ("renamed", "writes_again", "crash model=ext4"),
        pytest.param("renamed", "writes_again", "crash model=btrfs", marks=pytest.mark.slow),
    ],
)
def test_naive_code_fails_and_correct_code_does_not(session: Session, naive: str, right: str, spec: str) -> None:
    found = search(session, naive, spec)
    assert found.verdict is Verdict.FAIL, found.reasons
    held = search(session, right, spec)
    assert held.verdict is Verdict.PASS, (held.reasons, held.violations)
    assert held.schedules > 1 or (held.outcome is not None and not held.outcome.schedule), "nothing is left to try"
    without = search(session, naive, schedules=1)
    assert without.verdict is Verdict.PASS, without.violations


@pytest.mark.parametrize("name", ["first_makes_a", "first_makes_b"])
@pytest.mark.parametrize(("model", "verdict"), [("ext4", Verdict.FAIL), ("kill", Verdict.PASS)])
def test_a_crash_is_judged_in_every_order_of_independent_ops(
    session: Session, name: str, model: str, verdict: Verdict
) -> None:
    """DPOR runs one order of the two ranks, and which of the two directories comes first in it does not matter."""
    scenario = target("crashing", name)
    world = make_world(scenario.world, faults=[f"crash model={model}"])
    found = explore(session, Search(scenario, world, (crashing.only_b_once_acked,), strategy="dpor", schedules=30))
    assert found.verdict is verdict, (found.claim, found.reasons)
    assert "over all orders of independent ops" in str(found.claim)


def test_an_fsync_that_succeeds_after_one_that_failed_promises_nothing(session: Session) -> None:
    """The pages are marked clean although they never came to the disk."""
    failing = ("EIO on fsync new", "crash model=ext4")
    assert search(session, "syncs_again", "crash model=ext4").verdict is Verdict.PASS
    assert search(session, "syncs_again", *failing).verdict is Verdict.FAIL
    assert search(session, "writes_again", *failing).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("naive", "right", "spec"),
    [
        ("in_place", "renamed", "kill on write"),
        ("in_place", "renamed", "EIO on write nth=each times=all"),
        ("longer_in_place", "renamed", "full bytes=5"),
        ("unchecked", "renamed", "short on write bytes=3"),
        pytest.param("impatient", "patient", "slow on rename published seconds=7", marks=pytest.mark.slow),
        ("saves_late", "saves_at_once", "term on stat nth=2 seconds=1"),
    ],
)
def test_in_free_mode_too(session: Session, naive: str, right: str, spec: str) -> None:
    """There time is real, and so is the patience of who waits."""
    for name, verdict in ((naive, Verdict.FAIL), (right, Verdict.PASS)):
        scenario = target("faulty", name)
        world = make_world(scenario.world, faults=[spec])
        report = explore(session, Search(scenario, world, scenario.invariants, schedules=2, free=True))
        assert report.verdict is verdict, (name, report.reasons, report.violations)
        assert report.outcome is not None
        assert [each.fault for each in report.outcome.ops] != [] or verdict is Verdict.PASS


def ran(session: Session, name: str, spec: str) -> Outcome:
    outcome = search(session, name, spec, schedules=1).outcome
    assert outcome is not None
    return outcome


def faulted(outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(each.call, each.fault, each.result.errno if each.result else "?") for each in outcome.ops if each.fault]


def test_the_trace_says_what_happened(session: Session) -> None:
    assert faulted(ran(session, "renamed", "ENOSPC on write")) == [("write", "ENOSPC", "ENOSPC")]
    assert faulted(ran(session, "renamed", "torn on write bytes=5")) == [("write", "torn, 5 of 11 B", "EIO")]
    assert faulted(ran(session, "renamed", "short on write bytes=5")) == [("write", "short, 5 of 11 B", "")]
    full = ran(session, "renamed", "full bytes=5")
    assert [(each.result.size, each.fault) for each in full.ops if each.call == "write" and each.result] == [
        (5, "full, 5 of 11 B"), (0, "ENOSPC"), (0, "ENOSPC"),  # the second time when the file is closed
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "room", "value"),
    [
        ("removes_and_writes", 0, [0, 0]),
        ("overwrites", 0, 0),
        ("renames_over", 10, [errno.ENOSPC, 0]),
        ("removes_what_is_open", 50, errno.ENOSPC),
        ("copies", 50, [errno.ENOSPC, errno.ENOSPC, 50]),
        ("allocates", 50, [errno.ENOSPC, 0, 10]),
    ],
)
def test_a_full_disk_counts_what_files_take(session: Session, name: str, room: int, value: object) -> None:
    (result,) = ran(session, name, f"full bytes={room}").results
    assert isinstance(result, Returned)
    assert result.value == value


def test_the_order_of_a_removal_and_a_write_on_a_full_disk_matters(session: Session) -> None:
    report = search(session, "one_removes_and_one_writes", "full bytes=50")
    values = {
        str([each.value for each in ending.outcome.results if isinstance(each, Returned)]) for ending in report.endings
    }
    assert values == {"[0, 0]", f"[0, {errno.ENOSPC}]"}


def test_a_kill_is_an_op_and_nothing_of_the_rank_follows(session: Session) -> None:
    outcome = ran(session, "renamed", "kill on rename")
    last = outcome.ops[-1]
    assert (last.call, last.syscall, last.flags, last.fault) == ("kill", "SIGKILL", ("before rename",), "kill")
    assert {"latest", "new"} <= {*outcome.disk}
    assert outcome.fired == (1,)


def test_a_kill_after_an_op_leaves_what_that_did(session: Session) -> None:
    outcome = ran(session, "renamed", "kill on rename when=after")
    rename, kill = outcome.ops[-2:]
    assert (rename.call, rename.result and rename.result.errno, rename.fault) == ("rename", "", "")
    assert (kill.call, kill.flags) == ("kill", ("after rename",))
    assert "new" not in outcome.disk
    scenario = target("faulty", "renamed")
    world = make_world(scenario.world, faults=["kill on rename when=after"])
    with pytest.raises(UsageError, match="when=after needs controlled mode"):
        explore(session, Search(scenario, world, scenario.invariants, free=True))


def test_slow_ops_let_the_others_go_first_and_take_no_real_time(session: Session) -> None:
    outcome = ran(session, "patient", "slow on rename seconds=3600")
    slow = next(each for each in outcome.ops if each.fault)
    assert slow.fault == "slow, 3600 s"
    assert slow.time >= 3600 * 10**9
    assert outcome.seconds < 60


def test_a_sweep_tries_every_single_one(session: Session) -> None:
    report = search(session, "renamed", "EIO on open|write|rename nth=each", schedules=6)
    assert report.verdict is Verdict.PASS
    assert str(report.claim).startswith("every single fault and stale read of the default schedule was tried (3)")
    assert [*map(str, report.tried)] == ["all 3 faults"]
    assert report.schedules == 6
    short = search(session, "renamed", "EIO on open|write|rename nth=each", schedules=3)
    assert str(short.claim).startswith("2 of 3 single faults and stale reads of the default schedule were tried")
    assert [*map(str, short.tried)] == ["2 of 3 faults"]
    nothing = search(session, "renamed", "EIO on symlink nth=each", schedules=3)
    assert nothing.claim.remarks[0].startswith("the default schedule has no possible fault or stale read")


def test_a_sweep_says_how_many_faults_are_left_and_how_long_they_take(session: Session) -> None:
    notes: list[str] = []
    renamed = target("faulty", "renamed")
    world = make_world(renamed.world, faults=["EIO on open|write|rename nth=each"])
    asked = Search(renamed, world, renamed.invariants, schedules=6)
    explore(session, asked, lambda done, distinct, seconds, note: notes.append(note))
    assert notes[0].startswith("3 more single faults to try, 1 outcome")
    assert [re.sub(r"\d+ s", "N s", each).rpartition(", ")[0] for each in notes[1:3]] == [
        "2 more single faults to try, about N s", "1 more single fault to try, about N s",
    ]  # fmt: skip
    assert not any("to try" in each for each in notes[3:])


def test_a_sweep_that_has_not_met_a_place_again_has_not_tried_every_single_one() -> None:
    sweep = Sweep(RoundRobin())
    options = (op("0 write f"), op("0 write f", fault="EIO"))
    for places in (3, 3, 1, 1):
        assert sweep.begin(Random(0))
        schedule = [Choice("fault", 2, sweep.choose(Point("fault", options, ())), "") for _ in range(places)]
        sweep.end(Outcome(World(), (), tuple(schedule), ()))
    assert sweep.is_swept
    assert [*map(str, sweep.tried)] == ["2 of 3 faults"]
    assert str(sweep.claim()) == "2 of 3 single faults and stale reads of the default schedule were tried"


def test_a_run_without_enumerable_states_leaves_crash_states_untried(session: Session) -> None:
    scenario = target("faulty", "renamed")
    world, outcome = make_world(scenario.world, faults=["crash model=kill"]), Outcome(World(), (), (), ())
    runs = CrashedRuns(session, scenario, world, scenario.invariants, "0")
    untold = Crashes(outcome, {"kill": Count()}, reasons=["what a crash leaves cannot be told"])
    told = Crashes(outcome, {"kill": Count(5, 5)}, log=Log({}, ()))
    for judged, tried in (
        ([told], ["all 5 crash states"]),
        ([untold], ["0 crash states, not all"]),
        ([told, untold], ["5 crash states, not all"]),
    ):
        runs.judged = judged
        assert [*map(str, runs.tried)] == tried
        assert runs.is_cut == (untold in judged)


def test_what_was_never_reached_is_not_known(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    report = search(session, "renamed", "EIO on write nth=9", "EIO on write")
    assert report.verdict is Verdict.UNKNOWN
    assert [*report.reasons] == ["never reached: EIO on write nth=9"]
    where = f"{TARGETS / 'faulty'}.py::renamed"
    assert main(["run", where, "--fault", "EIO on symlink", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["reasons"] == ["never reached: EIO on symlink"]


def test_ops_of_one_rank_that_fail_leave_room_for_a_proof(session: Session) -> None:
    report = search(session, "in_time", "EIO on write rank=1")
    assert report.exhaustive
    assert not search(session, "in_time", "EIO on write nth=each", schedules=12).exhaustive


@pytest.mark.parametrize("spec", ["kill on write", "term on write", "slow on write", "EIO on write nth=each"])
def test_dpor_says_of_a_fault_that_it_does_not_cover_that_schedules_are_sampled(session: Session, spec: str) -> None:
    scenario = target("faulty", "in_time")
    asked = Search(
        scenario, make_world(scenario.world, faults=[spec]), scenario.invariants, strategy="dpor", schedules=2,
        keep_going=True,
    )  # fmt: skip
    report = explore(session, asked)
    assert report.schedules == 2
    assert "dpor does not cover nth=each, kill, term, slow" in str(report.claim)
    assert not report.exhaustive
    assert "dpor" not in str(explore(session, replace(asked, strategy="auto")).claim)


@pytest.mark.parametrize(
    "spec", ["kill on any nth=each", "EIO on write nth=each times=all", "torn on write times=all", "crash"]
)
def test_a_finding_runs_again(session: Session, tmp_path_factory: pytest.TempPathFactory, spec: str) -> None:
    scenario = target("faulty", "in_place")
    world = make_world(scenario.world, faults=[spec])
    asked = Search(
        scenario, world, scenario.invariants, schedules=30, findings=tmp_path_factory.mktemp("f"), explain=20
    )
    report = explore(session, asked)
    assert report.verdict is Verdict.FAIL
    path = report.violations[0].finding
    assert path is not None
    again = replay(session, scenario, load(path), 3)
    assert (again.reproduced, again.diverged) == (3, 0), again.divergence


def test_a_finding_of_a_torn_file_runs_again(session: Session, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A write of six pages lasts in several parts; the finding says in which."""
    scenario = target("crashing", "torn_pages")
    world = make_world(scenario.world, faults=["crash model=posix-min"])
    asked = Search(scenario, world, scenario.invariants, findings=tmp_path_factory.mktemp("f"), keep_going=True)
    report = explore(session, asked)
    found = [load(each.finding) for ending in report.endings for each in ending.violations if each.finding is not None]
    torn = [each for each in found if each.outcome.crash is not None and each.outcome.crash.torn]
    assert len(torn) > 1
    for each in torn:
        again = replay(session, scenario, each, 2)
        assert (again.reproduced, again.diverged) == (2, 0), again.divergence


# Crashes in a search.


def test_each_way_in_which_a_crash_hurts_has_a_finding_that_is_it(
    session: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario = target("faulty", "early")
    world = make_world(scenario.world, faults=["crash"])
    asked = Search(scenario, world, scenario.invariants, findings=tmp_path_factory.mktemp("f"), explain=20)
    report = explore(session, asked)
    ((crashes),) = report.crashes
    assert len(crashes.groups) > 1
    found = [each for ending in report.endings for each in ending.violations]
    assert len({each.finding for each in found}) == len(crashes.groups)
    for each in found:
        assert each.finding is not None
        assert load(each.finding).judgement.violations[0].message == each.violation.message
    assert report.violations[0].violation.message == crashes.groups[0].violation.message
    assert {name for name, each in report.repaired.items() if not each.groups} == {
        "barrier before publish, fsync files"
    }
    assert not report.exhaustive or not crashes.truncated


@pytest.mark.parametrize(
    ("name", "storage", "fault", "bad"),
    [
        ("still_open", "nfs", "", {"nfs"}),
        ("still_open", "nfs(sync)", "", set()),
        ("closed", "nfs", "", set()),
        ("closed", "nfs(server=async)", "", {"nfs-server"}),
        ("read_only", "nfs", "", {"nfs"}),
        ("synced", "nfs", "", set()),
        ("synced", "nfs", "EIO on fsync", {"nfs"}),
        ("locked", "nfs", "", set()),
        ("changed", "nfs", "", set()),
        ("looked_at", "nfs", "", set()),
        ("by_a_child", "nfs", "", set()),
        ("read_elsewhere", "nfs", "", set()),
    ],
)
def test_on_nfs_what_was_sent_lasts_unless_the_server_lies(
    session: Session, name: str, storage: str, fault: str, bad: set[str]
) -> None:
    scenario = target("crashing", name)
    world = make_world(scenario.world, storage=storage, faults=["crash", *([fault] if fault else [])])
    report = explore(session, Search(scenario, world, scenario.invariants, strategy="round-robin"))
    assert report.crashes_total is not None, report.reasons
    assert {model for model, count in report.crashes_total.counts.items() if count.bad} == bad
    assert report.verdict is (Verdict.FAIL if bad else Verdict.PASS), report.reasons
    assert {"kill", "nfs"} <= report.crashes_total.counts.keys()


@pytest.mark.parametrize(
    ("name", "storage", "bad"),
    [
        ("upload_begun", "object(gcsfuse)", 1),
        ("upload_synced", "object(gcsfuse)", 1),
        ("upload_closed", "object(gcsfuse)", 0),
        ("upload_begun", "object(mountpoint-s3,allow-overwrite)", 1),
        ("upload_synced", "object(mountpoint-s3,allow-overwrite)", 0),
        ("upload_closed", "object(mountpoint-s3,allow-overwrite)", 0),
    ],
)
def test_of_an_upload_that_is_not_complete_nothing_is_left(session: Session, name: str, storage: str, bad: int) -> None:
    scenario = target("crashing", name)
    world = make_world(scenario.world, storage=storage)
    report = explore(session, Search(scenario, world, scenario.invariants, strategy="round-robin"))
    assert report.crashes_total is not None, report.reasons
    assert {model: count.bad for model, count in report.crashes_total.counts.items()} == {"object": bad}
    assert report.verdict is (Verdict.FAIL if bad else Verdict.PASS), report.reasons


def test_the_models_of_the_grammar_are_those_that_there_are_and_each_is_of_a_storage() -> None:
    storages = [storage.make(World(storage=each)) for each in ("shared", "node-local", "nfs(server=async)", "object")]
    assert {*MODELS} == {*models.MODELS} == {name for each in storages for name in each.crashes}
    assert all({*each.usual_crashes} <= {*each.crashes} for each in storages)


def test_on_nfs_pages_come_apart_and_what_is_in_a_page_does_not(session: Session) -> None:
    """What has come to the first page, to the second and to the third; and before the file is made."""
    scenario = target("crashing", "in_three_pages")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, strategy="round-robin"))
    assert report.crashes_total is not None
    assert report.crashes_total.counts["nfs"].judged == 3 * 2 * 3 + 1


def test_on_nfs_two_nodes_that_write_one_file_are_not_distinguished(session: Session) -> None:
    scenario = target("crashing", "both_write")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, strategy="round-robin"))
    assert report.verdict is Verdict.UNKNOWN
    assert "another node has unsent writes to it" in report.reasons[0]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("patient", {}, r"give patient one \(@patient\.recover\)"),
        (
            "renamed",
            {"storage": "object", "model": "ext4"},
            "storage object has no crash model ext4; known: object$",
        ),
        ("renamed", {"model": "nfs"}, "storage shared has no crash model nfs; known: kill, ext4, "),
        (
            "renamed",
            {"storage": "nfs", "model": "ext4"},
            "storage nfs has no crash model ext4; known: kill, nfs$",
        ),
        ("renamed", {"free": True}, "drop --mode free or the fault"),
    ],
)
def test_a_crash_without_an_enumerable_state(session: Session, name: str, changes: dict[str, Any], words: str) -> None:
    scenario, free = target("faulty", name), changes.pop("free", False)
    crash = f"crash model={model}" if (model := changes.pop("model", "")) else "crash"
    asked = Search(scenario, make_world(scenario.world, faults=[crash], **changes), scenario.invariants, free=free)
    with pytest.raises(UsageError, match=words):
        explore(session, asked)


def test_interrupted_it_keeps_what_was_found(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = target("faulty", "in_place")
    asked = Search(scenario, make_world(scenario.world, faults=["crash"]), scenario.invariants)
    whole = explore(session, asked).crashes[0]
    recover, given = Recoveries.recover, iter(range(10**6))

    def interrupted(self: Recoveries, *arguments: Any, **named: Any) -> Iterator[Any]:
        for each in recover(self, *arguments, **named):
            if next(given) == whole.disks - 1:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(Recoveries, "recover", interrupted)
    report = explore(session, asked)
    assert report.interrupted
    assert report.verdict is Verdict.FAIL
    assert report.crashes[0].groups
    assert not [each for each in report.reasons if "not triggered" in each]


@pytest.mark.parametrize("what", ["ENOSPC", "EDQUOT"])
def test_only_an_open_that_creates_a_file_finds_no_room(what: str) -> None:
    fault = faults.parse(f"{what} on open")
    for label, how, inode, is_hit in (
        ("0 open f", "r", 5, False),
        ("0 open f", "w", 5, False),
        ("0 open f", "a", 5, False),
        ("0 open f", "w", 0, True),
        ("0 open f", "a", 0, True),
        ("0 open f", "r", 0, False),
    ):
        assert hits(fault, opens(label, how, inode=inode), 0) is is_hit
        assert hits(faults.parse("EIO on open"), opens(label, how, inode=inode), 0)


@pytest.mark.parametrize(
    ("name", "is_killed"),
    [
        ("ends_at_once", False), ("ends_beside_a_sleeper", False), ("ends_with_others", False),
        ("ends_before_its_peer_comes", False),
        ("sleeps", True), ("leaves_a_thread", True), ("waits", True),
    ],
)  # fmt: skip
def test_a_rank_that_is_asked_to_end_is_killed_if_it_has_not_ended_in_time(
    session: Session, name: str, is_killed: bool
) -> None:
    scenario = target("terminated", name)
    for seed in range(3):
        found = explore(session, Search(scenario, scenario.world, (), strategy="random", schedules=1, seed=str(seed)))
        assert found.outcome is not None
        first = found.outcome.results[0]
        assert isinstance(first, Died if is_killed else Returned)
        asked, *killed = [op for op in found.outcome.ops if op.call == "kill" and op.rank == 0]
        assert asked.syscall == "SIGTERM"
        assert [(each.syscall, round((each.time - asked.time) / 1e9)) for each in killed] == [
            ("SIGKILL", 60)
        ] * is_killed


# Crashes that leave out what came first in the run.


@given(st.sets(st.integers(0, 20), min_size=1), st.data())
def test_a_crash_has_two_numberings(happened: set[int], data: st.DataObject) -> None:
    events = sorted(happened)
    lost, torn = (tuple(sorted(data.draw(st.sets(st.sampled_from(events))))) for _ in range(2))
    crash = Crash("ext4", tuple(events), lost, torn)
    within = crash.within
    assert within.happened == tuple(range(len(events)))
    assert [events[each] for each in within.lost] == [*lost]
    assert within.of_run == crash
    assert within.within == within
    assert (within.whole == ()) == (events == [*range(len(events))])


def test_a_crash_before_one_rank_and_after_another_is_found_again(session: Session, tmp_path: Path) -> None:
    scenario = target("crashing", "unordered")
    world = make_world(scenario.world, faults=["crash model=kill"])
    asked = Search(scenario, world, (recovers,), strategy="dpor", schedules=1, findings=tmp_path)
    (found,) = {each.finding for each in explore(session, asked).violations}
    assert found is not None
    finding = read(found)
    crash = finding.outcome.crash
    assert crash is not None
    assert [each.rank for each in finding.outcome.ops] == [1] * len(finding.outcome.trace)
    assert crash.whole == (4, 5, 6, 7)
    assert "its crash has 4 events of the whole run for 3" in _contradiction(
        replace(finding.outcome, trace=finding.outcome.trace[1:])
    )
    done = replay(session, scenario, finding, 2)
    assert (done.reproduced, done.diverged) == (2, 0)
