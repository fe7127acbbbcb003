"""What a launcher starts reports and ends before it has run anything; what is no launcher is stopped, too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from racecheck.agent import zygote
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.sessions.launchers import capture
from racecheck.sessions.launchers.capture import Started
from racecheck.sessions.session import Session
from racecheck.targets import programs
from racecheck.targets.programs import ABSENT, Launch, sources

INTERCEPT = Path(capture.__file__).with_name("intercept")


def started(tmp_path: Path, *words: str) -> list[dict[str, object]]:
    """What is reported when Python is started like this, as a launcher would have it."""
    place = tmp_path / "place"
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(INTERCEPT), "RACECHECK_CAPTURE": str(place)}
    subprocess.run([sys.executable, *words], env=environment, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(each.read_text()) for each in place.glob("*.json")]


@pytest.mark.parametrize(
    "words", [["-u", "script.py", "x"], ["-c", "open('ran', 'w')"], ["-m", "script"], ["-W", "error", "script.py"]]
)
def test_whatever_is_no_launcher_reports_and_does_not_run(tmp_path: Path, words: list[str]) -> None:
    """``accelerate launch --num_processes 2`` on a CPU, for one, starts a script without RANK."""
    (tmp_path / "script.py").write_text("open('ran', 'w')\n")
    (said,) = started(tmp_path, *words)
    assert said["arguments"] == words
    assert said["directory"] == str(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_only_the_first_launcher_runs(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text("open('ran', 'a').write('x')\n")
    assert started(tmp_path, "torchrun") == []
    assert [each["arguments"] for each in started(tmp_path, "torchrun", "again")] == [["torchrun", "again"]]
    assert (tmp_path / "ran").read_text() == "x"


def test_the_environments_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text("import sitecustomize; open('ran', 'w').write(sitecustomize.OWN)\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("OWN = 'own'\n")
    path = os.pathsep.join([str(INTERCEPT), str(own)])
    environment = {**os.environ, "PYTHONPATH": path, "RACECHECK_CAPTURE": str(tmp_path)}
    subprocess.run([sys.executable, "torchrun"], env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / "ran").read_text() == "own"


def rank(number: int, **changed: str) -> Started:
    environment = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_PORT": "1234", **changed}
    return Started(("-u", "train.py", "--lr", "1"), environment, "/home/me", sys.executable)


def test_ranks_that_differ_in_more_than_their_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    capture._check_alike([rank(0), rank(1)])
    with pytest.raises(UsageError, match="rank 0 and rank 1 differ in the variable SEED: '1', None"):
        capture._check_alike([rank(0, SEED="1"), rank(1)])
    with pytest.raises(UsageError, match="started 1 of 2 ranks"):
        capture._check_alike([rank(0)])
    monkeypatch.setattr(capture, "capture", lambda *_: ([rank(0), rank(1, SEED="1")], ("torchrun",)))
    with pytest.raises(UsageError, match="differ in the variable SEED"):
        capture.launch(["torchrun", "train.py"], Path("/out"), ABSENT)


def launch(tmp_path: Path) -> Launch:
    return Launch(
        command=("torchrun", "train.py"), script="train.py", module="", arguments=("--x", "1"), directory=str(tmp_path),
        environment={"A": "b"}, ranks=2, watched=str(tmp_path / "out"),
    )  # fmt: skip


def test_a_launch_comes_back_from_its_file(tmp_path: Path) -> None:
    made = launch(tmp_path)
    path = programs.save(made, tmp_path)
    assert path == tmp_path / "train" / f"launch-{made.digest}.json"
    assert programs.load(path).launch == made
    assert programs.load(path).target.endswith(f"launch-{made.digest}.json::train")


def test_no_session_runs_a_program_over_the_users_files(session: Session, tmp_path: Path) -> None:
    """Only a slot that covers the machine's files may: pytest's session, for one, does not."""
    target = programs.load(programs.save(launch(tmp_path), tmp_path)).reference
    with pytest.raises(UsageError, match="is a program: run it with racecheck run"):
        session.job(target, World(), "0", controlled=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "racecheck-launch", "version": 2}', "\x00"])
def test_a_damaged_launch_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "launch.json").write_text(text)
    with pytest.raises(UsageError, match=r"launch\.json"):
        programs.load(tmp_path / "launch.json")


def test_the_sources_are_the_script_and_what_it_imports_beside_it(tmp_path: Path) -> None:
    for name, text in {
        "train.py": "import torch, models.big\nfrom util import x", "util.py": "", "models/__init__.py": "",
        "models/big.py": "from . import small", "models/small.py": "", "other.py": "",
        "conf.yaml": "a: 1", "more.json": "{}", "out/old.pt": "", "unused.yaml": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = replace(launch(tmp_path), arguments=("conf.yaml", "--more=more.json", "--out", "out/old.pt", "none.yaml"))
    found = {str(each.relative_to(tmp_path)) for each in sources(made)}
    code = {"train.py", "util.py", "models/__init__.py", "models/big.py", "models/small.py"}
    assert found == {*code, "conf.yaml", "more.json"}


def test_a_program_is_prepared_once_not_before_each_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(zygote, "_apart", [])
    monkeypatch.setattr(zygote.Zygote, "_learn", lambda *_: prepared.append("learnt"))
    (tmp_path / "train.py").write_text("x = 1\n")
    target = f"{programs.save(launch(tmp_path), tmp_path)}::train"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = zygote.Zygote(ours, lambda *_: None, str(tmp_path))
        assert [made._import(target) for _ in range(3)] == [{"name": "train"}] * 3
    assert prepared == ["learnt"]
