"""The pytest plugin: the fixture ``racecheck``, its options and its marker.

Thin: what it needs is imported when a test first asks for it, and torch never in this process.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from racecheck.model import Invariant
    from racecheck.search import Report, Search
    from racecheck.targets import Scenario
    from racecheck.world.session import Session

_SETTINGS = ("ranks", "schedules", "strategy", "seed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Three options; what a test says itself goes before the first two."""
    add = parser.getgroup("racecheck", "race conditions in distributed checkpoint code").addoption
    add("--racecheck-schedules", type=int, metavar="N", help="The most schedules of a check (100).")
    add("--racecheck-seed", metavar="SEED", help="What everything random is drawn from (0).")
    add("--racecheck-timeout", type=float, metavar="SECONDS", help="Replaces the timeout of worlds.")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    settings = ", ".join(f"{name}=..." for name in _SETTINGS)
    config.addinivalue_line("markers", f"racecheck({settings}): world and budget of the racecheck fixture")


class Sessions:
    """The session of this process: started at first use, replaced after it has failed."""

    def __init__(self) -> None:
        self._session: Session | None = None

    @contextmanager
    def use(self) -> Iterator[Session]:
        """Raises `CannotRun` where there can be none."""
        from racecheck import config, doctor, errors  # noqa: PLC0415

        if self._session is None:
            self._session = doctor.start(config.read().runs)
        try:
            yield self._session
        except errors.UsageError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The next use starts another session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


@pytest.fixture(scope="session")
def _racecheck_sessions() -> Iterator[Sessions]:
    sessions = Sessions()
    yield sessions
    sessions.close()


@pytest.fixture(name="racecheck")
def fixture(request: pytest.FixtureRequest, _racecheck_sessions: Sessions) -> Racecheck:
    """Explore scenarios in a test: `Racecheck.check` and `Racecheck.finds`."""
    return Racecheck(request, _racecheck_sessions)


class Racecheck:
    """The fixture.  It has the names of the package too, which it hides in a test: ``racecheck.no_deadlock``.

    A setting is what the call says, else the test's marker, else the command line, else the default.
    """

    def __init__(self, request: pytest.FixtureRequest, sessions: Sessions) -> None:
        self._request = request
        self._sessions = sessions

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["racecheck"], name)

    def check(
        self,
        scenario: Scenario,
        *,
        invariants: Sequence[Invariant] | None = None,
        ranks: int | None = None,
        schedules: int | None = None,
        strategy: str | None = None,
        seed: int | str | None = None,
    ) -> Report:
        """Explore a scenario; the test fails unless it is a PASS, with the interleaving or the reasons."""
        given = {"ranks": ranks, "schedules": schedules, "strategy": strategy, "seed": seed}
        report, text = self._explore(scenario, invariants, given)
        if report.verdict.name != "PASS":
            pytest.fail(text, pytrace=False)
        return self._passed(report, text)

    def finds(
        self,
        scenario: Scenario,
        invariant: str | Invariant | None = None,
        within: int = 20,
        *,
        ranks: int | None = None,
        strategy: str | None = None,
        seed: int | str | None = None,
    ) -> Report:
        """Explore a scenario that documents a bug.

        The test fails unless ``invariant`` (a name or the function; default: what the scenario ``breaks``) is
        violated within so many schedules.
        """
        given = {"ranks": ranks, "schedules": within, "strategy": strategy, "seed": seed}
        wanted, invariants = _wanted(scenario, invariant)
        report, text = self._explore(scenario, invariants, given)
        if wanted not in [each.violation.invariant for each in report.violations]:
            pytest.fail(f"{wanted} was to be broken within {within} schedules\n\n{text}", pytrace=False)
        return self._passed(report, text)

    def _passed(self, report: Report, text: str) -> Report:
        """For ``pytest -rP``: a PASS has to say what it did not cover."""
        self._request.node.add_report_section("call", "racecheck", text)
        return report

    def _explore(
        self, scenario: Scenario, invariants: Sequence[Invariant] | None, given: dict[str, Any]
    ) -> tuple[Report, str]:
        """The report and its text; where there is none, the test fails."""
        from racecheck import errors, results  # noqa: PLC0415
        from racecheck.search import explore  # noqa: PLC0415

        try:
            search = self._search(scenario, invariants, given)
            with self._sessions.use() as session:
                report = explore(session, search)
        except errors.UsageError as error:
            wrong = f"racecheck: {error}"
        except (errors.CannotRun, errors.InternalError) as error:
            wrong = f"UNKNOWN  {error}"
        else:
            if report.interrupted:
                raise KeyboardInterrupt
            page = results.Page(shutil.get_terminal_size((120, 24)).columns)
            return report, results.search_text(report, search.schedules, page)
        pytest.fail(wrong, pytrace=False)

    def _search(self, scenario: Scenario, invariants: Sequence[Invariant] | None, given: dict[str, Any]) -> Search:
        """Raises `UsageError`."""
        from racecheck import config, search, strategies, targets  # noqa: PLC0415

        _check_scenario(scenario)
        option = self._request.config.getoption
        chosen = {
            "schedules": 100,
            "strategy": strategies.DEFAULT,
            "seed": "0",
            "ranks": None,
            **_set({"schedules": option("racecheck_schedules"), "seed": option("racecheck_seed")}),
            **self._marked(),
            **_set(given),
        }
        timeout = option("racecheck_timeout")
        world = targets.make_world(scenario.world, ranks=chosen["ranks"], timeout=timeout)
        return search.Search(
            scenario,
            world,
            scenario.invariants if invariants is None else tuple(invariants),
            strategy=chosen["strategy"],
            schedules=chosen["schedules"],
            seed=str(chosen["seed"]),
            findings=self._request.config.rootpath / config.read().findings,
        )

    def _marked(self) -> dict[str, Any]:
        from racecheck.errors import UsageError  # noqa: PLC0415

        marker = self._request.node.get_closest_marker("racecheck")
        if marker is None:
            return {}
        wrong = [*map(repr, marker.args), *sorted(set(marker.kwargs) - set(_SETTINGS))]
        if wrong:
            known, unknown = ", ".join(_SETTINGS), ", ".join(wrong)
            raise UsageError(f"the racecheck marker takes {known} by name, not {unknown}")
        return _set(marker.kwargs)


def _set(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _check_scenario(given: object) -> None:
    from racecheck import errors, targets  # noqa: PLC0415

    if not isinstance(given, targets.Scenario):
        raise errors.UsageError(f"{given!r} is no scenario: decorate the function with racecheck.scenario()")


def _wanted(scenario: Scenario, invariant: str | Invariant | None) -> tuple[str, tuple[Invariant, ...]]:
    """The name of the invariant that is to be broken, and all that are asked."""
    from racecheck.invariants import name_of  # noqa: PLC0415

    asked = tuple(scenario.invariants)
    if callable(invariant) and name_of(invariant) not in map(name_of, asked):
        asked = (*asked, invariant)
    wanted = name_of(invariant) if callable(invariant) else invariant or scenario.breaks
    known = [name_of(each) for each in asked]
    if wanted not in known:
        what = f"invariant {wanted!r}" if wanted else "invariant that it `breaks`"
        names = ", ".join(known)
        pytest.fail(f"racecheck: {scenario.target} has no {what}: name one of {names}", pytrace=False)
    return wanted, asked
