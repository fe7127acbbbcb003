"""A finding from elsewhere is data: what its replay would run, a person allows first."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import racecheck.__main__
from racecheck.frontends.cli import trust
from racecheck.frontends.printing import printable
from racecheck.model.nouns import Crash, Fault
from racecheck.targets.programs import Launch
from tests.support.command_line import RACECHECK, Cli

pytestmark = pytest.mark.usefixtures("project")

MINE = """
from pathlib import Path
import racecheck
Path({mark!r}).touch()

@racecheck.scenario()
def racing(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()
"""


def written(file: Path, mark: Path) -> None:
    """Write a scenario whose import can be seen."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(MINE.replace("{mark!r}", repr(str(mark))))


def forged(finding: str, **changes: Any) -> Path:
    """A copy of a finding with another target or source."""
    data = json.loads(Path(finding).read_text())
    data["scenario"] |= changes
    path = Path("forged.json")
    path.write_text(json.dumps(data))
    return path


def found(cli: Cli, target: str, mark: Path) -> str:
    assert cli("run", target, "--json", "--explain", 0) == 1
    mark.unlink()
    sys.modules.pop(Path(target.partition("::")[0]).stem)
    return str(cli.data["violations"][0]["finding"])


def found_elsewhere(cli: Cli, file: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The finding of a scenario in ``file``, with another directory as the current one."""
    written(file, mark)
    here = file.parents[1] / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return found(cli, f"{file}::racing", mark)


def test_a_replay_says_what_it_imports(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    written(Path("trusted_mine.py"), mark)
    finding = found(cli, "trusted_mine.py::racing", mark)
    assert cli("replay", finding, "--times", 1) == 1
    assert "racecheck: replay will import trusted_mine.py\n" in cli.err
    assert mark.exists()


def test_a_file_elsewhere_is_not_imported_unless_that_is_allowed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, mark = tmp_path / "elsewhere/trusted_far.py", tmp_path / "imported"
    finding = found_elsewhere(cli, elsewhere, mark, monkeypatch)
    Path("trusted_far.py").symlink_to(elsewhere)
    linked = forged(finding, target="trusted_far.py::racing")
    for each, shown in ((finding, str(elsewhere)), (str(linked), "trusted_far.py")):
        assert cli("replay", each) == 2
        wrong = f"racecheck: {shown} is not below the current directory: read what it is, then add --trust"
        assert cli.err.splitlines() == [f"racecheck: replay will import {shown}", wrong]
        assert not mark.exists()
    assert cli("replay", finding, "--times", 1, "--trust") == 1
    assert mark.exists()


def test_a_file_that_has_changed_is_not_imported_for_its_orderings_unless_that_is_allowed(
    cli: Cli, tmp_path: Path
) -> None:
    mark, file = tmp_path / "imported", Path("trusted_later.py")
    written(file, mark)
    assert cli("run", f"{file}::racing", "--json") == 1
    finding = cli.data["violations"][0]["finding"]
    mark.unlink()
    del sys.modules["trusted_later"]
    file.write_text(file.read_text() + '    (rank.path / "other").touch()\n')
    assert cli("replay", finding, "--constraints") == 2
    assert "trusted_later.py (racing) has changed since the finding was created: read what it is" in cli.err
    assert not mark.exists()
    assert cli("replay", finding, "--constraints", "--trust", "--times", 1) == 1
    assert mark.exists()


def test_what_is_compared_is_what_would_be_imported(cli: Cli, tmp_path: Path) -> None:
    mark, other = tmp_path / "imported", tmp_path / "imported too"
    written(Path("d/trusted_b.py"), mark)
    finding = found(cli, "d/trusted_b.py::racing", mark)
    written(Path("trusted_a.py"), other)
    for target in ("trusted_a.py::d/trusted_b.py::racing", "trusted_a.py::racing;x", "d/::racing"):
        assert cli("replay", forged(finding, target=target), "--trust") == 2, target
        assert not mark.exists()
        assert not other.exists()


def test_control_characters_of_a_finding_do_not_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    written(Path("trusted_plain.py"), mark)
    finding = found(cli, "trusted_plain.py::racing", mark)
    nasty = "\x1b[2J\x07\x9b31m\u202e"
    assert cli("replay", forged(finding, target=f"{nasty}.py::racing")) == 2
    assert r"no \x1b[2J\x07\x9b31m\u202e.py::racing here" in cli.err
    data = json.loads(Path(finding).read_text())
    data["judgement"]["violations"][0]["message"] = nasty
    data["versions"]["torch"] = nasty
    Path("nasty.json").write_text(json.dumps(data))
    assert cli("replay", "nasty.json", "--times", 1) == 1
    assert cli("report", "nasty.json", "--markdown") == 0
    assert not any(each in cli.out for each in "\x1b\x07\x9b\u202e")


def test_only_line_breaks_and_colours_are_printed_as_they_are() -> None:
    assert printable("\x1b[1;31mFAIL\x1b[0m\n\x1b]0;title\x07\x1b[2J") == (
        "\x1b[1;31mFAIL\x1b[0m\n" + r"\x1b]0;title\x07\x1b[2J"
    )


@pytest.mark.parametrize(
    ("environment", "doubts"),
    [
        ({"RANK": "0", "MASTER_ADDR": "localhost", "TORCHELASTIC_RUN_ID": "none"}, []),
        ({"PYTHONPATH": "."}, ["it sets PYTHONPATH"]),
        ({"LD_PRELOAD": "a.so", "HOME": "/elsewhere"}, ["it sets HOME", "it sets LD_PRELOAD"]),
        ({"HTTP_PROXY": "evil.example:80", "BASH_ENV": "x"}, ["it sets BASH_ENV", "it sets HTTP_PROXY"]),
        ({"ACCELERATE_DEEPSPEED_CONFIG_FILE": "/x.json"}, ["it sets ACCELERATE_DEEPSPEED_CONFIG_FILE"]),
    ],
)
def test_a_launch_that_sets_what_decides_which_code_is_loaded_is_in_doubt(
    environment: dict[str, str], doubts: list[str]
) -> None:
    Path("train.py").touch()
    launch = Launch(("torchrun", "train.py"), "train.py", "", (), str(Path.cwd()), environment, 2, "checkpoints")
    assert [*trust._doubts(launch)] == doubts


@pytest.mark.parametrize(
    ("script", "arguments", "doubts"),
    [
        (racecheck.__main__.__file__, ("list", "/any/where/evil.py"), [
            f"{racecheck.__main__.__file__} in {{here}} is not below the current directory",
            "its argument /any/where/evil.py is not below the current directory",
        ]),
        ("train.py", ("conf.yaml", "/data/conf.yaml", "own.py", "--config=sub/own.py"), []),
        ("train.py", ("--config=../evil.py",), ["its argument --config=../evil.py is not below the current directory"]),
    ],
)  # fmt: skip
def test_a_launch_that_runs_other_files_is_in_doubt(script: str, arguments: tuple[str, ...], doubts: list[str]) -> None:
    """What comes with racecheck, too: its command line runs whatever file its arguments name."""
    Path("train.py").touch()
    launch = Launch(("torchrun",), script, "", arguments, str(Path.cwd()), {}, 2, "checkpoints")
    assert [*trust._doubts(launch)] == [each.format(here=Path.cwd()) for each in doubts]


@pytest.mark.parametrize(("answer", "status"), [("y", 1), ("n", 2)])
def test_at_a_terminal_it_asks(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    elsewhere, mark = tmp_path / f"elsewhere/trusted_{answer}.py", tmp_path / "imported"
    finding = found_elsewhere(cli, elsewhere, mark, monkeypatch)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [*RACECHECK, "replay", finding, "--times", "1"],
        stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, check=False, timeout=100,
    )  # fmt: skip
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert f"{elsewhere} is not below the current directory. Continue? [y/N]" in said
    assert done.returncode == status
    assert mark.exists() == (status == 1)


WRONG = (
    ('"index": 0', '"index": 1000000', 3, "at choice"),
    ('"ranks": 2,', '"ranks": 1000000000000,', 2, "it has results of 2 of 1000000000000 ranks"),
    ('"seed": "0"', r'"seed": "\ud800"', 2, "the seed"),
    ('"timeout": 30.0', '"timeout": 1e300', 2, "timeout must be more than 0 and at most 1000000 seconds"),
    ('"faults": []', '"faults": [{FAULT}]', 2, "is no fault: write it as text"),
    ('"crash": null', '"crash": {CRASH}', 2, "no crash model"),
)


def test_a_value_that_no_command_line_takes_is_refused(cli: Cli, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    written(Path("trusted_value.py"), mark)
    text = Path(found(cli, "trusted_value.py::racing", mark)).read_text()
    fault = json.dumps(asdict(Fault("enospc", ("write",))) | {"what": "full", "amount": float("inf")})
    crash = json.dumps(asdict(Crash("../x", ())))
    for old, new, status, said in WRONG:
        assert old in text, old
        Path("wrong.json").write_text(text.replace(old, new.replace("{FAULT}", fault).replace("{CRASH}", crash), 1))
        assert cli("replay", "wrong.json", "--times", 1) == status, new
        assert said in cli.out + cli.err
        assert "Traceback" not in cli.err
