"""Control changes nothing: each program of the battery has the same answers in an ordinary process and in a controlled rank.

The programs are in tests/programs/fidelity_*.py.  They differ from an ordinary run only in the numbers of descriptors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck.explore import findings, runner
from racecheck.explore.requests import RunRequest
from racecheck.kernel.trees import wipe
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Outcome, Returned
from racecheck.scheduling.strategies import RoundRobin
from racecheck.sessions.session import Session
from tests.programs import fidelity_raw
from tests.support.fidelity import battery, differences
from tests.support.sample_finding import FULL
from tests.support.targets import TARGETS

HOLES = {
    "a descriptor of a watched file that is sent to another process",
    "a file handle of a watched file",
    "a socket bound below the watched directory",
    "a writable shared mapping of a watched file",
    "getdents on a watched file",
    "getxattrat on a watched file",
    "splice on a watched file",
}
"""What the battery does on purpose and the coverage has to own up to."""


@dataclass(frozen=True)
class Ran:
    """What a run of the battery gave, and what it left."""

    answers: dict[str, Any]
    left: dict[str, Any]


@pytest.fixture(scope="module")
def plain(session: Session) -> Iterator[Ran]:
    """In an ordinary process, in a directory whose path is as long as the watched one's, on the same file system."""
    watched = str(session.slot.watched)
    base = session.slot.path.parent
    directory = base / str(os.getpid()).rjust(len(watched) - len(str(base)) - 1, "_")
    directory.mkdir()
    try:
        command = [sys.executable, str(TARGETS / "fidelity.py"), str(directory)]
        path = os.pathsep.join(each for each in sys.path if each)
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
        yield Ran(json.loads(done.stdout), left_in(directory))
    finally:
        wipe(directory)


def left_in(directory: Path) -> dict[str, Any]:
    """Every file below a directory, without the directory's own path in what links say."""
    text = json.dumps(fidelity_raw.tree(str(directory)))
    return json.loads(text.replace(str(directory), "<directory>"))  # type: ignore[no-any-return]


def run(session: Session, *, stacks: bool) -> tuple[Outcome, Ran]:
    strategy = RoundRobin()
    strategy.begin(Random(0))
    outcome = runner.run(session, RunRequest.of(battery, battery.world, strategy, seed="0", stacks=stacks))
    (result,) = outcome.results
    assert isinstance(result, Returned), result
    return outcome, Ran(fidelity_raw.unpacked(result.value), left_in(session.slot.watched))


@pytest.fixture(scope="module")
def outcomes(session: Session) -> dict[bool, tuple[Outcome, Ran]]:
    """Under control, without stacks and with."""
    return {stacks: run(session, stacks=stacks) for stacks in (False, True)}


@pytest.mark.parametrize("stacks", [False, True], ids=["", "stacks"])
@pytest.mark.parametrize("name", fidelity_raw.PROGRAMS)
def test_a_program_returns_the_same_under_control(
    plain: Ran, outcomes: dict[bool, tuple[Outcome, Ran]], name: str, stacks: bool
) -> None:
    expected, found = plain.answers[name], outcomes[stacks][1].answers[name]
    assert not isinstance(expected, str), f"the program itself is broken: {expected}"
    assert not list(differences(expected, found))


def test_it_leaves_the_same_files(plain: Ran, outcomes: dict[bool, tuple[Outcome, Ran]]) -> None:
    assert len(plain.left) > 10_000
    for _, ran in outcomes.values():
        assert not list(differences(plain.left, ran.left))


def test_it_runs_the_same_way_twice(outcomes: dict[bool, tuple[Outcome, Ran]]) -> None:
    """Op by op: no number of an inode, a process or a descriptor, and no time has found its way into the trace."""
    (without, _), (having, _) = outcomes.values()
    assert len(without.ops) > 5_000
    assert first_difference(without, having) == ""
    assert all(op.stack is None for op in without.ops)


def test_a_finding_with_these_ops_comes_back(outcomes: dict[bool, tuple[Outcome, Ran]]) -> None:
    for outcome, _ in outcomes.values():
        finding = replace(FULL, outcome=outcome, pair=(), constraints=())
        assert findings.decode(findings.encode(finding)) == finding


def test_the_coverage_owns_up(outcomes: dict[bool, tuple[Outcome, Ran]]) -> None:
    for outcome, _ in outcomes.values():
        assert set(outcome.coverage.holes) == HOLES
