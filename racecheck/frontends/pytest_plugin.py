"""The pytest plugin: the fixture ``racecheck``, its options and its marker.

Every pytest of an environment loads it.  So what the fixture needs is a module of its own
(`racecheck.frontends.fixture`), which is imported when a test first asks for it; torch never is, in this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from racecheck.model import config as paths

if TYPE_CHECKING:
    from racecheck.frontends.fixture import Racecheck

_SETTINGS = (
    "ranks", "nodes", "storage", "schedules", "strategy", "seed", "faults", "sizes", "collectives", "invariants",
    "world",
)  # fmt: skip
_CURRENT = pytest.StashKey[pytest.Item]()
_BEFORE = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Five options; a test's own settings go before the first three."""
    add = parser.getgroup("racecheck", "race conditions in distributed checkpoint code").addoption
    add("--racecheck-schedules", type=int, metavar="N", help="Maximum number of schedules of a check (100).")
    add("--racecheck-seed", metavar="SEED", help="Random seed (0).")
    add(
        "--racecheck-collectives",
        metavar="KIND",
        help="When collectives return: gloo, or weakest (as early as MPI and NCCL allow).",
    )
    add(
        "--racecheck-explain", type=float, metavar="SECONDS", default=20.0,
        help="Time budget of the explanation of a failing check in seconds (20); 0 turns it off.",
    )  # fmt: skip
    add("--racecheck-timeout", type=float, metavar="SECONDS", help="Timeout in seconds for every world.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and let relative paths begin in pytest's root directory."""
    config.stash[_BEFORE] = paths.begin_in(config.rootpath)
    settings = ", ".join(f"{name}=..." for name in _SETTINGS)
    config.addinivalue_line("markers", f"racecheck({settings}): world and budget of the racecheck fixture")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let relative paths begin where they did before."""
    paths.begin_in(config.stash[_BEFORE])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell the fixture which test it is for."""
    item.config.stash[_CURRENT] = item


@pytest.fixture(name="racecheck", scope="session")
def fixture(pytestconfig: pytest.Config) -> Iterator[Racecheck]:
    """Explore scenarios in a test: `Racecheck.check` and `Racecheck.finds`.

    It keeps nothing of a test, so one is enough; hypothesis asks for that, which runs a test many times.
    """
    made: Racecheck = importlib.import_module("racecheck.frontends.fixture").Racecheck(
        pytestconfig, lambda: pytestconfig.stash[_CURRENT], _SETTINGS
    )
    yield made
    made.close()
