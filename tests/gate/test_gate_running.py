"""The gate on real checkpointers: on the command line and in tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

import racecheck
from racecheck.explore.current_session import Sessions
from racecheck.frontends.cli import gate
from racecheck.gate import baseline, running
from racecheck.gate.cells import Broken, Cell
from racecheck.gate.effort import DEFAULT, EFFORTS, Effort
from racecheck.gate.judging import Judging
from racecheck.gate.result import GateResult
from racecheck.gate.subjects import Subject
from racecheck.gate.tasks import Terms
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.targets import suite
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS
from tests.programs import gated
from tests.support.command_line import Cli
from tests.support.inner_pytest import run as run_pytest

pytestmark = pytest.mark.usefixtures("project")

FILE = Path(__file__).parents[1] / "programs" / "gated.py"


class _Lasting(Sessions):
    """The session of the tests for all checkpointers here: to start one takes longer than to judge."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def close(self) -> None: ...


@pytest.fixture
def lasting(session: Session) -> _Lasting:
    return _Lasting(session)


@pytest.fixture
def _lasting(lasting: _Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are short."""
    monkeypatch.setattr(running, "Sessions", lambda: lasting)
    _tries(monkeypatch, schedules=1)


def _tries(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let the usual effort try something else."""
    monkeypatch.setitem(cast("dict[str, Effort]", EFFORTS), DEFAULT, replace(EFFORTS[DEFAULT], **changes))


def only(*names: str) -> list[str]:
    return [part for name in names for part in ("--check", name)]


@pytest.mark.usefixtures("_lasting")
class TestGate:
    def test_a_good_one(self, cli: Cli) -> None:
        assert cli("gate", f"{FILE}::Careful", *only("save", "kill", "saves@nfs"), "--json") == 0
        found = {each["check"]: each for each in cli.data["cells"]}
        assert [each["verdict"] for each in found.values()] == ["PASS"] * 3
        assert found["save"]["exhaustive"]
        assert found["kill"]["schedules"] == 13, "before each op that changes something"
        assert [each["storage"] for each in cli.data["matrix"]] == ["shared", "nfs"]

    def test_an_effort_that_tries_a_part_passes_and_says_so(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        _tries(monkeypatch, faults=9)
        assert cli("gate", f"{FILE}::Careful", *only("kill"), "--json") == 0
        (found,) = cli.data["cells"]
        assert found["tried"] == [{"what": "fault", "done": 9, "of": 12}]
        (entries,) = cli.data["matrix"][0]["rows"].values()
        assert {each["kind"] for each in entries.values()} == {"budget"}
        assert all("9 of 12 faults" in each["about"] for each in entries.values())

    @pytest.mark.parametrize("effort", [*EFFORTS])
    def test_each_effort_tries_the_faults_of_a_small_saver(self, cli: Cli, effort: str) -> None:
        assert cli("gate", f"{FILE}::Careful", *only("kill"), "--effort", effort, "--json") == 0
        (found,) = cli.data["cells"]
        assert found["tried"] == [{"what": "fault", "done": 12, "of": 12}]
        assert len(found["faults"]) == 12

    def test_what_the_time_limit_cuts_off_is_unknown(self, cli: Cli) -> None:
        assert cli("gate", f"{FILE}::Careful", "--seconds", "1", "--json") == 3
        *_, last = cli.data["cells"]
        assert last["verdict"] == "UNKNOWN"
        assert last["reasons"] == ["cut off by --seconds 1"]
        assert last["needs"] > 0

    def test_it_says_first_what_will_be_tried(self, cli: Cli) -> None:
        assert cli("gate", f"{FILE}::Careful", *only("save", "slow")) == 0
        said = r"Careful: normal: 2 checks, about 12 faults, about \d+ s; --effort quick: 1 check, about \d+ s\n"
        assert re.search(said, cli.err)
        assert cli.err.index("about 12 faults") < cli.err.index("[save] PASS")

    def test_a_bad_one(self, cli: Cli) -> None:
        files = ["--junit", "j.xml", "--markdown", "m.md", "--html", "h.html"]
        assert cli("gate", f"{FILE}::InPlace", *only("kill", "power-loss"), *files) == 1
        assert cli.out.startswith(f"FAIL  {FILE}::InPlace")
        assert "1. the checkpoint is lost if the job is killed, in write (gated.py:" in cli.out
        assert "expected: old-survives: While a save runs, and after it fails, the last saved step loads" in cli.out
        assert re.search(r"shown by: kill \(old-survives; recovers; \d+ of \d+ faults\), power-loss \(", cli.out)
        assert re.search(r"kill: what each fault does\n +op +at +fault +a restart loads +breaks\n", cli.out)
        assert re.search(
            r"write checkpoint.json +\S+gated.py:\d+ write +kill-job +fails +recovers, old-survives", cli.out
        )
        assert "repair that holds in all crash states" not in cli.out, "no fsync helps against a kill"
        assert "python -m pydoc racecheck.targets.suite.controls" in cli.out
        assert re.search(r"minimised: \d+", cli.out), "the first failing run is explained"
        failures = ET.parse("j.xml").getroot().findall("testsuite/testcase/failure")
        assert len(failures) == 2
        assert "write checkpoint.json" in str(failures[0].text)
        assert "what would help" not in str(failures[0].text)
        replays = re.findall(r"racecheck replay (\S+json)", Path("m.md").read_text())
        assert len({*replays}) > 1
        assert f"racecheck replay {replays[0]} --trust" in Path("m.md").read_text(), "the file is elsewhere"
        replayed = [cli("replay", finding, "--times", "1", "--trust") for finding in dict.fromkeys(replays)]
        assert replayed == [1] * len({*replays})
        links = re.findall(r'<a href="([^"]*)">', Path("h.html").read_text())
        assert links, "each cell that failed has a picture"
        assert all("</html>" in Path(each).read_text() for each in links)

    def test_what_is_known_does_not_fail_and_what_is_fixed_is_said(self, cli: Cli) -> None:
        ask = ["gate", f"{FILE}::InPlace", *only("kill"), "--baseline", "known.json"]
        assert cli(*ask) == 2
        assert cli.err == "racecheck: no baseline at known.json: create it with racecheck gate --update-baseline\n"
        assert cli(*ask, "--update-baseline") == 0
        known = json.loads(Path("known.json").read_text())
        assert f"{FILE}::InPlace[kill] recovers{TORN}" in known["known"]
        known["known"].append(f"{FILE}::InPlace[kill] no-deadlock")
        Path("known.json").write_text(json.dumps(known))
        assert cli(*ask) == 0
        assert f"fixed: {FILE}::InPlace[kill] no-deadlock" in cli.out

    def test_another_defect_that_breaks_the_same_invariants_is_new(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A class is repaired; then it has another defect: it removes the only checkpoint before it writes one.

        This process imports a file once, so each version has a name of its own, also in the baseline.
        """
        _tries(monkeypatch, explained=0)
        repaired = "fresh = path.with_suffix('.tmp')\n        fresh.write_text(text)\n        fresh.replace(path)"
        lines = {"first": "path.write_text(text)", "other": f"path.unlink(missing_ok=True)\n        {repaired}"}

        def gated_as(name: str, *more: str) -> tuple[int, str]:
            Path(f"{name}.py").write_text(FILE.read_text().replace("path.write_text(text)", lines[name], 1))
            if Path("known.json").exists():
                renamed = re.sub("first|other", name, Path("known.json").read_text())
                Path("known.json").write_text(renamed)
            status = cli("gate", f"{name}.py::InPlace", *only("kill"), "--baseline", "known.json", *more)
            return status, Path("known.json").read_text()

        new = "other.py::InPlace[kill] old-survives: unlink in write (other.py)"
        status, known = gated_as("first", "--update-baseline")
        assert (status, "old-survives: write (first.py)" in known) == (0, True)
        status, known = gated_as("other")
        assert (status, new in known) == (1, False)
        status, known = gated_as("other", "--update-baseline")
        assert (status, new in known) == (0, True)

    def test_a_gate_that_judged_nothing_writes_no_baseline(self, cli: Cli) -> None:
        """An empty list would say that nothing is known to be wrong."""
        asked = ["gate", f"{FILE}::Uninstalled", *only("kill"), "--baseline", "known.json", "--update-baseline"]
        assert cli(*asked) == 3
        assert "racecheck: known.json was not written: this gate is UNKNOWN but for its findings" in cli.err
        assert not Path("known.json").exists()

    def test_what_is_documented_is_shown_and_not_held_against_it(self, cli: Cli) -> None:
        assert cli("gate", f"{FILE}::Excused", *only("save", "kill")) == 0
        assert "not promised: the manual says: not while it is killed" in cli.out
        assert re.search(r"racecheck replay .racecheck/Excused_kill_-", cli.out)

    def test_what_is_staged_in_tmpdir_is_not_held_against_it(self, cli: Cli) -> None:
        assert cli("gate", f"{FILE}::InTemporary", *only("save")) == 0

    @pytest.mark.parametrize(
        ("name", "status", "said"),
        [
            ("NoLatest", 2, "racecheck: NoLatest has no method latest: a checkpointer has save(state, root, step), "),
            (
                "OtherShapes",
                2,
                "racecheck: OtherShapes.load returned model.0.weight as (128,); it was saved as (16, 8)",
            ),
            ("NoPair", 2, "racecheck: NoPair.load returned dict: it must return (state, step)"),
            (
                "Nothing",
                2,
                "racecheck: tests.programs.gated has no class 'Nothing': it has InPlace, Careful, ",
            ),
            ("Failing", 2, "racecheck: Failing fails by itself, with one rank too, and no fault: TypeError: "),
            ("Forgetful", 2, "racecheck: Forgetful saves nothing that it finds again: save returned on all ranks, "),
            ("Lying", 2, "racecheck: Lying.latest returned 1, and then load loaded step 2: they must agree"),
            ("Configured", 2, "racecheck: Configured needs arguments, but every rank creates it without any: "),
            ("Unmade", 3, "its constructor raises ValueError: no settings anywhere"),
            (
                "OnDevice",
                3,
                "needs a device that this machine lacks: RuntimeError: Found no NVIDIA driver on your system.",
            ),
            ("Uninstalled", 3, "needs there_is_no_such_package: pip install "),
            ("Polling", 3, "hangs: reached the limit of 200 ops; a polling loop?"),
            ("Outside", 1, "nothing-outside: "),
            ("Beside", 1, "seen: written outside the watched directory: ../marks (rank 0 mkdir), ../marks/checkpoint"),
        ],
    )
    def test_bad_input(self, cli: Cli, name: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
        world = Subject.world
        monkeypatch.setattr(Subject, "world", lambda *given: make_world(world(*given), max_ops=200))
        assert cli("gate", f"{FILE}::{name}", *only("save")) == status
        assert said in (cli.err if status == 2 else cli.out)
        lines = {0: 2, 1: 2, 2: 1, 3: 1}[status]
        assert cli.err.count("\n") == lines, "what is to come and the check, or a line of what is wrong"

    def test_an_interrupted_gate_continues(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        """And one that has come to its end begins again."""
        ask = ["gate", f"{FILE}::Careful", *only("save", "saves", "load")]
        original = Judging.cells
        monkeypatch.setattr(Judging, "cells", _interrupted_after(f"{FILE}::Careful[saves]"))
        assert cli(*ask) == 130
        assert re.match(r"UNKNOWN .*: 2 checks; interrupted; ", cli.out)
        assert "interrupted: the same command continues from here" in cli.out
        assert not Path(".racecheck/gate.json").exists(), "that is of all"
        assert re.findall(r"^  (\w+) +PASS  +all, ", cli.out, re.MULTILINE) == ["save", "saves"]
        monkeypatch.setattr(Judging, "cells", original)
        for kept, made in ((2, ["load"]), (0, ["save", "saves", "load"])):
            assert cli(*ask) == 0
            assert (f"{kept} results reused from an earlier gate (--fresh runs them again)" in cli.err) == bool(kept)
            assert re.findall(r"\[(\w+)\] PASS", cli.err) == made
            assert cli.out.count("all, in ") == 3
            assert not [*Path(".racecheck").glob("gate-*")]

    def test_unasked_checks_are_reported(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Judging, "cells", lambda *_: iter(()))
        told = f"{FILE}::Careful has no save_async; skipped: async, "
        cli("gate", f"{FILE}::Careful")
        assert told in cli.err
        cli("gate", f"{FILE}::Careful", *only("save"))
        assert told not in cli.err

    def test_one_that_asks_less_leaves_what_was_interrupted(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = ["gate", f"{FILE}::Careful", *only("save", "saves", "load")]
        original = Judging.cells
        monkeypatch.setattr(Judging, "cells", _interrupted_after(f"{FILE}::Careful[saves]"))
        assert cli(*ask) == 130
        monkeypatch.setattr(Judging, "cells", original)
        assert cli("gate", f"{FILE}::Careful", *only("load")) == 0
        assert cli(*ask) == 0
        assert "2 results reused from an earlier gate" in cli.err
        assert re.findall(r"\[(\w+)\] PASS", cli.err) == ["load"]

    def test_fresh_forgets_what_was_interrupted(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = ["gate", f"{FILE}::Careful", *only("save", "load")]
        original = Judging.cells
        monkeypatch.setattr(Judging, "cells", _interrupted_after(f"{FILE}::Careful[save]"))
        assert cli(*ask) == 130
        monkeypatch.setattr(Judging, "cells", original)
        (kept,) = Path(".racecheck").glob("gate-*.json")
        kept.write_text("{")
        assert cli(*ask) == 2
        assert "remove it, or use --fresh" in cli.err
        assert cli(*ask, "--fresh") == 0
        assert re.findall(r"\[(\w+)\] PASS", cli.err) == ["save", "load"]

    def test_a_class_in_a_module_here(self, cli: Cli) -> None:
        Path("mysaver.py").write_text(FILE.read_text())
        assert cli("gate", "mysaver:Careful", *only("save")) == 0
        assert cli.out.startswith("PASS  mysaver:Careful (torch ")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ([], "name one checkpointer (package.module:Class, or "),
            ([f"{FILE}::Careful", "--all"], "name one checkpointer (package.module:Class, or "),
            ([f"{FILE}::Careful", "--check", "x"], "unknown check 'x'; known: load-behind, "),
            ([f"{FILE}::Careful", "--storage", "x"], "no check uses storage 'x'; known: shared, "),
            ([f"{FILE}::Careful", "--check", "kill", "--storage", "nfs"], "no check matches both"),
            ([f"{FILE}::Careful", "--seconds", "nan"], "--seconds must be from 1 to"),
            ([f"{FILE}::Careful", "--update-baseline"], "--update-baseline needs --baseline FILE"),
            (
                [f"{FILE}::Careful", "--json", "--markdown", "-"],
                "--json and --markdown - both write to standard output",
            ),
            ([f"{FILE}::Careful", "--junit", f"{FILE}/j.xml"], f"cannot write {FILE}/j.xml"),
            (["nobody"], "'nobody' is not a checkpointer: write package.module:Class, or a name: "),
        ],
    )
    def test_wrong_options(self, cli: Cli, options: list[str], said: str) -> None:
        assert cli("gate", *options) == 2
        assert cli.err.startswith(f"racecheck: {said}")
        assert cli.err.count("\n") == 1


@pytest.mark.usefixtures("_lasting")
class TestAll:
    @pytest.fixture(autouse=True)
    def _named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"good": f"{FILE}::Careful", "gone": f"{FILE}::Nothing", "bare": f"{FILE}::Uninstalled",
                 "odd": f"{FILE}::NoPair", "bad": f"{FILE}::InPlace"}  # fmt: skip
        monkeypatch.setattr(suite, "NAMES", names)
        monkeypatch.setattr(gate, "NAMES", names)

    @pytest.mark.slow
    def test_the_other_ranks_continue(self, cli: Cli) -> None:
        ask = ["gate", "--all", *only("save", "kill"), "--json"]
        assert cli(*ask) == 1
        assert [each["checkpointer"] for each in cli.data["cells"]] == ["good", "good", "bare", "bad", "bad"]
        assert cli.data["wrong"] == [
            f"gone: {gated.__name__} has no class 'Nothing': it has InPlace, Careful, Failing, Forgetful, Lying, ...",
            "odd: NoPair.load returned dict: it must return (state, step), step an int",
        ]

    def test_an_interrupted_gate_continues(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = ["gate", "--all", *only("save", "kill"), "--json"]
        original = Judging.cells
        monkeypatch.setattr(Judging, "cells", _interrupted_after("bad[kill]"))
        assert cli(*ask) == 130
        assert cli.data["interrupted"]
        assert [each["target"] for each in cli.data["cells"]] == ["good[kill]", "good[save]", "bare[save]", "bad[kill]"]
        monkeypatch.setattr(Judging, "cells", original)
        monkeypatch.setattr(Judging, "_try", _not_for_good)
        assert cli(*ask) == 1
        assert "good: 2 results reused from an earlier gate (--fresh runs them again)" in cli.err
        assert "bad: 1 result reused from an earlier gate" in cli.err
        assert re.search(r"^bad\[save\] (PASS|FAIL)", cli.err, re.MULTILINE)
        assert [each["target"] for each in cli.data["cells"]] == [
            "good[kill]", "good[save]", "bare[save]", "bad[kill]", "bad[save]",
        ]  # fmt: skip


def _interrupted_after(target: str) -> Callable[..., Iterator[Cell]]:
    """`Judging.cells` with Ctrl-C when this one has been made."""
    original = Judging.cells

    def cells(self: Judging, *given: Any) -> Iterator[Cell]:
        for made in original(self, *given):
            yield made
            if made.target == target:
                raise KeyboardInterrupt

    return cells


_TRY = Judging._try


def _not_for_good(self: Judging) -> str:
    assert self._subject.name != "good", "its cells are there"
    return _TRY(self)


TORN = ": write (gated.py), unreadable"
"""What identifies the defect of `gated.InPlace`."""
_SUITE = """
import racecheck
from gated import InPlace

class TestInPlace(racecheck.CheckpointerSuite):
    checkpointer = InPlace
    checks = ("kill",)
    baseline = "known.json"
"""


class TestInTests:
    @pytest.mark.slow
    def test_one_line(self) -> None:
        found = racecheck.check_checkpointer(gated.Careful, checks=["save", "kill"])
        assert [each.verdict for each in found] == [Verdict.PASS] * 2
        with pytest.raises(
            AssertionError,
            match=r"(?s)FAIL.*1. the checkpoint is lost if the job is killed, in write .*racecheck replay ",
        ):
            racecheck.check_checkpointer(gated.InPlace, checks=["kill"])

    def test_what_is_known_does_not_fail(self) -> None:
        name = "tests.programs.gated:InPlace[kill]"
        known = baseline.Baseline((f"{name} no-deadlock", f"{FILE}::InPlace[kill] recovers{TORN}"))
        baseline.save(known, Path("known.json"))
        with pytest.raises(AssertionError, match=r"(?s)1 new finding; 1 known finding; .*recovers, known"):
            racecheck.check_checkpointer(gated.InPlace, checks=["kill"], baseline="known.json")
        baseline.save(baseline.Baseline((*known.known, f"{name} old-survives{TORN}")), Path("known.json"))
        with pytest.warns(match=r"fixed: tests.programs.gated:InPlace\[kill\] no-deadlock: remove it"):
            (found,) = racecheck.check_checkpointer(gated.InPlace, checks=["kill"], baseline=Path("known.json"))
        assert found.verdict is Verdict.FAIL
        with pytest.raises(UsageError, match="no baseline at none"):
            racecheck.check_checkpointer(gated.InPlace, checks=["kill"], baseline="none.json")

    @pytest.mark.slow
    def test_what_is_known_does_not_fail_a_class(self, pytester: pytest.Pytester) -> None:
        baseline.save(
            baseline.Baseline(("gated:InPlace[kill] no-deadlock", f"gated:InPlace[kill] recovers{TORN}")),
            pytester.path / "known.json",
        )
        pytester.makepyfile(gated=FILE.read_text(), test_mine="""
            import racecheck
            from gated import Careful, InPlace

            class TestInPlace(racecheck.CheckpointerSuite):
                checkpointer = InPlace
                checks = ("save", "kill")
                baseline = "known.json"
            """)  # fmt: skip
        done = run_pytest(pytester, "test_mine.py")
        done.assert_outcomes(passed=1, failed=1)
        done.stdout.fnmatch_lines([f"new: gated:InPlace?kill? old-survives{TORN}"])
        known = json.loads((pytester.path / "known.json").read_text())
        known["known"].append(f"gated:InPlace[kill] old-survives{TORN}")
        (pytester.path / "known.json").write_text(json.dumps(known))
        done = run_pytest(pytester, "test_mine.py")
        done.assert_outcomes(passed=2, warnings=1)
        done.stdout.fnmatch_lines(["*fixed: gated:InPlace?kill? no-deadlock: remove it from the baseline*"])

    def test_paths_in_a_baseline_begin_where_the_baseline_does(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever pytest is called; what is fixed is said as the line is in the file."""
        lines = [
            f"inner/gated.py::InPlace[kill] {each}"
            for each in ("no-deadlock", f"old-survives{TORN}", f"recovers{TORN}")
        ]
        baseline.save(baseline.Baseline(tuple(lines)), pytester.path / "known.json")
        pytester.makeini("[pytest]")
        inner = pytester.mkdir("inner")
        (inner / "gated.py").write_text(FILE.read_text())
        (inner / "test_mine.py").write_text(
            _SUITE
            + """
def test_in_one_line():
    racecheck.check_checkpointer(InPlace, checks=["kill"], baseline="known.json")
"""
        )
        monkeypatch.chdir(inner)
        done = run_pytest(pytester, "test_mine.py")
        done.assert_outcomes(passed=2, warnings=2)
        fixed = "*fixed: inner/gated.py::InPlace?kill? no-deadlock: remove it from the baseline*"
        done.stdout.fnmatch_lines([fixed, fixed])

    @pytest.mark.parametrize(
        ("text", "said"), [(None, "*no baseline at *known.json: create it*"), ("{}", "*not a baseline*")]
    )
    def test_a_baseline_that_cannot_be_read_is_a_line(
        self, pytester: pytest.Pytester, text: str | None, said: str
    ) -> None:
        """And is read before anything is tried."""
        if text is not None:
            (pytester.path / "known.json").write_text(text)
        pytester.makeconftest("""
            from racecheck.frontends.fixture import Racecheck

            def explored(*_, **given):
                raise AssertionError("explored")

            Racecheck.explored = explored
            """)
        pytester.makepyfile(gated=FILE.read_text(), test_mine=_SUITE)
        done = run_pytest(pytester, "test_mine.py")
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines([f"racecheck: {said}"])
        assert "Traceback" not in done.stdout.str()
        assert "Error" not in done.stdout.str()

    def test_bad_input(self) -> None:
        class Local(gated.InPlace):
            pass

        for wrong, said in (
            (gated.NoLatest, "NoLatest has no method latest"),
            (gated.Careful(), "is not a class"),
            (Local, "define the class at module level"),
        ):
            with pytest.raises(UsageError, match=said):
                racecheck.check_checkpointer(wrong)
        with pytest.raises(UsageError, match="unknown check 'x'"):
            racecheck.check_checkpointer(gated.Careful, checks=["x"])

    def test_a_class_is_two_lines(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(gated=FILE.read_text(), test_mine="""
            import racecheck
            from gated import Careful, Excused, InPlace

            class TestCareful(racecheck.CheckpointerSuite):
                checkpointer = Careful
                checks = ("save", "kill")

            class TestExcused(racecheck.CheckpointerSuite):
                checkpointer = Excused
                checks = ("save", "kill")

            class TestInPlace(racecheck.CheckpointerSuite):
                checkpointer = InPlace
                checks = ("kill",)
            """)  # fmt: skip
        done = run_pytest(pytester, "-v", "-rs", "test_mine.py")
        done.assert_outcomes(passed=3, skipped=1, failed=1)
        done.stdout.fnmatch_lines(
            ["*TestCareful::test_check?kill? PASSED*", "*kill is not promised: the manual says*"],
            consecutive=False,
        )
        assert re.search(r"racecheck replay .racecheck/InPlace_kill_-", done.stdout.str())


def test_the_controller_imports_no_torch() -> None:
    code = "import racecheck, sys, racecheck.frontends.cli.gate; racecheck.CheckpointerSuite; "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_says_what_each_check_does(cli: Cli) -> None:
    assert cli("gate", "--help") == 0
    assert all(check.about in cli.out for check in CHECKS.values() if len(check.about) < 60)


def test_text_that_no_file_can_hold_is_written_as_escapes(tmp_path: Path) -> None:
    """Of a kept cell that somebody has changed, or of a name that is not UTF-8."""
    broken = Broken("recovers", "an \ud800 in it", "f\udcff.json", "save (\udcff.py)")
    found = Cell(
        "mi\ud800ne", "kill", "shared", {"torch": "2\udcff"}, Verdict.FAIL, ("recovers",), (broken,), schedules=1,
        text="\ud800",
    )  # fmt: skip
    paths = [tmp_path / name for name in ("a.xml", "a.md", "a.html")]
    gate._write(GateResult((found,), baseline.compare([found], baseline.Baseline()), Terms(), 1.0), *paths)
    assert all("recovers" in path.read_text("utf-8") for path in paths)
