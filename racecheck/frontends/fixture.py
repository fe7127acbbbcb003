"""The fixture ``racecheck``, which a test asks for."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import racecheck
from racecheck.explore.current_session import HERE
from racecheck.explore.observed_saves import FOR_OBSERVED
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.frontends.apart import Apart, AskedSearch, ask
from racecheck.frontends.interrupts import as_interrupt
from racecheck.invariants import name_of
from racecheck.model import config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import Fault, Invariant, Outcome, World
from racecheck.report.picture.document import write
from racecheck.report.results import Page, search_text, verdict_text
from racecheck.scheduling import strategies
from racecheck.scheduling.strategies import Strategy
from racecheck.targets.launched import Launched
from racecheck.targets.scenarios import Scenario, checked_seed, make_world

_PACKAGE = Path(racecheck.__file__).parent
_OF_WORLDS = ("ranks", "nodes", "storage")
"""Settings that a world has already."""


class Racecheck:
    """The fixture.  It has the names of the package too, which it hides in a test: ``racecheck.no_deadlock``.

    A setting is the call's argument, else the test's marker, else the command line, else the default.
    """

    def __init__(self, config: pytest.Config, current: Callable[[], pytest.Item], settings: Sequence[str]) -> None:
        """Set the test that runs now (``current``) and the ``settings`` of its marker."""
        self._config, self._current, self._settings = config, current, settings
        self._apart = Apart(config.rootpath)

    def close(self) -> None:
        """End the sessions that it used."""
        HERE.close()
        self._apart.close()

    def __repr__(self) -> str:
        """Return the argument as hypothesis shows it in a failing example."""
        return "racecheck"

    def __getattr__(self, name: str) -> Any:
        return getattr(racecheck, name)

    def check(
        self,
        scenario: Scenario,
        *,
        invariants: Sequence[Invariant] | None = None,
        ranks: int | None = None,
        nodes: int | None = None,
        storage: str | None = None,
        schedules: int | None = None,
        strategy: str | None = None,
        seed: int | str | None = None,
        faults: Sequence[str | Fault] | None = None,
        sizes: Mapping[str, int] | None = None,
        collectives: str | None = None,
        schedule: Strategy | None = None,
        world: World | None = None,
        explain: float | None = None,
        html: Path | None = None,
        **unknown: object,
    ) -> Report:
        """Explore a scenario, or run it once under a ``schedule`` that hypothesis has drawn.

        ``faults`` are as on the command line (`racecheck.faults`), ``sizes`` some of the scenario's by
        name; ``collectives="weakest"`` lets ranks continue as early as MPI and NCCL allow; ``explain`` is the time for
        an explanation in seconds.  The test fails unless it is a PASS, with the interleaving or the reasons; the
        picture of a FAIL goes to the file ``html``, if one is named.
        """
        given: dict[str, Any] = {
            "ranks": ranks, "nodes": nodes, "storage": storage, "schedules": schedules, "strategy": strategy,
            "seed": seed, "faults": faults, "sizes": sizes, "collectives": collectives, "world": world,
            "invariants": invariants,
        }  # fmt: skip
        _check_known(unknown, [*given, "schedule", "explain", "html"])
        if schedule is not None:
            search = self._single(scenario, given)
            return racecheck.check(
                scenario, schedule=schedule, world=search.world, invariants=search.invariants, seed=search.seed,
                findings=search.findings, html=html,
            )  # fmt: skip
        report, text = self._explore(scenario, given, explain=self._seconds(explain))
        if report.verdict.name != "PASS":
            if report.finding is not None:  # a property of the test in JUnit XML
                self._current().user_properties.append(("finding", str(report.finding)))
            if html is not None and report.finding is not None:
                write(report.finding, html)
            raise _failure(text)
        return self._passed(report, text)

    def finds(
        self,
        scenario: Scenario,
        invariant: str | Invariant | None = None,
        within: int = 20,
        *,
        invariants: Sequence[Invariant] | None = None,
        ranks: int | None = None,
        nodes: int | None = None,
        storage: str | None = None,
        strategy: str | None = None,
        seed: int | str | None = None,
        faults: Sequence[str | Fault] | None = None,
        sizes: Mapping[str, int] | None = None,
        collectives: str | None = None,
        world: World | None = None,
        explain: float = 0.0,
        **unknown: object,
    ) -> Report:
        """Explore a scenario that documents a bug, until that is found.

        The test fails unless ``invariant`` (a name or the function; default: what the scenario ``breaks``) is
        violated within ``within`` schedules; violations of other invariants do not end the search.  The rest is as in
        `check`.
        """
        given: dict[str, Any] = {
            "ranks": ranks, "nodes": nodes, "storage": storage, "schedules": within, "strategy": strategy,
            "seed": seed, "faults": faults, "sizes": sizes, "collectives": collectives, "world": world,
        }  # fmt: skip
        _check_known(unknown, [*given, "invariants", "explain"])
        wanted, given["invariants"] = _wanted(scenario, invariant, self._asked(scenario, invariants))
        report, text = self._explore(scenario, given, until=wanted, explain=self._seconds(explain))
        if wanted not in [each.violation.invariant for each in report.violations]:
            raise _failure(f"expected a violation of {wanted} within {within} schedules; found none\n\n{text}")
        return self._passed(report, text)

    def run(
        self,
        scenario: Scenario,
        *,
        schedule: Strategy | None = None,
        world: World | None = None,
        ranks: int | None = None,
        seed: int | str | None = None,
        contents: bool = False,
    ) -> Outcome:
        """Return the outcome of a scenario under one schedule (default: the default), for a test's own properties."""
        search = self._single(scenario, {"ranks": ranks, "seed": seed, "world": world})
        return racecheck.run(scenario, schedule=schedule, world=search.world, seed=search.seed, contents=contents)

    def explored(
        self, scenario: Scenario, *, schedules: int | None = None, strategy: str | None = None
    ) -> tuple[Report, str]:
        """Return the outcome of a scenario, all that it breaks, and that as text."""
        return self._explore(scenario, {"schedules": schedules, "strategy": strategy}, keep_going=True)

    def _asked(self, scenario: Scenario, invariants: Sequence[Invariant] | None) -> tuple[Invariant, ...]:
        """Return the invariants of a call, else of the marker, else of the scenario; the test fails for no scenario."""
        try:
            _check_scenario(scenario)
            given = (invariants, self._marked().get("invariants"), scenario.invariants)
            return tuple(next(each for each in given if each is not None))
        except UsageError as error:
            wrong = f"racecheck: {error}"
        raise _failure(wrong)

    def _seconds(self, explain: float | None) -> float:
        """Return the time for an explanation; the test fails if it is none."""
        seconds: float = self._config.getoption("racecheck_explain") if explain is None else explain
        if not seconds >= 0:
            name = "--racecheck-explain" if explain is None else "explain="
            raise _failure(f"racecheck: {name} must be at least 0 seconds, not {seconds}")
        return seconds

    def _single(self, scenario: Scenario, given: dict[str, Any]) -> Search:
        """Return the world, invariants and seed of one run."""
        try:
            if _set(given).keys() & {"schedules", "strategy"}:
                raise UsageError("a schedule means one run: leave out schedules= and strategy=")
            return self._search(scenario, self._chosen(scenario, given))
        except UsageError as error:
            wrong = f"racecheck: {error}"
        raise _failure(wrong)

    def _passed(self, report: Report, text: str) -> Report:
        """Print the parts that a PASS did not cover, for ``pytest -rP``."""
        self._current().add_report_section("call", "racecheck", text)
        return report

    def _explore(
        self,
        scenario: Scenario,
        given: dict[str, Any],
        *,
        keep_going: bool = False,
        until: str = "",
        explain: float = 0.0,
    ) -> tuple[Report, str]:
        """Return the report and its text; where there is none, the test fails.

        Ctrl-C in an explanation leaves its finished part, and the test is the last one.
        """
        page = Page(shutil.get_terminal_size((120, 24)).columns)
        budget = 0

        def announce(report: Report) -> None:
            self._say(verdict_text(report, budget, page))

        try:
            chosen = self._chosen(scenario, given)
            budget = chosen["schedules"]
            if isinstance(scenario, Launched):
                asked = self._launched(scenario, chosen, keep_going=keep_going, until=until, explain=explain)
                report = self._apart.explore(asked, announce)
            else:
                found = self._search(scenario, chosen)
                with as_interrupt(signal.SIGTERM), HERE.use() as session:
                    search = replace(found, keep_going=keep_going, until=until, explain=explain)
                    report = explore(session, search, announce=announce)
        except UsageError as error:
            wrong = f"racecheck: {error}"
        except (CannotRun, InternalError) as error:
            wrong = f"UNKNOWN  {error}"
        else:
            if report.interrupted:
                raise KeyboardInterrupt
            if report.is_cut_short:
                self._current().session.shouldstop = "interrupted"
            return report, search_text(report, budget, page)
        raise _failure(wrong)

    def _say(self, text: str) -> None:
        """Print in the terminal, at once; a worker of xdist has none."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if reporter is None:
            return
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(text)
            reporter.flush()

    def _chosen(self, scenario: Scenario, given: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a search; raises `UsageError`."""
        _check_scenario(scenario)
        marked, given, option = self._marked(), _set(given), self._config.getoption
        for said in (marked, given):
            for name in _OF_WORLDS if "world" in said else ():
                if name in said:
                    raise UsageError(f"a world sets its own {name}: leave out {name}= or world=")
        if "world" in given:
            marked = {name: value for name, value in marked.items() if name not in _OF_WORLDS}
        return {
            **dict.fromkeys(self._settings),
            "schedules": 100,
            "strategy": strategies.DEFAULT,
            "seed": "0",
            **_set({each: option(f"racecheck_{each}") for each in ("schedules", "seed", "collectives")}),
            **marked,
            "timeout": option("racecheck_timeout"),
            **given,
        }

    def _launched(self, scenario: Launched, chosen: dict[str, Any], **search: Any) -> AskedSearch:
        """Return the search of a launch command; raises `UsageError`."""
        for name in ("ranks", "sizes", "world"):
            if chosen[name] is not None:
                raise UsageError(f"{name} is decided by the launch command: leave it out")
        changes = _set({name: chosen[name] for name in ("nodes", "storage", "faults", "collectives", "timeout")})
        invariants = chosen["invariants"]
        given = {name: chosen[name] for name in ("strategy", "schedules")} | {"seed": str(chosen["seed"])}
        return ask(scenario, changes, scenario.invariants if invariants is None else invariants, **given, **search)

    def _search(self, scenario: Scenario, chosen: dict[str, Any]) -> Search:
        """Return the search that the settings ask for; raises `UsageError`."""
        if isinstance(scenario, Launched):
            raise UsageError("a launch command runs in a process of its own: use racecheck.check without schedule=")
        world = chosen["world"] or scenario.world
        if not isinstance(world, World):
            raise UsageError(f"{world!r} is not a world: use racecheck.World, or draw one from racecheck.worlds()")
        names = ("ranks", "nodes", "storage", "faults", "sizes", "collectives", "timeout")
        world = make_world(scenario.fitted(world), **{name: chosen[name] for name in names})
        invariants = chosen["invariants"]
        return Search(
            scenario,
            world,
            scenario.invariants if invariants is None else tuple(invariants),
            strategy=chosen["strategy"],
            schedules=chosen["schedules"],
            seed=checked_seed(chosen["seed"]),
            findings=self._config.rootpath / config.read().findings,
        )

    def _marked(self) -> dict[str, Any]:
        marker = self._current().get_closest_marker("racecheck")
        if marker is None:
            return {}
        wrong = [*map(repr, marker.args), *sorted(set(marker.kwargs) - set(self._settings))]
        if wrong:
            known, unknown = ", ".join(self._settings), ", ".join(wrong)
            raise UsageError(f"the racecheck marker takes the keywords {known}, not {unknown}")
        return _set(marker.kwargs)


def _failure(text: str) -> BaseException:
    """Return the exception that fails the test: the text and its line, for a traceback would go through racecheck."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  (to find the caller)
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frame = frame.f_back
    at = f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}: in {frame.f_code.co_name}" if frame else ""
    return pytest.fail.Exception(f"{text}\n\n{at}", pytrace=False)


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _check_scenario(given: object) -> None:
    if not isinstance(given, Scenario):
        raise UsageError(f"{given!r} is not a scenario: decorate the function with @racecheck.scenario()")


def _check_known(unknown: Mapping[str, object], known: Sequence[str]) -> None:
    """Fail the test for a keyword that does not exist."""
    for name in unknown:
        hint = meant(f"{name}=", [f"{each}=" for each in known])
        raise _failure(f"racecheck: unknown keyword {name}=; {hint}")


def _wanted(
    scenario: Scenario, invariant: str | Invariant | None, asked: tuple[Invariant, ...]
) -> tuple[str, tuple[Invariant, ...]]:
    """Return the name of the invariant that must be broken, and all that are ``asked``."""
    if callable(invariant) and name_of(invariant) not in map(name_of, asked):
        asked = (*asked, invariant)
    wanted = name_of(invariant) if callable(invariant) else invariant or scenario.breaks
    known = [name_of(each) for each in (*asked, *(FOR_OBSERVED if isinstance(scenario, Launched) else ()))]
    if wanted not in known:
        what = f"is not judged by {wanted!r}" if wanted else "does not say which invariant it `breaks`"
        names = ", ".join(known)
        raise _failure(f"racecheck: {scenario.target} {what}: name one of {names}")
    return wanted, asked
