"""Each scenario once at full speed: its outcome must be something that exploring finds, too.

Otherwise control has taken something away from the program, and a PASS would say nothing.

With 2 ranks no scenario has more than seven effects, and of 400 schedules each, the rarest came from one in
a hundred.  So the half of `BUDGET` schedules misses an effect that a free run has had with a probability of at most
0.99 ** 500 = 0.7%, and free runs have the rare ones rarely, too (one in a hundred): a false alarm in 15,000 runs.
The common effects take a few schedules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import racecheck
from racecheck import CannotRun, Outcome, Rank, Scenario, UsageError, World, storage
from racecheck.agent.job import show_gpus
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model import compare
from racecheck.model.nouns import Event, Point, Returned
from racecheck.scheduling.strategies import PCT
from racecheck.sessions import session as world_session
from racecheck.sessions.session import Session
from racecheck.supervisor.free import full_speed
from racecheck.targets import resolve
from racecheck.targets.launched import Launched
from racecheck.targets.scenarios import make_world

BUDGET = 1000
HERE = Path(__file__)
FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("test_*.py"))
SCENARIOS = [
    each
    for file in FILES
    for each in resolve.scenarios_in(resolve.load_file(file))
    if not isinstance(each, Launched)
    and not (storage.make(each.world).per_node or storage.view(each.world) or each.world.skew or each.world.faults)
]
"""Without control there is one disk, one clock, and nothing that goes wrong."""
RANDOM_CONTENT = (".metadata",)
"""DCP's metadata has an id in it that is random where nobody answers ``getrandom`` from a seed."""


class Bursts:
    """Carries on with the same thread, or not, with a probability that is drawn for each run.

    Uncontrolled ranks run in bursts, too; a random walk hardly ever does.
    """

    def begin(self, rng: Random) -> bool:
        self._rng, self._carry_on = rng, rng.choice([0.0, 0.5, 0.8, 0.95])
        return True

    def choose(self, point: Point) -> int:
        return 0 if self._rng.random() < self._carry_on else self._rng.randrange(len(point.options))

    def end(self, trace: tuple[Event, ...]) -> None:
        pass


def effect(outcome: Outcome) -> object:
    """What came of a run, comparable between free and controlled ones."""
    disk = {
        path: replace(entry, digest="") if path.endswith(RANDOM_CONTENT) else entry
        for path, entry in outcome.disk.items()
    }
    return compare.effect(replace(outcome, disk=disk))


def explored(session: Session, scenario: Scenario, world: World) -> Iterator[Outcome]:
    """The outcomes of `BUDGET` schedules, one after another.

    Every other one is strictly by priority: that two saves happen to come to all their collectives in the same order
    is what two of three of those do, and no burst in a thousand.
    """
    strategies = Bursts(), PCT(depth=1)
    for number in range(BUDGET):
        strategy = strategies[number % 2]
        strategy.begin(Random(f"uncontrolled:{number}"))
        yield runner.run(session, RunRequest.of(scenario, world, strategy, seed="0", stacks=False))


MECHANISMS = {
    "unguarded": "two ranks make and remove one directory",
    "check_then_make": "a check before a mkdir",
    "exist_ok": "makedirs that may find it",
    "errors_passed_over": "a removal that ignores errors",
    "one_temporary_name": "a rename into place",
    "staged": "files by several ranks, then a rename",
    "wait_for_file": "a poll",
    "all_lock": "file locks",
    "broadcast": "a collective that decides",
    "own_groups": "threads with groups of their own",
    "live_tensors": "a thread that writes what the rank changes",
    "loaded_at_once": "a reader beside the writers",
}
"""A scenario for each; the others are ``slow``."""


def parameter(scenario: Scenario) -> Any:
    """A scenario as the parameter of a test."""
    return pytest.param(scenario, marks=() if scenario.name in MECHANISMS else pytest.mark.slow, id=scenario.name)


def test_each_mechanism_has_a_scenario() -> None:
    assert MECHANISMS.keys() <= {each.name for each in SCENARIOS}


@pytest.mark.parametrize("scenario", [*map(parameter, SCENARIOS)])
def test_a_free_run_is_among_the_explored(session: Session, scenario: Scenario) -> None:
    world = make_world(scenario.world, ranks=2, timeout=10)
    session.request("import", target=scenario.reference)
    ran = full_speed.run(session, scenario.reference, world, seed="0")
    happened, has_failed = effect(ran), not all(isinstance(each, Returned) for each in ran.results)
    assert any(
        effect(outcome) == happened or (outcome.mismatch and has_failed)  # what gloo makes of that is stopped before
        for outcome in explored(session, scenario, world)
    )


@pytest.mark.parametrize(("gpus", "backend"), [(0, "gloo"), (1, "gloo"), (2, "nccl")])
def test_auto_takes_nccl_where_each_rank_has_a_gpu(
    session: Session, monkeypatch: pytest.MonkeyPatch, gpus: int, backend: str
) -> None:
    def job(_: str, world: World, __: str, **___: bool) -> None:
        raise CannotRun(f"asked for {world.backend}")

    monkeypatch.setitem(vars(session), "gpus", gpus)  # a cached property
    monkeypatch.setattr(session, "job", job)
    with pytest.raises(CannotRun, match=f"asked for {backend}"):
        full_speed.run(session, f"{HERE}::saves", World(backend="auto"), seed="0")


def test_nccl_needs_a_gpu_for_each_rank_and_is_not_controlled(session: Session) -> None:
    """Here one that has as many GPUs as there will ever be."""
    with pytest.raises(CannotRun, match=r"^NCCL needs a GPU for each of 512 ranks; this machine has \d+: use fewer "):
        full_speed.run(session, f"{HERE}::saves", World(ranks=512, backend="nccl"), seed="0")
    with pytest.raises(UsageError, match="NCCL uses this machine's GPUs: drop --nodes"):
        full_speed.run(session, f"{HERE}::saves", World(nodes=2, backend="nccl"), seed="0")
    with pytest.raises(UsageError, match=r"cannot be controlled .its waits spin.: add --mode free, or use gloo"):
        session.job("", World(backend="nccl"), "0", controlled=True)
    assert session.job("", World(backend="auto"), "0", controlled=True).backend == "gloo"


@racecheck.scenario(backend="auto")
def saves(rank: Rank) -> float:
    """The tensors are where the group's backend takes them."""
    import torch
    import torch.distributed as dist

    ones = torch.ones(1, device="cuda" if "nccl" in dist.get_backend_config() else "cpu")
    dist.all_reduce(ones)
    torch.save(ones, rank.path / f"{rank.rank}.pt")
    return float(ones)


def test_what_runs_with_either_backend_says_with_which(session: Session) -> None:
    session.request("import", target=f"{HERE}::saves")
    outcome = full_speed.run(session, f"{HERE}::saves", World(backend="auto"), seed="0")
    assert [each.value for each in outcome.results if isinstance(each, Returned)] == [2.0, 2.0]
    assert outcome.world.backend in {"gloo", "nccl"}
    assert outcome.coverage.notes == {f"free mode: nothing was controlled ({outcome.world.backend})": 1}


@pytest.mark.parametrize("visible", ["3,4", "", None])
def test_ranks_with_nccl_see_the_gpus_of_the_caller_and_others_none(
    monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(os, "environ", {**os.environ, **world_session.environment()})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    show_gpus()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible
