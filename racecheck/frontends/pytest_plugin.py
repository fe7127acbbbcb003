"""The pytest plugin: the fixture ``racecheck``, its options and its marker.

Every pytest of an environment loads it.  So what the fixture needs is a module of its own
(`racecheck.frontends.fixture`), which is imported when a test first asks for it; torch never is, in this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from racecheck.frontends.fixture import Racecheck

_SETTINGS = ("ranks", "schedules", "strategy", "seed", "faults", "sizes", "collectives")
_CURRENT = pytest.StashKey[pytest.Item]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Five options; what a test says itself goes before the first three."""
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
    """Register the marker."""
    settings = ", ".join(f"{name}=..." for name in _SETTINGS)
    config.addinivalue_line("markers", f"racecheck({settings}): world and budget of the racecheck fixture")


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
