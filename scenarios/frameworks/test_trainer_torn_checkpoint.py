"""``Trainer.train(resume_from_checkpoint=True)`` takes the newest directory, however little of it is there.

This is the real ``transformers.Trainer`` (5.23), with DDP; it takes an environment that has it
(``transformers==5.23.0``).

**Report.**  transformers #35525 (open) and #35782: "Auto-resume from checkpoint throws error if last checkpoint is
incomplete".

**Mechanism.**  Each rank makes ``checkpoint-N`` and writes its random state there; rank 0 adds the model, the optimizer
and, last, ``trainer_state.json``.  ``get_last_checkpoint`` looks at the names of directories alone.  So a job that is
killed in a save does not resume, although the checkpoint before is whole.

Seen without racecheck, too: a training that is killed as soon as ``checkpoint-2`` is there, and then resumed, ends in
"Can't find a valid checkpoint at out/checkpoint-2" (3 of 3).

**What must be found.**

- ``last``: killed in its second save, the job does not go on from the first one.
- ``complete``: the same, resumed from the newest checkpoint whose ``trainer_state.json`` can be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import racecheck
from racecheck import Rank, Verdict, consistent_weights, durable_after_ack, old_survives
from racecheck.targets.adapters.huggingface import Trainer
from racecheck.targets.suite import State
from racecheck.targets.suite.driver import Driver

KILLED = ("kill-job on mkdir|open|rename checkpoint-2/** nth=each",)
SURVIVES = (consistent_weights, durable_after_ack, old_survives)


class Complete(Trainer):
    """Resumes from what is complete."""

    def latest(self, root: Path) -> int | None:
        steps = [int(each.name.partition("-")[2]) for each in root.glob("checkpoint-*")]
        return max((step for step in steps if is_complete(root / f"checkpoint-{step}")), default=None)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        return self.resume(root, state, str(root / f"checkpoint-{self.latest(root)}"))


def is_complete(checkpoint: Path) -> bool:
    try:
        return "global_step" in json.loads((checkpoint / "trainer_state.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False


def save_twice(rank: Rank) -> None:
    job = Driver(rank, Trainer)
    for step in (1, 2):
        job.save(step)


@racecheck.scenario(faults=KILLED, invariants=SURVIVES, expected=Verdict.FAIL, breaks="old-survives")
def last(rank: Rank) -> None:
    """Resumed as the documentation says."""
    save_twice(rank)


@last.recover(ranks=1)
def resume_last(rank: Rank) -> None:
    Driver(rank, Trainer).load()


@racecheck.scenario(faults=KILLED, invariants=SURVIVES)
def complete(rank: Rank) -> None:
    """Resumed from the newest that is complete."""
    save_twice(rank)


@complete.recover(ranks=1)
def resume_complete(rank: Rank) -> None:
    Driver(rank, Complete).load()


def test_last(racecheck: Any) -> None:
    racecheck.finds(last, within=10)


def test_complete(racecheck: Any) -> None:
    racecheck.check(complete, schedules=8)
