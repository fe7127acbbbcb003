"""One model and its optimizer, from one seed: saved by a checkpointer, and loaded, also by other numbers of ranks."""

from __future__ import annotations

from functools import cache
from random import Random

from racecheck.explore import runner
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Outcome, Point, Weights
from racecheck.scheduling.strategies.following.switches import Switches
from racecheck.sessions.session import Session
from racecheck.supervisor.one_run import Supervisor
from racecheck.targets import resolve
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import protocol

PATIENT = 120.0
"""Seconds that a daemon may take to come up."""
_LATER = 100
"""The step that the recovery of the check "kill" saves."""


def explored(session: Session, target: str, *faults: str, schedules: int = 1) -> Report:
    """A search of a check, with these faults instead of its own."""
    scenario = resolve.load(target)
    world = make_world(scenario.world, faults=faults or None, timeout=PATIENT)
    return explore(session, Search(scenario, world, scenario.invariants, schedules=schedules))


def loaded(outcome: Outcome | None, step: int) -> list[Weights]:
    assert outcome is not None
    found = [each for each in outcome.weights if each.kind == "loaded" and each.step == step]
    return sorted(found, key=lambda each: each.rank)


def assert_equal(name: str, found: list[Weights], wanted: dict[str, str], ranks: int) -> None:
    """Each rank has loaded all that the checkpointer saves, bit for bit."""
    parts = tuple(f"{part}." for part in protocol.parts_of(resolve.checkpointer(name)))
    due = {key: digest for key, digest in wanted.items() if key.startswith(parts)}
    assert len(due) >= 4
    assert [dict(each.tensors) for each in found] == [due] * ranks


def assert_resharded(session: Session, name: str) -> None:
    """Saved by four ranks, loaded and saved by two, loaded by four: bit for bit what any other one loads, on each."""
    two, four = resharded(session, name)
    wanted_by_two, wanted_by_four = reference(session)
    assert_equal(name, two, wanted_by_two, ranks=2)
    assert_equal(name, four, wanted_by_four, ranks=4)


def resharded(session: Session, name: str) -> tuple[list[Weights], list[Weights]]:
    """Four ranks save step 2, two load it and save the next one, which four load: what the two and the four loaded."""
    scenario = resolve.load(f"{name}[kill]")
    scenario.recovering = {"ranks": 2, "nodes": 1}
    world = make_world(scenario.world, ranks=4, faults=(), timeout=PATIENT)
    saved = runner.run(session, RunRequest.of(scenario, world, by_default(world.ranks), seed="0", stacks=False))
    again = Supervisor(session, scenario.reference, world, first, seed="0", stacks=False, recovering=True).run()
    return loaded(saved.recovery, step=2), loaded(again, step=_LATER)


@cache
def reference(session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """What is to be loaded of both steps: what the plainest checkpointer that waits loads."""
    two, four = resharded(session, "torch-rename")
    return dict(two[0].tensors), dict(four[0].tensors)


def by_default(ranks: int) -> Switches:
    strategy = Switches().within(ranks)
    strategy.begin(Random(0))
    return strategy


def first(_: Point) -> int:
    return 0
