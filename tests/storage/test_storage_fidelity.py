"""Storage with caches changes nothing for one node alone: the battery of tests/supervisor/test_fidelity.py on such storage."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Returned
from racecheck.scheduling.strategies import RoundRobin
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.programs import fidelity_raw
from tests.support.fidelity import battery, differences

NFS = {
    "renaming", "hard_links", "changes", "dots", "odd_names", "proc_paths",
}  # fmt: skip
"""Programs that use renameat2's flags, or count the names of a file that is removed while it is open."""


def answers(session: Session, storage: str) -> dict[str, Any]:
    strategy = RoundRobin()
    strategy.begin(Random(0))
    world = make_world(battery.world, storage=storage)
    (result,) = runner.run(session, RunRequest.of(battery, world, strategy, seed="0", stacks=False)).results
    assert isinstance(result, Returned), result
    found: dict[str, Any] = fidelity_raw.unpacked(result.value)
    return found


@pytest.fixture(scope="module")
def plain(session: Session) -> dict[str, Any]:
    return answers(session, "shared")


def test_a_fuse_mount(session: Session, plain: dict[str, Any]) -> None:
    assert not list(differences(plain, answers(session, "incoherent-fuse")))


def test_nfs(session: Session, plain: dict[str, Any]) -> None:
    found = answers(session, "nfs")
    assert {name for name in plain if found[name] != plain[name]} <= NFS
    assert found["renaming"] != plain["renaming"]
