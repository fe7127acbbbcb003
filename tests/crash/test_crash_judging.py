"""What a crash leaves, loaded by real recoveries and judged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from racecheck.crash.log import Data, Disk, Stored
from racecheck.explore import runner
from racecheck.explore.recovery.disk_images import Ages, TooLarge, items
from racecheck.explore.recovery.groups import Groups
from racecheck.explore.recovery.judge import Crashes, Group, judge_crashes, judge_repairs
from racecheck.explore.requests import RunRequest
from racecheck.kernel import proc
from racecheck.model import config
from racecheck.model.nouns import Died, Invariant, Op, Outcome, Raised, Returned, Stopped, Verdict
from racecheck.report.crash import counts_text, crash_text, repairs_text
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.one_run import Supervisor
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario
from tests.programs import crashing
from tests.support.targets import TARGETS, target

SCENARIOS = TARGETS.parents[1] / "scenarios"
MODELS = ("kill", "ext4", "btrfs")


@pytest.fixture(autouse=True)
def _nothing_stays(session: Session) -> Iterator[None]:
    """What was recorded: others look at what is left in the slot."""
    yield
    (session.slot.path / "blobs").unlink(missing_ok=True)


def run(session: Session, scenario: Scenario, limit: int = 1 << 30) -> tuple[Outcome, Recorder]:
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    recorder = Recorder(session.slot.path / "blobs", limit)
    supervisor = Supervisor(session, scenario.reference, scenario.world, lambda _: 0, seed="0", recorder=recorder)
    return supervisor.run(), recorder


def judged(
    session: Session,
    name: str,
    models: Sequence[str] = MODELS,
    invariants: Sequence[Invariant] = (),
    *,
    file: str = "crashing",
    seconds: float = 0.0,
    limit: int = 1 << 30,
) -> Crashes:
    scenario = target(file, name)
    outcome, recorder = run(session, scenario, limit)
    return judge_crashes(session, scenario, outcome, recorder, models, invariants, seconds=seconds)


def bad(crashes: Crashes) -> dict[str, int]:
    return {model: count.bad for model, count in crashes.counts.items()}


def recovered(group: Group) -> list[object]:
    """What the recovery came to in the least witness."""
    recovery = group.witnesses[0].outcome.recovery
    assert recovery is not None
    return list(recovery.results)


def test_a_kill_while_a_file_is_written_in_place_loses_the_old_one(session: Session) -> None:
    crashes = judged(session, "overwriting", ["kill"])
    (group,) = crashes.groups
    (result,) = recovered(group)
    assert isinstance(result, Raised)
    assert result.type == "EOFError"
    assert crashes.verdict is Verdict.FAIL
    assert crashes.counts["kill"].judged == 3, "old, emptied, and written"
    assert [path for path, _ in group.witnesses[0].state.disk.paths] == ["state.pt"]


def test_a_rename_without_fsync_loses_both_when_power_does(session: Session) -> None:
    crashes = judged(session, "replacing")
    assert bad(crashes)["kill"] == 0
    assert bad(crashes)["ext4"] > 0
    empty = next(group for group in crashes.groups if group.witnesses[0].state.disk["state.pt"].size == 0)
    (lost,) = empty.witnesses[0].state.crash.lost
    write = crashes.run.trace[lost]
    assert getattr(write, "label", "") == "0 write tmp"
    assert "kill" not in empty.models


def test_with_fsync_of_file_and_directory_nothing_is_lost(session: Session) -> None:
    crashes = judged(session, "lasting", [*MODELS, "ordered"])
    assert crashes.groups == ()
    assert crashes.verdict is Verdict.PASS
    assert min(count.judged for count in crashes.counts.values()) >= 5


def test_what_was_acknowledged_is_held_against_what_is_left(session: Session) -> None:
    early = judged(session, "too_early", invariants=[crashing.new_once_acked])
    assert bad(early)["kill"] == 0, "a kill takes no names away"
    assert bad(early)["ext4"] == 1, "the acknowledgement came before the name was durable"
    (group,) = early.groups
    assert recovered(group) == [Returned(1)]
    assert group.violation.events == (len(early.run.trace) - 1,)
    late = judged(session, "lasting", invariants=[crashing.new_once_acked])
    assert not late.groups


def test_counts_and_findings_are_the_same_again(session: Session) -> None:
    first, second = judged(session, "dcp_twice"), judged(session, "dcp_twice")
    assert first.counts == second.counts
    assert first.disks == second.disks
    shown = [(group.violation, group.models, group.witnesses[0].state) for group in first.groups]
    assert shown == [(group.violation, group.models, group.witnesses[0].state) for group in second.groups]


def test_the_order_in_which_states_come_does_not_matter(session: Session) -> None:
    """Two processes load them, and either may be faster."""
    found = judged(session, "dcp_twice", ["kill"]).groups
    states = [(each.violation, witness) for each in found for witness in each.witnesses]
    orders = [[*enumerate(states)], [*enumerate(states)][::-1]]
    told = []
    for order in orders:
        groups = Groups()
        for number, (violation, witness) in order:
            groups.add(violation, witness, number)
        told.append(groups.plainest())
    assert len(states) > 2
    assert told[0] == told[1]


def test_a_state_that_fails_on_two_ranks_is_one_state(session: Session) -> None:
    group = judged(session, "dcp_twice", ["kill"]).groups[0]
    groups, witness = Groups(), group.witnesses[0]
    for number, rank in ((0, 0), (0, 1), (1, 0)):
        groups.add(replace(group.violation, message=f"rank {rank} failed"), witness, number)
    assert [each.models for each in groups.plainest()] == [{"kill": 2}]


def test_a_second_save_into_the_same_directory_loses_the_first(session: Session) -> None:
    """Shards are emptied in place, and there is a window without metadata (torch's own save)."""
    crashes = judged(session, "dcp_twice")
    messages = [str(each) for group in crashes.groups if "kill" in group.models for each in recovered(group)]
    assert any("EOFError" in each for each in messages)
    assert any("metadata is None" in each for each in messages)
    assert not crashes.truncated


def test_nothing_is_left_behind(session: Session) -> None:
    scenario = target("crashing", "exiting")
    outcome, recorder = run(session, scenario)
    before, others = sorted(os.listdir(session.slot.path)), set(proc.descendants(os.getpid()))
    crashes = judge_crashes(session, scenario, outcome, recorder, MODELS)
    recorder.close()
    assert crashes.groups
    assert sorted(os.listdir(session.slot.path)) == [each for each in before if each != "blobs"]
    assert os.listdir(session.slot.output) in ([], ["setup"])
    session.request("end", world=0, thorough=True)  # reaps what was killed
    assert set(proc.descendants(os.getpid())) <= others


def test_a_recovery_that_ends_its_process_is_a_verdict(session: Session) -> None:
    crashes = judged(session, "exiting", ["kill"])
    (group,) = crashes.groups
    assert recovered(group) == [Died(status=7)]
    assert crashes.counts["kill"].bad == 3, "before the file, before its bytes, and before its name"


def test_a_recovery_that_is_killed_is_a_verdict(session: Session) -> None:
    crashes = judged(session, "killed", ["kill"])
    (group,) = crashes.groups
    (result,) = recovered(group)
    assert isinstance(result, Died)
    assert result.signal == "SIGSEGV"
    assert "Segmentation fault" in result.output
    assert "racecheck/agent" not in result.output, "frames of racecheck are left out"


def test_a_recovery_that_hangs_is_a_verdict_with_its_stack(session: Session) -> None:
    crashes = judged(session, "hanging", ["kill"])
    (group,) = crashes.groups
    (result,) = recovered(group)
    assert isinstance(result, Stopped)
    assert result.kind == "asleep"
    assert [frame.function for frame in result.stack] == ["hang"]


def test_of_a_recovery_that_spins_it_is_said_after_which_crash(session: Session) -> None:
    crashes = judged(session, "spinning", ["kill"])
    (reason,) = crashes.reasons
    assert reason.startswith("in the recovery: rank 0 did not end: still running after 2 s (kill: a crash after 0 ")
    assert reason.endswith((" tmp)", " .)")), reason


def test_what_was_loaded_before_makes_no_findings(session: Session) -> None:
    crashes = judged(session, "remembering")
    assert not crashes.groups
    assert any("its own process" in note for note in crashes.notes)


def test_the_end_of_a_process_is_an_op_of_its_own_too(session: Session) -> None:
    crashes = judged(session, "brittle")
    assert not crashes.groups
    assert crashes.counts == judged(session, "lasting").counts


def test_a_recovery_may_use_its_disk_up(session: Session) -> None:
    crashes = judged(session, "modifying")
    assert not crashes.groups
    assert bad(crashes) == dict.fromkeys(MODELS, 0)


def test_files_are_as_old_as_they_were(session: Session) -> None:
    crashes = judged(session, "dated", ["kill"])
    assert crashes.counts["kill"].judged > 3
    assert not crashes.groups


def test_a_recovery_of_several_ranks_gets_a_world(session: Session) -> None:
    alone, together = judged(session, "lasting"), judged(session, "together")
    assert together.counts == alone.counts
    assert not together.groups
    assert any("each state needs a world" in note for note in together.notes)
    assert not alone.notes


def test_a_node_loses_what_its_own_disk_loses(session: Session) -> None:
    """And what is on the other is all there."""
    crashes = judged(session, "on_two_nodes", ["ext4"])
    lost = [group for group in crashes.groups if Returned(0) in recovered(group)]
    assert lost
    for group in lost:
        for witness in group.witnesses:
            recovery = witness.outcome.recovery
            assert recovery is not None
            assert Returned(2) in recovery.results or Returned(1) in recovery.results
            assert recovery.results != (Returned(0), Returned(0))
            assert {path.partition("/")[0] for path in witness.outcome.disk} <= {"node0", "node1"}


def test_the_disks_of_all_nodes_lose_at_once(session: Session) -> None:
    """A copy on each of two nodes: it takes both to lose what was saved."""
    crashes = judged(session, "no_copy_synced", ["ext4", "btrfs"])
    assert crashes.groups
    for group in crashes.groups:
        crash = group.witnesses[0].state.crash
        lost = [crashes.run.trace[event] for event in (*crash.lost, *crash.torn)]
        assert {event.rank for event in lost if isinstance(event, Op)} == {0, 1}
    assert bad(judged(session, "one_copy_synced", ["ext4", "btrfs"])) == {"ext4": 0, "btrfs": 0}


def test_contents_are_of_the_crash_state(session: Session) -> None:
    crashes = judged(session, "dcp_twice", ["kill"], [crashing.whole])
    contents = [group.witnesses[0].outcome.contents for group in crashes.groups]
    assert contents, "emptied shards do not hold what the metadata promises"
    assert all("checkpoint/.metadata" in each for each in contents)


def test_where_loaders_cannot_have_disks_of_their_own_there_is_one(session: Session) -> None:
    expected = judged(session, "overwriting")
    with Session(config.read().runs) as other:
        found = judged(other, "overwriting", file="unmoved")
    assert found.counts == expected.counts
    assert len(found.groups) == len(expected.groups)


def test_what_is_not_judged_is_said(session: Session) -> None:
    crashes = judged(session, "overwriting", ["kill"], seconds=1e-9)
    assert crashes.counts["kill"].judged == 0
    assert crashes.truncated == "kill: 3 states were not judged: the time budget was used up"


def test_a_record_with_a_gap_is_no_ground_to_judge_on(session: Session) -> None:
    crashes = judged(session, "overwriting", ["kill"], limit=100)
    assert crashes.verdict is Verdict.UNKNOWN
    assert crashes.judged == 0
    assert "more than 100 bytes" in crashes.reasons[0]


def test_a_state_has_a_limit() -> None:
    stored = Stored("file", ((0, 1 << 20, Data("digest", 0, 1 << 20)),), 1 << 20)
    recorder = Recorder(Path("blobs"), blobs={"digest": 7})
    disk = Disk((("file", stored),))
    (item,) = items(disk, recorder, Ages(0), limit=1 << 20)
    assert item.spans == [(0, 1 << 20, 7)]
    with pytest.raises(TooLarge, match="has 1048576 bytes"):
        items(disk, recorder, Ages(0), limit=(1 << 20) - 1)


def test_the_repair_table_says_what_helps(session: Session) -> None:
    scenario = target("crashing", "replacing")
    outcome, recorder = run(session, scenario)
    crashes = judge_crashes(session, scenario, outcome, recorder, MODELS)
    table = judge_repairs(session, scenario, crashes, recorder)
    assert next(iter(table)) == "as it is"
    assert not table["fsync files"].groups
    assert bad(table["fsync directories"])["ext4"] > 0
    assert "None of" not in repairs_text(table)
    assert repairs_text(table).splitlines()[1].split("  ")[0] in {"fsync files", "fsync files, fsync directories"}


def test_an_overwriting_save_needs_a_directory_for_each_step(session: Session) -> None:
    """What is emptied in place is lost by a kill, whatever is synced."""
    scenario = target("crashing", "dcp_twice")
    outcome, recorder = run(session, scenario)
    crashes = judge_crashes(session, scenario, outcome, recorder, ["kill"])
    table = judge_repairs(session, scenario, crashes, recorder)
    assert {"flush before fsync", "replace instead of unlink and rename", "fsync files"} <= table.keys()
    held = {name for name, each in table.items() if not each.bad}
    assert held == {name for name in table if "fresh directory per step" in name}
    assert "fresh directory per step" in held


def test_where_no_two_repairs_are_enough_a_third_is_tried(session: Session) -> None:
    """The whole recipe for who saves over what there is: nothing less holds."""
    scenario = resolve.load(f"{SCENARIOS / 'test_dcp_resave.py'}::overwritten")
    outcome, recorder = run(session, scenario)
    crashes = judge_crashes(session, scenario, outcome, recorder, ["ext4"])
    table = judge_repairs(session, scenario, crashes, recorder)
    held = {name for name, each in table.items() if not each.bad}
    assert held == {"fresh directory per step, flush before fsync, fsync directories"}


def test_where_no_repair_helps_that_is_said(session: Session) -> None:
    """In the watched directory itself, what is emptied in place is lost by a kill."""
    scenario = target("crashing", "overwriting")
    outcome, recorder = run(session, scenario)
    crashes = judge_crashes(session, scenario, outcome, recorder, ["kill"])
    table = judge_repairs(session, scenario, crashes, recorder)
    assert len(table) > 1
    assert all(bad(each)["kill"] > 0 for each in table.values())
    assert repairs_text(table).splitlines()[-1] == "No candidate fix makes every state pass."
    alone = repairs_text({"as it is": table["as it is"]})
    assert alone == "No candidate fix changes this run."


def test_a_finding_as_text(session: Session) -> None:
    crashes = judged(session, "replacing")
    group = next(each for each in crashes.groups if each.witnesses[0].state.crash.lost)
    text = crash_text(group, crashes, root=TARGETS)
    lines = {line[:14].strip(): line[14:] for line in text.splitlines() if line[2:14].strip()}
    assert lines["crash"] == "rank 0 after rename tmp -> state.pt, at its end"
    assert "rank 0 write tmp" in lines["lost"]
    assert "crashing.py:" in lines["lost"]
    assert lines["on disk"] == "state.pt  0 bytes"
    assert "EOFError" in lines["recovery"]
    assert lines["shows on"].startswith("killed processes: never; ")
    assert f"ext4: {group.models['ext4']} of {crashes.counts['ext4'].judged}; btrfs: " in text
    assert all(len(line) <= 120 for line in text.splitlines())
    assert f"killed processes: {crashes.counts['kill'].judged} crash states at " in counts_text(crashes)
