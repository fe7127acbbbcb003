"""Which events of a run decide, what its sentence says, and the trees between its ops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.model.nouns import DiskEntry, Event, Result
from racecheck.model.ops.launcher_ops import signal_op
from racecheck.report.decisive import cause_of, decisive, failing
from racecheck.report.folding import unfolded
from racecheck.report.picture.document import picture
from racecheck.report.picture.trees import TreeEntry, trees
from racecheck.report.sentence import plain, sentence
from racecheck.targets.programs import Launch
from tests.support import pictures
from tests.support.builders import died, op, outcome, raised, returned

SAID = {
    "race": "Rank 1 did rmdir ckpt (line 10), and then rank 0's rmdir ckpt (line 10) failed with ENOENT",
    "power-loss": "Power is lost, and rename new.pt -> model.pt did not reach the disk: "
    "step 2 was saved on all ranks, but then rank 0 loaded step 1",
    "stale": "Rank 0 had done rename latest.tmp -> latest, and rank 1 on another node "
    "was still answered ENOENT to stat latest",
    "deadlock": "Rank 1 did stat ckpt (line 9) before rank 0 did mkdir ckpt (line 11), and now rank 0 in broadcast "
    "and rank 1 in barrier wait for each other",
    "mixed": "The job is killed before the open of ckpt/1.pt: rank 0 loaded a mix of step 1 (b) and step 2 (a)",
    "node-local": "The recovery failed: FileNotFoundError on rank 1",
    "injected": "ENOSPC is injected into rank 1's write ckpt/1: rank 1's write failed, but the save returned",
    "without-trace": "FileNotFoundError on rank 0",
    "earlier": "Rank 1 did rmdir ckpt (line 10), and then rank 0's rmdir ckpt (line 10) failed with ENOENT",
}

ROLES = {
    "race": {8: "shown", 12: "cause", 13: "victim", 14: "pair"},
    "power-loss": {1: "shown", 2: "lost"},
    "stale": {0: "pair", 1: "cause", 3: "stale"},
    "deadlock": {0: "pair", 1: "pair"},
    "mixed": {3: "cause", 6: "cause", 7: "kill"},
    "node-local": {},
    "injected": {2: "fault"},
    "without-trace": {},
    "earlier": {8: "shown", 12: "cause", 13: "victim", 14: "pair"},
}


@pytest.mark.parametrize("name", pictures.ALL)
def test_the_sentence_says_what_happened(name: str) -> None:
    made = pictures.ALL[name]()
    found = decisive(made.outcome, made.judgement.violations, made.pair)
    assert plain(sentence(made.outcome, made.judgement.violations, found)) == SAID[name]
    assert dict(found.roles) == ROLES[name]


def test_a_recovery_shows_the_op_that_failed() -> None:
    after = pictures.node_local().outcome.recovery
    assert after is not None
    assert dict(failing(after).roles) == {0: "victim"}


CAUSES: list[tuple[list[Event], int, int | None]] = [
    ([op("1 rename a -> b"), op("0 open a/f", errno="ENOENT")], 1, 0),
    ([op("1 rename a -> b"), op("1 mkdir c"), op("0 mkdir b", errno="EEXIST")], 2, 0),
    ([op("1 mkdir a/b"), op("0 rmdir a", errno="ENOTEMPTY")], 1, 0),
    ([op("1 rename a -> b"), op("0 rename a -> b", errno="ENOTEMPTY")], 1, 0),
    ([op("1 mkdir a"), op("0 link b -> a", errno="EEXIST")], 1, 0),
    ([op("0 open a", errno="ENOENT"), op("1 mkdir a")], 0, 1),
    ([op("0 mkdir a"), op("0 mkdir a", errno="EEXIST")], 1, None),
    ([op("1 rmdir ab"), op("0 open a", errno="ENOENT")], 1, None),
    ([op("1 rmdir a", errno="ENOTEMPTY"), op("0 open a", errno="ENOENT")], 1, None),
    ([op("1 write a", inode=3), op("0 read a", inode=3)], 1, 0),
    ([op("1 read a", inode=3), op("0 read a", inode=3)], 1, None),
    ([op("1 rmdir a"), op("0 mkdir a"), op("1 rename b -> c"), op("0 open a/f", errno="ENOENT")], 3, None),
    ([op("1 rmdir a"), op("0 rmdir a"), op("0 open a", errno="ENOENT")], 2, None),
    ([op("1 mkdir a"), op("0 rmdir a"), op("0 mkdir a"), op("0 mkdir a", errno="EEXIST")], 3, None),
    ([op("1 rmdir a"), op("2 mkdir a"), op("3 rmdir a"), op("0 open a", errno="ENOENT")], 3, 2),
]


@pytest.mark.parametrize(("trace", "victim", "cause"), CAUSES)
def test_the_cause_is_what_changed_the_name(trace: list[Event], victim: int, cause: int | None) -> None:
    assert cause_of(trace, victim) == cause


def test_a_failure_without_another_rank_is_said_alone() -> None:
    run = outcome(returned(), trace=[op("0 rename a -> b", errno="EPERM")])
    violation = pictures.Violation("no-file-errors", "PermissionError on rank 0: a", (0,), (0,))
    found = decisive(run, [violation])
    assert plain(sentence(run, [violation], found)) == "Rank 0's rename a -> b failed with EPERM"


def test_the_launcher_s_signal_is_not_what_killed_the_run() -> None:
    trace = [op("1 mkdir a"), op("0 mkdir a", errno="EEXIST"), signal_op(1, "1", "SIGTERM")]
    run = outcome(raised("FileExistsError", "a", errno="EEXIST", path="a"), died(signal="SIGTERM"), trace=trace)
    violation = pictures.Violation("no-file-errors", "FileExistsError on rank 0: a", (0,), (1,))
    found = decisive(run, [violation])
    assert dict(found.roles) == {0: "cause", 1: "victim"}
    assert (
        plain(sentence(run, [violation], found)) == "Rank 1 did mkdir a, and then rank 0's mkdir a failed with EEXIST"
    )


def test_writers_of_a_file_that_a_message_names_are_shown() -> None:
    trace = [op("1 write d/f.pt", inode=3), op("0 open d/f.pt", flags=("O_TRUNC",), inode=3), op("0 chmod d")]
    run = outcome(returned(), returned(), trace=trace)
    assert dict(decisive(run, [pictures.Violation("mine", "lost: f.pt of rank 1", (1,))]).roles) == {
        0: "shown",
        1: "shown",
    }
    assert dict(decisive(run, [pictures.Violation("mine", "lost: g.pt", (1,))]).roles) == {0: "last"}


def test_a_name_that_comes_too_late_is_said_to() -> None:
    run = outcome(returned(), returned(), trace=[op("0 open a", errno="ENOENT"), op("1 mkdir a")])
    violation = pictures.Violation("no-file-errors", "FileNotFoundError on rank 0: a", (0,), (0,))
    found = decisive(run, [violation])
    said = plain(sentence(run, [violation], found))
    assert said == "Rank 0's open a failed with ENOENT: rank 1 did mkdir a only afterwards"


@pytest.mark.parametrize("name", pictures.ALL)
def test_nothing_decisive_is_folded(name: str) -> None:
    made = pictures.ALL[name]()
    roles = decisive(made.outcome, made.judgement.violations, made.pair).roles
    assert set(roles) <= unfolded(made.outcome.trace, roles)


def test_of_a_large_run_little_stays_in_sight() -> None:
    made = pictures.large(16, 2000)
    roles = decisive(made.outcome, made.judgement.violations, made.pair).roles
    assert len(roles) == 2
    assert set(roles) <= unfolded(made.outcome.trace, roles)
    assert len(unfolded(made.outcome.trace, roles)) < 40


def test_a_program_is_called_by_its_command() -> None:
    command = ("torchrun", "--nproc-per-node=2", "my train.py")
    launch = Launch(command, "my train.py", "", (), "/", {}, 2, "/out")
    made = replace(pictures.race(), launch=launch)
    assert picture(made, "")["target"] == "torchrun --nproc-per-node=2 'my train.py'"
    assert picture(pictures.race(), "")["target"] == "scenarios/train.py::save"


# Trees.


def test_a_tree_follows_the_ops() -> None:
    trace = [
        op("0 mkdir new"),
        op("0 open new/f", flags=("O_CREAT",)),
        op("0 write new/f", inode=3, result=Result(size=5, text="hello")),
        op("0 rename new -> old"),
        pictures.holding(op("0 unlink old/f", inode=3), size=5),
    ]
    found = trees(outcome(returned(), trace=trace, disk={"old": DiskEntry("directory")}))
    assert found.first == {}
    assert found.changes[2] == [("new/f", TreeEntry("file", 5, "hello", 2))]
    assert found.changes[3] == [
        ("new", None),
        ("new/f", None),
        ("old", TreeEntry("directory", 0, "", 3)),
        ("old/f", TreeEntry("file", 5, "hello", 2)),
    ]
    assert found.last == {"old": TreeEntry("directory", 0, "", 3)}
    assert found.agrees


def test_what_is_met_and_what_is_left_untouched_were_there_before() -> None:
    trace = [op("0 unlink a/b", inode=3)]
    found = trees(outcome(returned(), trace=trace, disk={"a": DiskEntry("directory"), "c": DiskEntry("file", 7)}))
    assert found.first == {"a": TreeEntry("directory"), "a/b": TreeEntry("file"), "c": TreeEntry("file", 7)}
    assert found.agrees


def test_a_tree_that_differs_from_the_recorded_one_is_said_to() -> None:
    assert not trees(outcome(returned(), trace=[op("0 mkdir a")])).agrees


def test_each_node_has_a_tree_of_its_own() -> None:
    made = pictures.node_local().outcome
    assert sorted(trees(made).last) == ["node0/ckpt/.metadata", "node1/ckpt/1"]


def test_a_write_to_a_file_without_a_name_is_in_no_tree() -> None:
    trace = [
        op("0 open a", flags=("O_CREAT",)),
        op("0 unlink a", inode=3),
        op("0 open a", flags=("O_CREAT",)),
        pictures.holding(op("0 write a", inode=3, result=Result(size=7)), size=7),
    ]
    found = trees(outcome(returned(), trace=trace, disk=["a"]))
    assert found.changes[3] == []
    linked = [trace[0], op("0 link a -> b"), *trace[1:2], op("0 write b", inode=3, result=Result(size=7))]
    linked[1] = pictures.holding(op("0 link a -> b"), inode=3)
    assert trees(outcome(returned(), trace=linked, disk={"b": DiskEntry("file", 7)})).last == {
        "b": TreeEntry("file", 7, "", 3)
    }


def test_a_failed_op_changes_nothing() -> None:
    assert trees(outcome(returned(), trace=[op("0 mkdir a", errno="EEXIST")])).changes == [[]]
