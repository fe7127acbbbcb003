"""Workers of a Ray cluster (``ray==2.60.0``): nodes on this machine, each with processes of its own.

The result equals the result of one process, also if actors and nodes are lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from racecheck.explore.requests import Search
from racecheck.explore.runs import runs
from racecheck.explore.runs.workers import Worker, Workers
from racecheck.explore.search import explore
from racecheck.frontends.cluster import cores
from racecheck.model import config
from racecheck.sessions.doctor import examination
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.explore.test_workers import SCENARIOS, told
from tests.support.outside import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("scenarios") / "many_runs.py"
    found.write_text(SCENARIOS)
    return found


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with examination.start(config.read().runs) as found:
        yield found


@contextmanager
def nodes(*sizes: int) -> Iterator[Cluster]:
    """Start a cluster of nodes; ``sizes`` are the cores of each."""
    first, *others = sizes
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": first, "include_dashboard": False})
    try:
        for size in others:
            made.add_node(num_cpus=size)
        yield made
    finally:
        made.shutdown()


def relays() -> list[int]:
    """Return the processes of actors that relay."""
    found = subprocess.run(["pgrep", "-f", "^ray::Relay"], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split()]


def worker_processes() -> str:
    return subprocess.run(
        ["pgrep", "-f", "racecheck.frontends.worker"], capture_output=True, text=True, check=False
    ).stdout


def searched(
    session: Session,
    workers: Workers,
    file: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    disturb: Callable[[int], None] = lambda _: None,
    **given: Any,
) -> tuple[int, bool]:
    """Search alone and with workers; return the number of their tasks, and whether the results differ.

    ``disturb`` is called with the number of each task before a worker gets it.
    """
    scenario = resolve.load(f"{file}::{name}")
    search = Search(scenario, scenario.world, scenario.invariants, **given)
    alone = explore(session, search)
    monkeypatch.setattr(runs, "_PATIENCE", 0.0)
    workers.open(config.read(), scenario.reference)
    assert eventually(lambda: workers.answers(0.0) == [] and len([*workers.free()]) == len(workers), 60)
    tasks: list[bytes] = []
    give = workers.give

    def counted(worker: Worker, task: bytes) -> int:
        tasks.append(task)
        disturb(len(tasks))
        return give(worker, task)

    monkeypatch.setattr(workers, "give", counted)
    helped = explore(session, search, workers=workers)
    return len(tasks), told(helped) != told(alone)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("appends", {"strategy": "dpor", "schedules": 400}),
        ("deep", {"schedules": 100, "seed": "3"}),
    ],
)
def test_the_result_does_not_depend_on_the_cluster(
    session: Session, file: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: dict[str, Any]
) -> None:
    with nodes(1, 1, 1) as cluster:
        assert cores(cluster.address) == 3
        with Workers(3, cluster.address) as workers:
            tasks, differ = searched(session, workers, file, name, monkeypatch, **given)
            assert not workers.lost
    assert tasks
    assert not differ
    assert eventually(lambda: not worker_processes()), "nothing is left"


def test_actors_that_are_killed_are_replaced(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []

    def disturb(number: int) -> None:
        if number in {6, 12, 18}:
            assert eventually(lambda: bool(relays()))
            os.kill(relays()[0], signal.SIGKILL)
            killed.append(number)

    with nodes(1, 1) as cluster, Workers(2, cluster.address) as workers:
        given = {"strategy": "random", "schedules": 120}
        tasks, differ = searched(session, workers, file, "sound", monkeypatch, disturb, **given)
        assert not workers.lost
    assert killed == [6, 12, 18]
    assert tasks
    assert not differ


@pytest.mark.slow
def test_a_node_that_is_gone(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes(1) as cluster:
        second = cluster.add_node(num_cpus=1)
        with Workers(2, cluster.address) as workers:
            given = {"strategy": "random", "schedules": 80}

            def disturb(number: int) -> None:
                if number == 6:
                    cluster.remove_node(second, allow_graceful=False)

            tasks, differ = searched(session, workers, file, "sound", monkeypatch, disturb, **given)
    assert tasks
    assert not differ


def test_a_node_that_joins_late(file: Path) -> None:
    with nodes(0) as cluster, Workers(1, cluster.address) as workers:
        workers.open(config.read(), f"{file}::sound")
        assert workers.answers(3.0) == []
        assert not [*workers.free()]
        cluster.add_node(num_cpus=1)
        assert eventually(lambda: workers.answers(0.0) == [] and len([*workers.free()]) == 1, 60)
        assert not workers.lost


def test_nothing_is_left_if_the_command_is_killed(file: Path) -> None:
    with nodes(1, 1) as cluster:
        words = ["run", f"{file}::sound", "--strategy", "random", "--schedules", "5000", "--cluster", cluster.address]
        command = subprocess.Popen(
            [sys.executable, "-m", "racecheck", *words], cwd=file.parent, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert eventually(lambda: len(worker_processes().split()) >= 2, 60)
        command.kill()
        command.wait()
        assert eventually(lambda: not worker_processes(), 60)
        assert eventually(lambda: not relays(), 60)


def test_auto_starts_a_cluster_and_ends_it(file: Path) -> None:
    words = ["run", f"{file}::sound", "--strategy", "random", "--schedules", "150", "--cluster", "auto"]
    command = subprocess.Popen(
        [sys.executable, "-m", "racecheck", *words], cwd=file.parent, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert eventually(lambda: bool(relays()), 60)
    _, said = command.communicate()
    assert (command.returncode, "not used" in said) == (0, False), said
    assert eventually(lambda: not subprocess.run(["pgrep", "raylet"], capture_output=True, check=False).stdout)
