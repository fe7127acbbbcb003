"""The user's modules are imported in each rank, after its fork and under control."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from racecheck.agent import own_modules, zygote
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.compare import first_difference
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.controlled_runs import run, values
from tests.support.targets import target


def searched(session: Session, name: str, file: str = "imported") -> Report:
    scenario = target(file, name)
    return explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=60))


def test_each_rank_imports_the_module_for_itself(session: Session) -> None:
    one, two = (run(session, "facts", file="imported") for _ in range(2))
    assert first_difference(one, two) == "", "names are drawn from the seed"
    first, second = values(one)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[0] != second[0]
    assert [first[1], second[1]] == ["0", "1"]
    assert first[2] != second[2]
    assert first[3:] == second[3:] == ["tests.programs.launched", "1", "facts", "tests.programs.imported"]


@pytest.mark.parametrize(
    ("name", "says"),
    [("stamped_directory", "scattered"), ("locked_in_memory", "an increment is lost")],
)
def test_what_ranks_do_not_share_does_not_help_them(session: Session, name: str, says: str) -> None:
    report = searched(session, name)
    assert report.verdict is Verdict.FAIL
    assert any(says in each.violation.message for each in report.violations)


def test_a_lock_file_opened_at_import_excludes(session: Session) -> None:
    report = searched(session, "locked_by_a_file")
    assert report.verdict is Verdict.PASS, report.violations
    assert report.exhaustive


def test_a_race_of_imports_is_found(session: Session) -> None:
    report = searched(session, "made_at_import", file="imported_badly")
    assert report.verdict is Verdict.FAIL
    assert "FileExistsError" in report.violations[0].violation.message
    assert report.outcome is not None
    stacks = [op.stack for op in report.outcome.ops if op.call == "mkdir"]
    assert all(any(frame.file.endswith("imported_badly.py") for frame in stack or ()) for stack in stacks)


def test_a_look_says_what_an_import_takes(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import colorsys\nimport os\nos.environ['HELPED'] = '1'\n")
    (tmp_path / "of_mine.py").write_text(
        "import helper\nimport racecheck\n"
        "@racecheck.scenario(ranks=2)\ndef mine(rank): pass\n"
        "@mine.setup\ndef before(path): pass\n"
    )
    code = (
        "import os, sys; from racecheck.agent import own_modules; from racecheck.targets import resolve\n"
        f"found = own_modules.look(resolve.place({str(tmp_path / 'of_mine.py')!r} + '::mine'))\n"
        "print(found.name, found.has_setup, [each.name for each in found.own], 'colorsys' in found.installed,"
        " found.environment.get('HELPED'), found.threads, 'helper' in sys.modules, 'HELPED' in os.environ)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.split(maxsplit=2)[0:2] == ["mine", "True"]
    assert "['helper', 'of_mine'] True 1 1 False False" in printed.stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ValueError('broken')", "ValueError: broken"),
        ("import os; os._exit(3)", "ended with status 3"),
        ("import nothing_like_it", "ModuleNotFoundError"),
        ("x = 1", "has no scenario 'mine'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_line(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "bad_one.py").write_text(source)
    before = [*sys.path]
    try:
        with pytest.raises(UsageError, match=says):
            own_modules.look(resolve.place(f"{tmp_path / 'bad_one.py'}::mine"))
    finally:
        sys.path[:] = before


def test_modules_are_found_compiled(tmp_path: Path) -> None:
    package = tmp_path / "within"
    package.mkdir()
    (package / "part.py").write_text("VALUE = __name__, __file__, __package__\n")
    (package / "later.py").write_text("VALUE = 1\n")
    finder = own_modules.Finder()
    finder.add([
        own_modules.Own("within", "", [str(package)]), own_modules.Own("within.part", str(package / "part.py")),
    ])  # fmt: skip
    os.rename(package / "part.py", package / "gone.py")
    sys.meta_path.insert(0, finder)
    try:
        found = importlib.import_module("within.part").VALUE
        assert found == ("within.part", str(package / "part.py"), "within")
        assert importlib.import_module("within.later").VALUE == 1, "a module that nobody has prepared"
    finally:
        sys.meta_path.remove(finder)
        for name in ("within", "within.part", "within.later"):
            sys.modules.pop(name, None)


IMPORTED = """
import os, signal
import racecheck

if os.getpid() != {here}:
    os.kill(os.getpid(), signal.SIGKILL)

@racecheck.scenario(ranks=2)
def never(rank):
    pass
"""


@pytest.mark.usefixtures("project")
def test_a_process_that_is_killed_while_it_imports_is_no_wrong_input(session: Session) -> None:
    Path("killed_early.py").write_text(IMPORTED.format(here=os.getpid()))
    scenario = resolve.load("killed_early.py::never")
    with pytest.raises(CannotRun, match="imports the scenario was killed: from outside, or for want of memory"):
        session.request("import", target=scenario.reference)


def test_a_file_that_cannot_be_compiled_imports_nothing_ahead(tmp_path: Path) -> None:
    """It was sound when the launcher was started; the rank that imports it tells of the error."""
    (tmp_path / "good.py").write_text("def f():\n    import zipfile\n")
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "worse.py").write_bytes(b"import zlib\0")
    assert zygote._imported_below(*sorted(tmp_path.iterdir())) == ["zipfile"]
