"""Seventy runs with fixed seeds have the events, results and files that they have always had.

The digests are of one environment (`ENVIRONMENT`): another Python or torch makes other calls.  There each run is made
twice, and compared with itself.  If a change of an event is meant, `python -m tests.supervisor.test_same_traces` writes
new digests.
"""

from __future__ import annotations

import json
import platform
import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import torch

from racecheck.explore import findings, runner
from racecheck.explore.requests import RunRequest
from racecheck.model import config
from racecheck.model.nouns import Outcome
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.targets.scenarios import make_world
from tests.support.covered import Covered
from tests.support.digests import digests
from tests.support.launching import LAUNCHED, TORCHRUN
from tests.support.targets import target

GOLDEN = Path(__file__).parents[1] / "golden" / "traces.json"
ENVIRONMENT = f"Python {'.'.join(platform.python_version_tuple()[:2])}, torch {torch.__version__.partition('+')[0]}"
SEED = 1
RUNS = {
    "caches": "asked_before removed_while_open renames_into_place both_write moves",
    "channels": "fifo_inside unix_socket pidfd",
    "descriptors": "closed shared_offset",
    "endless": "for_each_other",
    "fault_orders": "two_threads_write parent_and_child_write directory_is_renamed",
    "faulty": "saves_at_once overwrites removes_what_is_open copies allocates",
    "forking": "kept_by_a_fork kills",
    "limits": "runs_out an_hour_beside_half_a_second sooner_first empty_queue heartbeat",
    "locking": "under_a_whole_lock under_shared_record_locks circle converted",
    "nodes": "remove_all takes_turns saves",
    "parts": "exchanges_directories reads_while_another_writes copies_while_another_writes",
    "phases": "rotate resume",
    "sharing": "process_poll two_sets torn_mapping replaced_link key_beside_a_sleep",
    "signalling": "by_number handles_children starved_peer",
    "stores": "every_operation queue_of_the_group",
    "threads": "nested uploads same_group_in_two_threads",
    "timers": "dies",
    "times": "clocks",
    "worlds": "point_to_point functional mismatched crashes leaves polls survivors_go_on",
}
FAULTS = {
    "EIO": ("faulty", "unchecked", "EIO on write"),
    "full disk": ("faulty", "in_place", "full bytes=5"),
    "kill": ("faulty", "renamed", "kill on rename when=after"),
    "kill-job": ("faulty", "writes_again", "kill-job on write nth=2"),
    "slow": ("locking", "under_a_whole_lock", "slow on write seconds=3"),
    "term": ("faulty", "impatient", "term on rename"),
}
RECORDED = (("recording", "everything"), ("recording", "per_node"), ("crashing", "on_two_nodes"))
COMMANDS = ("train.py --overwrite",)


def cases() -> list[str]:
    plain = [f"{file}::{name}" for file, names in RUNS.items() for name in names.split()]
    return [
        *plain,
        *(f"fault: {each}" for each in FAULTS),
        *(f"recorded: {name}" for _, name in RECORDED),
        *(f"command: {each}" for each in COMMANDS),
    ]


def made(session: Session, case: str) -> tuple[list[str], list[str]]:
    """The digests and the texts of a case's run."""
    kind, _, name = case.partition(": ")
    if kind == "command":
        return command(name)
    if kind == "fault":
        file, name, spec = FAULTS[name]
        return digests(run(session, file, name, spec))
    if kind == "recorded":
        file = next(file for file, each in RECORDED if each == name)
        recorder = Recorder(session.slot.path / "blobs")
        try:
            return digests(run(session, file, name, recorder=recorder), recorder)
        finally:
            recorder.close()
    return digests(run(session, *case.split("::")))


def command(words: str) -> tuple[list[str], list[str]]:
    """The digests and the texts of the finding of a launch command."""
    with TemporaryDirectory() as root:
        project, found = Path(root) / "project", Path(root) / "findings"
        shutil.copytree(LAUNCHED, project)
        found.mkdir()
        with closing(Covered(found)) as covered:
            _, text = covered.run(["run", "--json", "--explain", 0, *TORCHRUN, *words.split()], project, found)
        finding = findings.load(Path(json.loads(text)["violations"][0]["finding"]))
        return digests(finding.outcome, root=root)


def run(session: Session, file: str, name: str, fault: str = "", recorder: Recorder | None = None) -> Outcome:
    scenario = target(file, name)
    world = make_world(scenario.world, faults=(fault,) if fault else None)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    walk = RandomWalk()
    walk.begin(Random(SEED))
    return runner.run(session, RunRequest.of(scenario, world, walk, seed="0", stacks=recorder is None), recorder)


@pytest.mark.parametrize("case", cases())
def test_a_run_has_the_events_that_it_has_always_had(session: Session, case: str) -> None:
    now, texts = made(session, case)
    golden = json.loads(GOLDEN.read_text())
    before = golden["runs"][case].split() if golden["environment"] == ENVIRONMENT else made(session, case)[0]
    changed = [text for one, other, text in zip(before, now, texts, strict=False) if one != other]
    assert not changed, f"{len(changed)} parts are different; the first is now {changed[0]}"
    assert len(now) == len(before)


def main() -> None:
    with Session(config.read().runs) as session:
        runs = {each: " ".join(made(session, each)[0]) for each in cases()}
    GOLDEN.write_text(json.dumps({"environment": ENVIRONMENT, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
