"""The conformance suite in tests: in one line, or as a class for pytest."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from racecheck.explore.current_session import HERE
from racecheck.gate import baseline as baselines
from racecheck.gate import judging, layouts, pages, subjects
from racecheck.gate.baseline import Baseline, Comparison
from racecheck.gate.cells import Cell
from racecheck.gate.effort import DEFAULT, EFFORTS, is_swept
from racecheck.gate.judging import Judging
from racecheck.gate.result import GateResult
from racecheck.gate.subjects import Subject
from racecheck.gate.tasks import Terms
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import Verdict
from racecheck.targets.suite import CHECKS, applicable, protocol, reason_against, scenario

if TYPE_CHECKING:
    from racecheck.frontends.fixture import Racecheck


def check_checkpointer(
    checkpointer: type,
    *,
    checks: Sequence[str] = (),
    storages: Sequence[str] = (),
    ranks: int | None = None,
    effort: str = DEFAULT,
    seconds: float | None = None,
    seed: int | str = 0,
    baseline: str | Path | None = None,
) -> tuple[Cell, ...]:
    """Run the checks of the conformance suite on a checkpointer class (`racecheck.targets.suite.protocol`).

    ``checks`` and ``storages`` are names (default: those of the ``effort``, which says how much is tried: "quick",
    "normal" or "full"); ``seconds`` is a time limit, and checks cut off by it are UNKNOWN (None: no limit).
    ``baseline`` is a file that ``racecheck gate --update-baseline`` wrote: its findings do not fail, and a finding that
    is fixed is a warning.  It, and paths in it, begin in pytest's root directory, without pytest in the current one.

    Returns the result of each check.  Raises `AssertionError`, with the matrix and the interleaving, unless all are
    PASS, and `UsageError` for anything but checkpointers and baselines.
    """
    __tracebackhide__ = True  # tells pytest to show the matrix, not this frame
    subject = Subject(_name(checkpointer), checkpointer)
    known = _known(subject, baseline)
    if effort not in EFFORTS:
        raise UsageError(f"unknown effort {effort!r}; known: {', '.join(EFFORTS)}")
    terms = Terms(ranks, str(seed), effort, seconds or 0.0, config.read().findings)
    asked = subjects.checks(subject, checks, storages, EFFORTS[effort])
    if not asked:
        raise UsageError(subjects.lacking(subject, checks))
    found: dict[str, Cell] = {}
    for cell in Judging(subject, HERE, terms).cells(asked):
        found[cell.check] = cell
    cells = tuple(found.values())
    result = GateResult(cells, _compared(cells, known), terms, sum(each.seconds for each in cells))
    if result.verdict is not Verdict.PASS:
        raise AssertionError(layouts.text(pages.blocks(result)))
    for line in result.comparison.fixed:
        warnings.warn(baselines.fixed(line), stacklevel=2)
    return cells


class CheckpointerSuite:
    """The suite as tests: derive a class ``Test...`` and set ``checkpointer``.

    ``checks`` may name fewer than all, and ``baseline`` a file of known findings, as in `check_checkpointer`; it, and
    paths in it, begin in pytest's root directory.

    Each check is a test, ``TestMine::test_check[kill]``, for which the options and the marker of the plugin count. What
    the checkpointer's ``not_for`` names is skipped, with the reason.
    """

    checkpointer: type
    checks: Sequence[str] = ()
    baseline: str | Path | None = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test for each check that the checkpointer has the methods for."""
        if "check" in metafunc.fixturenames:
            metafunc.parametrize("check", [*map(self._parameter, self._asked())])

    def test_check(self, racecheck: Racecheck, request: pytest.FixtureRequest, check: str) -> None:
        made = scenario(self.checkpointer, check)
        says = request.node.get_closest_marker("racecheck") is not None
        says |= request.config.getoption("racecheck_schedules") is not None
        given: dict[str, Any] = {} if says else {"schedules": EFFORTS[DEFAULT].schedules}
        if is_swept(made.world):
            given = {"strategy": "round-robin", **({} if says else {"schedules": None})}
        if self.baseline is None:
            racecheck.check(made, **given)
            return
        subject = Subject(_name(self.checkpointer), self.checkpointer)
        known = self._baseline(subject)
        report, text = racecheck.explored(made, **given)
        cells = [judging.cell(subject, CHECKS[check], report)]
        compared = _compared(cells, known)
        if baselines.verdict(cells, compared) is not Verdict.PASS:
            pytest.fail("\n".join([*(f"new: {line}" for line in compared.new), text]), pytrace=False)
        request.node.add_report_section("call", "racecheck", text)
        for line in compared.fixed:
            warnings.warn(baselines.fixed(line), stacklevel=1)

    def _baseline(self, subject: Subject) -> Mapping[str, str]:
        """Return the known findings; the test fails where they cannot be read."""
        try:
            return _known(subject, self.baseline)
        except UsageError as error:
            wrong = f"racecheck: {error}"
        pytest.fail(wrong, pytrace=False)

    def _asked(self) -> list[str]:
        _name(self.checkpointer)
        unknown = [each for each in self.checks if each not in CHECKS]
        if unknown:
            raise UsageError(f"unknown check {unknown[0]!r}; {meant(unknown[0], CHECKS)}")
        return [each for each in applicable(self.checkpointer) if not self.checks or each in self.checks]

    def _parameter(self, name: str) -> Any:
        against = reason_against(self.checkpointer, CHECKS[name])
        # The checkpointer's documentation excludes this check, so no assertion applies; the skip shows the reason.
        marks = [pytest.mark.skip(reason=f"{name} is not promised: {against}")] if against else []
        return pytest.param(name, id=name, marks=marks)


def _known(subject: Subject, path: str | Path | None) -> Mapping[str, str]:
    """Return the lines of a baseline, each with the name of the checkpointer here: by its module.

    A line may also name it by its file, as the command line does.  The path and those in the lines begin in pytest's
    root directory, without pytest in the current one.  Raises `UsageError`.
    """
    if path is None:
        return {}
    root = config.root()
    own = Path(inspect.getfile(subject.kind)).resolve()
    known = {}
    for line in baselines.load(root / path).known:
        target, bracket, rest = line.partition("[")
        file, _, name = target.rpartition("::")
        is_own = name == subject.kind.__qualname__ and (root / file).resolve() == own
        known[line] = f"{subject.name if is_own else target}{bracket}{rest}"
    return known


def _compared(cells: Sequence[Cell], known: Mapping[str, str]) -> Comparison:
    """Return the new, known and fixed defects, as the lines of the file that a person has to look for."""
    found = baselines.compare(cells, Baseline(tuple(known.values())))
    return replace(found, fixed=tuple(line for line, named in known.items() if named in found.fixed))


def _name(checkpointer: type) -> str:
    """Return how the command line names a class; raises `UsageError` for one that is no checkpointer."""
    protocol.check(checkpointer, getattr(checkpointer, "__name__", repr(checkpointer)))
    name = f"{checkpointer.__module__}:{checkpointer.__qualname__}"
    if "." in checkpointer.__qualname__:
        raise UsageError(f"{name} cannot be imported by name: define the class at module level")
    return name
