"""A launch command changes no file of the user's, whoever he is and wherever findings are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Cli
from tests.support.launching import TORCHRUN, environment
from tests.support.outside import snapshot
from tests.support.users import MOUNTING, USERS

RUN = ("run", "--watch", "checkpoints/my_run", "--explain", "0", "--json")


@pytest.mark.parametrize(
    ("user", "findings"),
    [("this one", "checkpoints"), ("an ordinary one", "."), ("root of a container", "new/findings")],
)
def test_a_race_is_found_and_only_findings_are_written(programs: Path, user: str, findings: str) -> None:
    before = _files(programs)
    words = [*RUN, "--html", "pages/race.html", "--", *TORCHRUN, "train.py", "--overwrite"]
    done = subprocess.run(
        [*USERS[user], sys.executable, "-m", "racecheck", *words], cwd=programs, env=environment(Path(findings)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    finding = Path(json.loads(done.stdout)["violations"][0]["finding"])
    assert "</html>" in (programs / "pages" / "race.html").read_text("utf-8")
    assert finding.parent == Path(findings, "train")
    (launch,) = (programs / finding).parent.glob("launch-*.json")
    now = _files(programs)
    for each in (finding, launch, "pages/race.html"):
        del now[str(programs / each)]
    assert now == before


def _files(tree: Path) -> dict[str, Any]:
    """Everything below a directory but the directories, whose times say that something was made there."""
    return {path: how for path, how in snapshot(tree).items() if not Path(path).is_dir()}


@pytest.mark.parametrize(
    ("variable", "path", "message"),
    [
        ("RACECHECK_FINDINGS", "out", "findings are kept in it, in {here}/out; set RACECHECK_FINDINGS to another "),
        ("RACECHECK_FINDINGS", "out/a/b", "findings are kept in it, in {here}/out/a/b; set RACECHECK_FINDINGS to "),
        ("RACECHECK_FINDINGS", "link/a", "findings are kept in it, in {here}/link/a; set RACECHECK_FINDINGS to "),
        ("RACECHECK_RUNS", "out/runs", "racecheck works in it, in out/runs; set RACECHECK_RUNS to another directory"),
    ],
)
def test_a_watched_directory_has_nothing_of_racechecks_in_it(
    programs: Path, alone: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, path: str, message: str
) -> None:
    monkeypatch.chdir(programs)
    Path("link").symlink_to("out")
    before = snapshot(programs)
    monkeypatch.setenv(variable, path)
    assert alone("run", "--watch", "out", "--", *TORCHRUN, "train.py") == 2
    assert message.format(here=programs) in alone.err
    assert len(alone.err.splitlines()) == 1
    assert snapshot(programs) == before


@pytest.mark.parametrize(
    ("mounted", "status", "message"),
    [
        ("mkdir out/m && mount -t tmpfs none out/m", 2, "--watch out: something is mounted in it, at "),
        ('mount --bind . . && mount -o remount,bind,ro . && cd "$PWD"', 3, "cannot cover "),
    ],
)  # fmt: skip
def test_what_cannot_be_covered_is_refused(
    programs: Path, tmp_path: Path, mounted: str, status: int, message: str
) -> None:
    words = ["run", "--watch", "out", "--", *TORCHRUN, "train.py"]
    done = subprocess.run(
        [*MOUNTING, "sh", "-c", f'{mounted}; exec "$@"', "sh", sys.executable, "-m", "racecheck", *words],
        cwd=programs, env=environment(tmp_path / "findings"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout or done.stderr
    assert done.returncode == status, said
    assert message in said
    assert "Traceback" not in said


def test_a_script_that_removes_the_findings_before_it_starts_ranks_is_run_all_the_same(tmp_path: Path) -> None:
    """It removes them in the layer, in which racecheck's own file of the command must be seen again."""
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(
        "import shutil\nfrom pathlib import Path\nshutil.rmtree('found', ignore_errors=True)\nPath('out/a').touch()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "racecheck", "run", "--watch", "out", "--json", "--", sys.executable, "train.py"],
        cwd=tmp_path, env=environment(Path("found")), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [*(tmp_path / "found" / "train").glob("launch-*.json")]
