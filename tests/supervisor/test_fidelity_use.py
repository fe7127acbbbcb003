"""Libraries and commands do the same under control as without, and every op of theirs is seen."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.invariants import DEFAULT, judge
from racecheck.model.compare import effect, first_difference
from racecheck.model.hypercalls import AMONG_THREADS
from racecheck.model.nouns import Op, Outcome, Returned, Verdict
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.free import full_speed
from tests.programs import fidelity_raw, fidelity_use
from tests.support.targets import target


def run(session: Session, name: str, *, seed: int = 0) -> Outcome:
    scenario = target("fidelity_use", name)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    strategy = RandomWalk()
    strategy.begin(Random(seed))
    return runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))


def left(session: Session) -> Any:
    """What is in the watched directory: modes, sizes, the beginning of contents (behind it torch names its pointers)."""
    return fidelity_raw.tree(str(session.slot.watched))


def both(session: Session, name: str) -> Outcome:
    """The outcome under control, after it has been found to be that of an ordinary process (its disk in `left`)."""
    scenario = target("fidelity_use", name)
    session.request("import", target=scenario.reference)
    plain = full_speed.run(session, scenario.reference, scenario.world, seed="0")
    expected = left(session)
    controlled = run(session, name)
    assert all(isinstance(result, Returned) for result in plain.results), plain.results
    assert effect(controlled)[0] == effect(plain)[0]
    assert left(session) == expected
    return controlled


def ops(outcome: Outcome, *calls: str) -> list[Op]:
    return [op for op in outcome.ops if op.call in calls]


def files(outcome: Outcome, call: str) -> set[str]:
    """What the ops of one family that succeeded were about."""
    return {op.path for op in ops(outcome, call) if op.result is not None and not op.result.errno}


def test_shutil_on_a_large_tree(session: Session) -> None:
    outcome = both(session, "trees")
    calls = Counter(op.call for op in outcome.ops)
    whole = fidelity_use.DIRECTORIES * fidelity_use.FILES
    moved = fidelity_use.FILES + 1
    assert calls["unlink"] == whole - moved + fidelity_use.DIRECTORIES - 1, "the files, and a link in each directory"
    assert calls["rmdir"] == 2 * (fidelity_use.DIRECTORIES - 1) + 1
    assert calls["rename"] == 2
    assert len(files(outcome, "copy")) == 2 * fidelity_use.FILES + 2, (
        "two directories, a link that was followed, and f4"
    )
    assert not outcome.coverage.holes
    assert not outcome.outside


def test_temporary_files(session: Session) -> None:
    outcome = both(session, "temporaries")
    assert not outcome.coverage.holes
    assert {op.path.partition("/")[0] for op in ops(outcome, "mkdir")} > {"TMPDIR"}
    again = run(session, "temporaries")
    assert first_difference(outcome, again) == "", "the names come from the seed, and those of O_TMPFILE from nothing"


def test_torch_and_safetensors(session: Session) -> None:
    """Which write from C++ and from Rust."""
    outcome = both(session, "savers")
    written: Counter[str] = Counter()
    for op in ops(outcome, "write"):
        assert op.result is not None
        written[op.path] += op.result.size
    sizes = {path: entry.size for path, entry in outcome.disk.items()}
    for name in ("by path.pt", "by file.pt", "old.pt"):
        assert written[name] >= sizes[name] > 1_200_000, "every byte was seen, none passed by"
    assert any(op.path == "state.safetensors" for op in ops(outcome, "rename", "open"))
    assert not outcome.outside


def test_commands(session: Session) -> None:
    """cp, mv, rm, tar, redirections, FIFOs, pipelines, background jobs: their children belong to the rank."""
    outcome = both(session, "commands")
    (result,) = outcome.results
    assert isinstance(result, Returned)
    told = {command: [status, said, failed] for command, status, said, failed in result.value}
    assert [told[each][0] for each in fidelity_use.COMMANDS[:-3]] == [0] * (len(told) - 3)
    assert files(outcome, "mkdir") >= {"copied", "copied/d1", "archived", "out", "out/source/d2"}
    assert files(outcome, "unlink") >= {"archived/d1/file", "out/source/d2/file"}
    assert files(outcome, "rename") == {"moved"}
    assert files(outcome, "open") >= {"f", "g", "all.tar", "received", "count", "out/one"}
    assert files(outcome, "exec") == {"script"}
    assert {op.path for op in ops(outcome, "open") if op.result and op.result.errno == "ENOENT"} >= {"missing"}
    assert all(op.thread.startswith("0") for op in outcome.ops)
    assert set(outcome.coverage.holes) == {"descriptor 7 of rank 0 is a watched file that the filter does not see"}
    assert not outcome.outside


def test_a_pool_works_as_without_control(session: Session) -> None:
    outcome = both(session, "pool")
    assert outcome.results == (Returned(4),)
    assert not outcome.coverage.holes
    assert judge(outcome, DEFAULT).verdict is Verdict.PASS


def test_the_trace_has_every_call_on_the_watched_directory_and_nothing_else(session: Session) -> None:
    outcome = run(session, "traced")
    (result,) = outcome.results
    assert isinstance(result, Returned), result
    found = [
        [op.call, *(place.path for place in op.places), op.result.errno if op.result else "?"]
        for op in outcome.ops
        if op.call not in {"exit", *AMONG_THREADS}
    ]
    hidden = [["chdir", ".", ""], ["mkdir", "a", ""]]
    assert found[:2] == hidden
    named = [[each if not each.startswith("#") else "#" for each in op] for op in found[1:]]
    assert named == result.value
    assert outcome.coverage.passed > 10


@pytest.mark.parametrize("seed", range(6))
def test_a_program_in_the_watched_directory_is_seen_after_it_has_started(session: Session, seed: int) -> None:
    """Its memory is another one from then on, whatever a peer does while it starts."""
    outcome = run(session, "executes", seed=seed)
    assert outcome.results == (Returned(0), Returned(0))
    by_child = [op for op in outcome.ops if op.rank == 0 and op.thread != "0"]
    assert "exec" in {op.call for op in by_child}
    started = max(index for index, op in enumerate(by_child) if op.call == "exec")
    assert {(op.call, op.path) for op in by_child[started:]} >= {
        ("open", "script"),
        ("open", "made"),
        ("write", "made"),
    }
    assert outcome.disk["made"].size == len("from the script\n")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["upgrades", "lets_go"])
def test_a_lock_is_given_up_where_the_kernel_gives_it_up(session: Session, name: str, seed: int) -> None:
    """Else both ranks wait for each other: a deadlock of our making."""
    outcome = run(session, name, seed=seed)
    assert outcome.results == (Returned("done"), Returned("done"))
    assert judge(outcome, DEFAULT).verdict is Verdict.PASS or name == "lets_go", outcome.coverage


def test_the_large_tree_is_large() -> None:
    assert fidelity_use.DIRECTORIES * fidelity_use.FILES >= 2_000
    assert os.path.exists("/proc/self/fd")
