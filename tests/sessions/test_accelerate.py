"""``accelerate launch``: how many processes it is asked for, and what it starts, by a stand-in with its two launchers.

The real one is tested where it is installed (`tests/frameworks/test_huggingface.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import accelerate, capture
from racecheck.targets.programs import ABSENT

STAND_IN = f"""#!{sys.executable}
import os, subprocess, sys
words = sys.argv[2:]
if "--multi_gpu" in words:
    import torch.distributed.run
    torch.distributed.run.main(["--nproc-per-node=3", words[-1]])
else:
    environment = {{**os.environ, "ACCELERATE_USE_CPU": "True"}}
    subprocess.run([sys.executable, words[-1]], env=environment, check=True)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script that must not run, and accelerate on the path."""
    (tmp_path / "accelerate").write_text(STAND_IN)
    (tmp_path / "accelerate").chmod(0o700)
    (tmp_path / "train.py").write_text("open('ran', 'x')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "ranks"),
    [(["--multi_gpu"], 3), (["--cpu", "--num_processes", "2"], 2), (["--cpu", "--num-processes=4"], 4), (["--cpu"], 1)],
)
def test_as_many_ranks_as_were_asked_for_and_the_script_does_not_run(
    place: Path, options: list[str], ranks: int
) -> None:
    made = capture.launch(["accelerate", "launch", *options, "train.py"], place / "out", ABSENT)
    assert (made.ranks, made.script) == (ranks, "train.py")
    assert made.note.startswith("accelerate starts one process on CPUs") is ("--cpu" in options and ranks > 1)
    assert not (place / "ran").exists()


def test_the_configuration_says_how_many_where_the_command_does_not(place: Path) -> None:
    (place / "conf.yaml").write_text("num_machines: 1\nnum_processes: 5\n")
    command = ["accelerate", "launch", "--config_file", "conf.yaml", "train.py"]
    assert accelerate.processes(command) == 5
    assert accelerate.processes([*command[:2], "--num_processes", "2", *command[2:]]) == 2
    assert accelerate.processes(["accelerate", "launch", "train.py"]) == 1
    (place / "home" / "accelerate").mkdir(parents=True)
    (place / "home" / "accelerate" / "default_config.json").write_text('{\n  "num_processes": 6\n}\n')
    assert accelerate.processes(["accelerate", "launch", "train.py"]) == 6
    assert accelerate.processes(["accelerate", "launch", "--cpu", "train.py"]) == 1, "accelerate reads none then"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["accelerate", "launch", "--num_machines", "2", "train.py"],
            "num_machines 2: racecheck starts all ranks",
        ),
        (["accelerate", "launch", "--config_file=far.yaml", "train.py"], "num_machines 4: racecheck starts all ranks"),
        (["accelerate", "launch", "--config_file=none.yaml", "train.py"], r"cannot read none\.yaml"),
        (["accelerate", "config"], "unknown launcher 'accelerate' 'config'; known: torchrun, .*, accelerate launch"),
        (["accelerate", "launch", "--no_python", "train.sh"], "--no-python starts what racecheck cannot take over"),
    ],
)
def test_what_cannot_be_taken_over_is_refused(place: Path, command: list[str], said: str) -> None:
    (place / "far.yaml").write_text("num_processes: 8\nnum_machines: 4\n")
    with pytest.raises(UsageError, match=said):
        capture.check(command)


def test_without_accelerate_the_message_names_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "accelerate").unlink()
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    with pytest.raises(UsageError, match="no such command: accelerate; install accelerate in this environment"):
        capture.check(["accelerate", "launch", "train.py"])
