"""NFS on real processes: what caches do to code that decides by what it sees."""

from __future__ import annotations

from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.invariants import judge
from racecheck.model.compare import first_difference
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Op, Raised, Returned, Verdict, World
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.storage import make
from racecheck.supervisor.free import full_speed
from tests.support.builders import op
from tests.support.showing import show, stale, values
from tests.support.targets import target


def test_a_barrier_does_not_refresh_what_was_missed(session: Session) -> None:
    """Neither exists() nor open() finds it; a listing ends that."""
    outcome = show(session, "asked_before", "stale")
    assert values(outcome)[1] == {
        "before": False, "exists": False, "opens": "ENOENT", "listed": ["done"], "then": True,
    }  # fmt: skip
    denied, not_opened = stale(outcome)
    assert not_opened.label == "1 open ckpt/done: stale: no entry (cached 0.0 s ago)"
    assert denied.label == "1 stat ckpt/done: stale: no entry (cached 0.0 s ago)"
    assert denied.result is not None
    assert denied.result.errno == "ENOENT"


def test_without_a_choice_for_it_everybody_sees_what_is_there(session: Session) -> None:
    outcome = show(session, "asked_before")
    assert values(outcome)[1] == {
        "before": False, "exists": True, "opens": "step 1", "listed": ["done"], "then": True,
    }  # fmt: skip
    assert [choice.kind for choice in outcome.schedule].count("view") == 1
    assert not stale(outcome)


@pytest.mark.parametrize(
    ("storage", "exists", "opens"),
    [
        ("nfs(vers=3)", False, "ENOENT"),
        ("nfs(lookupcache=pos)", True, "step 1"),
        ("nfs(lookupcache=none)", True, "step 1"),
        ("nfs(noac)", True, "step 1"),
        ("nfs(actimeo=0)", True, "step 1"),
        ("shared", True, "step 1"),
    ],
)
def test_mount_options(session: Session, storage: str, exists: bool, opens: str) -> None:
    found = values(show(session, "asked_before", "stale", storage=storage))[1]
    assert isinstance(found, dict)
    assert (found["exists"], found["opens"]) == (exists, opens)


def test_what_was_missed_is_found_after_thirty_seconds_of_virtual_time(session: Session) -> None:
    outcome = show(session, "waits_a_minute", "stale", first=1)
    assert values(outcome)[1] == [False, False, True]
    assert outcome.seconds < 20, "nobody waits in real time"


def test_ranks_that_ask_for_themselves_part(session: Session) -> None:
    """Rank 1 looks, rank 0 makes the file, a barrier; then one goes into a collective and the other does not."""
    outcome = show(session, "each_asks", "stale", first=1)
    raised = outcome.results[0]
    assert isinstance(raised, Raised)
    assert raised.lacks == "all_reduce #1 of group 0 lacks rank 1, which has returned"
    assert outcome.results[1] == Returned("from scratch")
    judgement = judge(outcome, target("caches", "each_asks").invariants)
    assert judgement.verdict is Verdict.FAIL
    assert [each.invariant for each in judgement.violations] == ["no-deadlock"]


def test_a_checkpointer_whose_rank_0_asks_for_all_holds(session: Session) -> None:
    for first in (0, 1):
        assert values(show(session, "one_asks", "stale", first=first)) == ["resumed", "resumed"]


@pytest.mark.slow
def test_the_deadlock_is_found_by_chance_and_never_in_the_mended_code(session: Session) -> None:
    """One schedule of a few has rank 1 look first, and one of two shows it what it remembers: of 40 runs none hits that
    with a chance below one in a thousand.
    """
    verdicts = {name: [] for name in ("each_asks", "one_asks")}
    for name, found in verdicts.items():
        scenario = target("caches", name)
        runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
        strategy = RandomWalk()
        for number in range(40):
            strategy.begin(Random(number))
            outcome = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0", stacks=False))
            found.append(judge(outcome, scenario.invariants).verdict)
    assert Verdict.FAIL in verdicts["each_asks"]
    assert set(verdicts["one_asks"]) == {Verdict.PASS}


def test_a_run_is_repeated_exactly(session: Session) -> None:
    scenario = target("caches", "each_asks")
    first = show(session, "each_asks", "stale", first=1)
    assert "view" in {choice.kind for choice in first.schedule}
    again = Replay(first.schedule)
    again.begin(Random(0))
    second = runner.run(session, RunRequest.of(scenario, first.world, again, seed="0"))
    assert again.divergence == ""
    assert first_difference(first, second) == ""


def test_what_is_not_closed_may_not_have_been_sent(session: Session) -> None:
    assert values(show(session, "not_flushed"))[1] == [10, "0123456789", "0123456789"]
    assert values(show(session, "not_flushed", "stale"))[1] == [0, "", "0123456789"]


def test_a_pointer_to_what_has_not_been_closed_leads_to_nothing(session: Session) -> None:
    assert values(show(session, "published_unsynced", "stale"))[1] == ""
    assert values(show(session, "published_closed", "stale"))[1] == "weights"


def test_a_removed_file_that_is_open_on_its_node_keeps_a_name_there(session: Session) -> None:
    outcome = show(session, "removed_while_open", "stale")
    remover, other = values(outcome)
    assert remover == {"left": [".nfs"], "rmdir": "ENOTEMPTY", "read": "old", "after": []}
    assert other == {"read": "old"}, "the server has it still"
    (removal,) = (each for each in outcome.ops if each.call == "unlink")
    assert "SILLY_RENAME" in removal.flags
    assert list(outcome.disk) == ["d"]


def test_a_file_that_another_node_replaces_is_gone(session: Session) -> None:
    assert values(show(session, "removed_elsewhere", "stale", storage="nfs(vers=3)"))[1] == ["ESTALE", "new"]
    assert values(show(session, "removed_elsewhere", storage="nfs(vers=3)"))[1] == ["old", "new"]
    assert values(show(session, "removed_elsewhere", "stale"))[1] == ["old", "new"], "version 4 keeps the bytes"


def test_attributes_and_pages_of_an_open_file_are_old(session: Session) -> None:
    """Opening it again shows what is there."""
    assert values(show(session, "grows"))[1] == ["old", 3, 5, "newer", "newer"]
    assert values(show(session, "grows", "stale"))[1] == ["old", 3, 3, "old", "newer"]


def test_old_pages_are_read_on_where_the_last_read_has_ended(session: Session) -> None:
    assert values(show(session, "reads_on"))[1] == ["ne", "we"]
    assert values(show(session, "reads_on", "stale"))[1] == ["ol", "d"]


def test_the_end_of_a_process_closes_what_it_has_open(session: Session) -> None:
    outcome = show(session, "leaves_open", "stale")
    assert values(outcome) == ["", "data"]
    assert not [choice for choice in outcome.schedule if choice.kind == "view"]
    assert not show(session, "leaves_removed").disk


def test_on_one_node_nothing_is_stale(session: Session) -> None:
    scenario = target("caches", "asked_before")
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    strategy = RandomWalk()
    strategy.begin(Random(0))
    outcome = runner.run(session, RunRequest.of(scenario, World(ranks=2, nodes=1, storage="nfs"), strategy, seed="0"))
    assert {choice.kind for choice in outcome.schedule} <= {"next"}
    assert "one node only: its caches are never stale (use --nodes 2)" in outcome.coverage.notes


def test_free_mode_has_no_caches(session: Session) -> None:
    scenario = target("caches", "asked_before")
    with pytest.raises(UsageError, match="storage nfs needs control"):
        full_speed.run(session, scenario.reference, scenario.world, seed="0")


def closing(*flags: str) -> Op:
    made = op("0 close f", inode=7)
    return Op(0, "0", "close", "close", made.places, flags)


def test_what_sends_bytes_is_a_point_and_changes_the_file_for_others() -> None:
    model = make(World(ranks=2, nodes=2, storage="nfs"))
    assert not model.visible(closing())
    assert model.visible(closing("FLUSH"))
    plain, sends = model.footprint(closing()), model.footprint(closing("FLUSH"))
    (location,) = set(sends) - set(plain)
    assert (location.kind, location.key) == ("content", 7)


def test_footprints_are_no_finer_than_those_of_one_disk() -> None:
    shared, nfs = make(World()), make(World(ranks=2, nodes=2, storage="nfs"))
    for each in (op("0 mkdir d"), op("1 stat d", inode=3), op("0 rename a -> b", inode=4), op("1 read f", inode=5)):
        assert set(shared.footprint(each).items()) <= set(nfs.footprint(each).items())
