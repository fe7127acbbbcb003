"""Invariants of observed saves and loads: each outcome with a violation has a twin without one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import pytest

from racecheck.explore.observed_saves import fitting
from racecheck.invariants import consistent_weights, durable_after_ack, judge, name_of, old_survives
from racecheck.invariants.series import count, reads_parts
from racecheck.model.nouns import Outcome, Verdict, Weights, World
from tests.support.builders import died, op, opens, outcome, raised, returned

ASKED = (consistent_weights, durable_after_ack, old_survives)


def _never(world: World, seed: str) -> Outcome:
    raise AssertionError("no second undisturbed run is needed")


def seen(
    kind: Literal["saved", "loaded", "acked"], rank: int, path: str, step: int = -1, *, event: int = 1, **tensors: str
) -> Weights:
    """``seen("saved", 0, "model_1.pt", 1, w="digest")``: the first save of this rank to a path of this series."""
    return Weights(rank, kind, step, path, tensors, event, re.sub(r"\d+", "#", path))


def ran(*weights: Weights, loads: tuple[Weights, ...] = (), fails: bool = False, **fields: Any) -> Outcome:
    """A run of two ranks that was killed, and its recovery."""
    killed = fields.pop("trace", ()) or (op("0 write model.pt", inode=2, fault="kill"),)
    again = outcome(raised("EOFError"), returned()) if fails else outcome(returned(), returned())
    made = outcome(died(signal="SIGKILL"), died(signal="SIGKILL"), trace=killed, **fields)
    recovery = replace(again, weights=loads, world=World(ranks=2))
    return replace(made, weights=weights, recovery=recovery, world=World(ranks=2))


def broken(made: Outcome) -> list[str]:
    """The violations, and the reasons why something could not be judged."""
    found = judge(made, ASKED)
    unjudged = [each for each in found.reasons if "could not judge" in each]
    return [f"{each.invariant}: {each.message}" for each in found.violations] + unjudged


def save(number: int, path: str = "model.pt", *, w: str = "", rank: int = 0) -> tuple[Weights, ...]:
    digest = w or f"w{number}"
    return seen("saved", rank, path, number, w=digest), seen("acked", rank, path, number)


def test_the_last_acknowledged_save_has_to_load() -> None:
    two = *save(1), *save(2)
    assert broken(ran(*two, loads=(seen("loaded", 0, "model.pt", w="w2"),))) == []
    (found,) = broken(ran(*two, loads=(seen("loaded", 0, "model.pt", w="w1"),)))
    assert found == (
        "durable-after-ack: step 2 was saved on all ranks, but then rank 0 loaded step 1"
        " (steps count the saves to model.pt)"
    )


def test_while_a_save_runs_the_one_before_has_to_load() -> None:
    begun = *save(1), seen("saved", 0, "model.pt", 2, w="w2")
    for step in ("w1", "w2"):
        assert broken(ran(*begun, loads=(seen("loaded", 0, "model.pt", w=step),))) == []
    (found,) = broken(ran(*begun, fails=True))
    assert found.startswith(
        "old-survives: step 1 was saved on all ranks, step 2 was in progress, but then loading fail"
    )
    (found,) = broken(ran(*begun))
    assert "but then nothing was loaded" in found
    assert broken(ran(seen("saved", 0, "model.pt", 1, w="w1"))) == [], "nothing was acknowledged"


def test_a_recovery_that_fails_after_it_has_loaded_has_lost_nothing() -> None:
    assert broken(ran(*save(1), loads=(seen("loaded", 0, "model.pt", w="w1"),), fails=True)) == []


def test_a_file_that_was_renamed_is_known_by_what_is_in_it() -> None:
    one = *save(1, "model.pt.tmp"), *save(2, "model.pt.tmp")
    assert broken(ran(*one, loads=(seen("loaded", 1, "model.pt", w="w2"),))) == []
    pair = [seen("saved", 0, "new.pt", step, w=f"w{step}", b=f"b{step}") for step in (1, 2)]
    made = ran(*pair, loads=(seen("loaded", 1, "model.pt", w="w2", b="b1"),), trace=(opens("0 open model.pt", "w"),))
    (found,) = broken(made)
    assert found == (
        "consistent-weights: rank 1 loaded a mix of step 1 (b) and step 2 (w) (in the recovery)"
        " (steps count the saves to new.pt)"
    )


def test_a_series_has_the_name_that_its_files_are_renamed_to() -> None:
    one = *save(1, "step-1.tmp/w.pt"), *save(2, "step-1.tmp/w.pt")
    before, other, own = (op(f"{rank} rename step-1.tmp -> step-1") for rank in (0, 1, 0))
    for trace, name in (
        ((other, own), "step-#/w.pt, written as step-#.tmp/w.pt"),
        ((other, other), "step-#.tmp/w.pt"),
        ((before, other), "step-#.tmp/w.pt"),
        ((other, op("0 rename step-1.tmp -> step-1", errno="ENOENT")), "step-#.tmp/w.pt"),
    ):
        made = ran(*one, loads=(seen("loaded", 0, "step-1/w.pt", w="w1"),), trace=trace)
        (found,) = [each for each in broken(made) if each.startswith("durable-after-ack")]
        assert found.endswith(f"(steps count the saves to {name})")


def test_what_was_there_before_counts_once_the_run_has_loaded_it() -> None:
    start = seen("loaded", 0, "model.pt", event=0, w="old"), seen("loaded", 1, "model.pt", event=0, w="old")
    begun = *start, seen("saved", 0, "model.pt", 1, w="w1")
    assert broken(ran(*begun, loads=(seen("loaded", 0, "model.pt", w="old"),))) == []
    (found,) = broken(ran(*begun, fails=True))
    assert found.startswith("old-survives: step 0 was saved on all ranks, step 1 was in progress")
    assert found.endswith("(steps count the saves to model.pt; 0 was there before the run)")
    assert broken(ran(*start)) == [], "nothing was saved, so the file is none of the program's"


@pytest.mark.parametrize(("inode", "violations"), [(7, 0), (0, 1)])
def test_what_was_there_and_was_not_loaded_is_not_known(inode: int, violations: int) -> None:
    trace = (opens("0 open model.pt", "w", inode=inode), op("0 write model.pt", inode=7, fault="kill"))
    made = ran(seen("saved", 0, "model.pt", 1, w="w1"), loads=(seen("loaded", 0, "model.pt", w="old"),), trace=trace)
    assert len(broken(made)) == violations, "a file that the run has made holds nothing else than its saves"


def test_a_series_is_judged_by_itself() -> None:
    last = [each for step in (1, 2, 3) for each in save(step, f"last_{step}.pt", w=f"l{step}")]
    best = save(1, "best.pt", w="l1")
    loads = seen("loaded", 0, "last_3.pt", w="l3"), seen("loaded", 1, "best.pt", w="l1")
    assert broken(ran(*last, *best, loads=loads)) == [], "the best one is older than the last one"
    assert broken(ran(*last, *best, loads=loads[:1])) == [], "a program need not load all that it saves"


def test_a_save_in_parts_is_acknowledged_when_each_rank_has_saved_its_own() -> None:
    own = *save(1, "shard_0.pt", w="a"), seen("saved", 1, "shard_1.pt", 1, w="b")
    assert broken(ran(*own, fails=True)) == []
    assert len(broken(ran(*own, seen("acked", 1, "shard_1.pt", 1), fails=True))) == 1
    both = seen("loaded", 0, "shard_0.pt", w="a"), seen("loaded", 0, "shard_1.pt", w="b")
    assert broken(ran(*own, loads=both)) == [], "a rank may load what another one saved"


def test_parts_of_other_ranks_are_not_compared() -> None:
    parts = [seen("saved", rank, "ckpt", 1, **{f"w at ({rank},) of (2,)": str(rank)}) for rank in (0, 1)]
    acked = [seen("acked", rank, "ckpt", 1) for rank in (0, 1)]
    whole = seen("loaded", 0, "ckpt", **{"w at (0,) of (1,)": "all"})
    created = (opens("0 open ckpt", "w"),)
    assert broken(ran(*parts, *acked, loads=(whole,), trace=created)) == []
    wrong = seen("loaded", 0, "ckpt", **{"w at (0,) of (2,)": "other"})
    made = ran(*parts, *acked, loads=(wrong,), trace=created)
    assert "loaded w at (0,) of (2,) with values of no saved step" in broken(made)[0]


def test_files_with_other_tensors_are_other_series() -> None:
    """As a model that is saved in several files, under numbers."""
    parts = [
        replace(each, series=name)
        for step in (1, 2)
        for name, w in (("part#.pt", "a"), ("part#.pt (2)", "b"))
        for each in save(step, f"part{w}.pt", w=f"{w}{step}")
    ]
    both = tuple(replace(seen("loaded", 0, "x", w=each), series="part#.pt") for each in ("a2", "b2"))
    assert broken(ran(*parts, loads=both)) == []
    (found,) = broken(ran(*parts, loads=(both[0], replace(both[1], tensors={"w": "b1"}))))
    assert "step 2 was saved on all ranks, but then rank 0 loaded step 1" in found


@pytest.mark.parametrize(("files", "parts"), [(["l_1/w.pt", "l_2/w.pt"], True), (["l_1/w.pt"], False)])
def test_a_recovery_that_loads_several_files_of_a_series_may_load_parts(files: list[str], parts: bool) -> None:
    saves = [each for number, file in enumerate(files, 1) for each in save(number, file)]
    loads = [seen("loaded", 0, file, w=f"w{number}") for number, file in enumerate(files, 1)]
    made = ran(*saves, loads=(*loads, *(replace(each, rank=1) for each in loads)))
    assert reads_parts(made) is parts
    invariants, conditions = fitting(made, _never)
    assert (old_survives in invariants, bool(conditions)) == (not parts, parts)


def test_ranks_that_continue_from_different_saves() -> None:
    two = *save(1), *save(2)
    loads = seen("loaded", 0, "model.pt", w="w2"), seen("loaded", 1, "model.pt", w="w1")
    assert broken(ran(*two, loads=loads))[0].startswith(
        "consistent-weights: the ranks continue from different steps: rank 0 loaded step 2; rank 1 loaded step 1"
    )


def test_of_many_loads_the_newest_counts() -> None:
    two = *save(1), *save(2)
    loads = tuple(seen("loaded", 0, "model.pt", w=each) for each in ("w2", "w1"))
    assert broken(ran(*two, loads=loads)) == [], "averaging, for example"


def test_what_is_counted() -> None:
    two = *save(1), *save(2), *save(1, "other.pt", rank=1)
    made = ran(*two, loads=tuple(seen("loaded", rank, "model.pt", w="w2") for rank in (0, 1)))
    assert count(made) == (3, 1)
    assert judge(made, ASKED).verdict is Verdict.PASS


def test_a_recovery_may_load_what_it_has_saved_itself() -> None:
    """Both ranks resume from step 2; rank 0 saves on, and looks at that."""
    two = *save(1), *save(2)
    resumed = seen("loaded", 0, "model.pt", w="w2"), seen("loaded", 1, "model.pt", w="w2")
    own = seen("saved", 0, "next.pt", 1, event=5, w="w3")
    for path in ("next.pt", "renamed.pt"):
        looked = seen("loaded", 0, path, event=6, w="w3")
        assert broken(ran(*two, loads=(*resumed, own, looked))) == []
    apart = (resumed[0], replace(resumed[1], tensors={"w": "w1"}), own, seen("loaded", 0, "next.pt", event=6, w="w3"))
    assert any("continue from different steps" in each for each in broken(ran(*two, loads=apart)))


def test_a_recovery_that_loads_another_save_without_a_fault_is_not_asked_for_the_last() -> None:
    two = *save(1), *save(2)
    best = ran(*two, loads=(seen("loaded", 0, "model.pt", w="w1"),))
    invariants, (condition,) = fitting(best, _never)
    assert [name_of(each) for each in invariants] == ["consistent-weights", "snapshot-isolation"]
    assert condition.startswith("the recovery loads another save than the last one also without a fault")
    last = ran(*two, loads=(seen("loaded", 0, "model.pt", w="w2"),))
    invariants, conditions = fitting(last, _never)
    assert not conditions
    assert [name_of(each) for each in invariants] == [
        "consistent-weights", "durable-after-ack", "old-survives", "snapshot-isolation"
    ]  # fmt: skip


def test_all_ranks_of_a_recovery_restore_what_they_restore_otherwise() -> None:
    two = *save(1), *save(2), *save(1, "other.pt", rank=1)
    both = ran(*two, loads=tuple(seen("loaded", rank, "model.pt", w="w2") for rank in (0, 1)))
    invariants, _ = fitting(both, _never)
    alone = ran(*two, loads=(seen("loaded", 0, "model.pt", w="w2"),))
    assert [each.message for each in judge(alone, invariants).violations] == [
        "rank 1 loaded nothing of model.pt, but rank 0 did (in the recovery)"
    ]
    none = judge(ran(*two), invariants).violations
    assert not any("loaded nothing of" in each.message for each in none), "no rank did"


def test_what_no_recovery_loads_is_not_asked_for() -> None:
    """A run leaves a configuration that it never loads: that is not lost where nothing is loaded."""
    configured = seen("saved", 0, "config.pt", 1, lr="0.1"), seen("acked", 0, "config.pt", 1)
    undisturbed = ran(*configured, *save(1), loads=(seen("loaded", 0, "model.pt", w="w1"),))
    invariants, (condition,) = fitting(undisturbed, _never)
    assert condition == "the recovery does not load config.pt, so it is not judged whether that is lost"
    early, late = ran(*configured), ran(*configured, *save(1))
    assert not judge(early, invariants).violations
    (violation,) = judge(late, invariants).violations
    assert violation.message.startswith("step 1 was saved on all ranks, but then nothing was loaded")
    assert judge(early, ASKED).violations, "of a recovery that loads both it would be"
