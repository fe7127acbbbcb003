"""Scripts that start their ranks themselves: what is one, and how many ranks it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import capture, scripts
from racecheck.targets import surroundings
from racecheck.targets.programs import ABSENT
from tests.support.launching import LAUNCHED, environment
from tests.support.outside import eventually


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train.py --lr 3", ("train.py", "", ("--lr", "3"))),
        ("-u -W ignore -X dev train.py", ("train.py", "", ())),
        ("-m package.train -x", ("", "package.train", ("-x",))),
    ],
)
def test_the_program_is_told_from_the_interpreter_s_options(words: str, expected: tuple[str, str, tuple[str]]) -> None:
    assert scripts.program(words.split()) == expected
    assert scripts.is_it(["python3", *words.split()])


@pytest.mark.parametrize(
    "words", ["python -c pass", "python", "python -u", "python -m torch.distributed.checkpoint a.py"]
)
def test_other_commands_are_refused(words: str) -> None:
    assert not scripts.is_it(words.split())
    with pytest.raises(UsageError, match="unknown launcher"):
        capture.check(words.split())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(LAUNCHED / "spawning.py", tmp_path)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("what", "ranks"), [("race", 2), ("processes", 2), ("orphans", 2), ("none", 0), ("twice", 2), ("queue", 2)]
)
def test_the_ranks_are_counted_and_not_started(place: Path, what: str, ranks: int) -> None:
    made = capture.launch([sys.executable, "spawning.py", what], place / "out", ABSENT)
    assert (made.ranks, made.spawns, made.script, made.arguments) == (ranks, True, "spawning.py", (what,))
    assert made.processes == ranks + 1
    assert [each.name for each in (place / "out").iterdir()] == (["model.pt"] if what == "none" else [])


@pytest.mark.parametrize("more", ["", ', "RANK": str(number)'])
def test_a_script_that_starts_itself_again_has_all_its_ranks_started_alike(place: Path, more: str) -> None:
    text = (LAUNCHED / "restarting.py").read_text()
    (place / "restarting.py").write_text(text.replace(": str(number)}", f": str(number){more}}}"))
    made = capture.launch([sys.executable, "restarting.py", "--helper"], place / "out", ABSENT)
    assert (made.script, made.arguments, made.ranks, made.spawns) == ("restarting.py", ("--helper",), 2, False)
    assert {**made.environment} == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "0"}
    assert [each.name for each in (place / "out").iterdir()] == ["helped"], "another program runs"
    with pytest.raises(UsageError, match=r"restarting\.py started 1 of 2 more ranks: all must run on this machine"):
        capture.launch([sys.executable, "restarting.py", "--too-few"], place / "out", ABSENT)


def test_a_script_that_waits_in_a_way_of_its_own_is_not_waited_for_longer_than_needed(place: Path) -> None:
    (place / "waits.py").write_text(
        "import threading\nfrom multiprocessing import get_context\n"
        "if __name__ == '__main__':\n"
        "    get_context('spawn').Process(target=exit).start()\n"
        "    get_context('spawn').Process(target=f).start() if False else None\n"
    )
    assert capture.launch([sys.executable, "waits.py"], place / "out", ABSENT).ranks == 0, "exit is no function of its"
    (place / "waits.py").write_text(
        "import threading\nfrom multiprocessing import get_context\n"
        "def work():\n    pass\n"
        "if __name__ == '__main__':\n"
        "    get_context('spawn').Process(target=work).start()\n"
        "    threading.Event().wait()\n"
    )
    assert capture.launch([sys.executable, "waits.py"], place / "out", ABSENT).ranks == 1


def test_a_script_that_fails_before_it_starts_anything_is_refused_with_its_last_words(place: Path) -> None:
    (place / "fails.py").write_text("raise SystemExit('no configuration')\n")
    with pytest.raises(UsageError, match=r"fails\.py failed before it started a rank: no configuration"):
        capture.launch([sys.executable, "fails.py"], place / "out", ABSENT)


def test_a_process_that_the_script_forks_says_nothing(place: Path) -> None:
    (place / "forks.py").write_text(
        "import os\nfrom multiprocessing import get_context\n"
        "def work():\n    pass\n"
        "if __name__ == '__main__':\n"
        "    if pid := os.fork():\n"
        "        os.waitpid(pid, 0)\n"
        "        get_context('spawn').Process(target=work).start()\n"
    )
    assert capture.launch([sys.executable, "forks.py"], place / "out", ABSENT).ranks == 1


def test_the_script_s_own_functions_are_ranks_wherever_it_lies(place: Path) -> None:
    """Also below the directory of the environment, or of Python itself."""
    inside = place / "site-packages"
    inside.mkdir()
    shutil.copy(place / "spawning.py", inside)
    assert capture.launch([sys.executable, "site-packages/spawning.py", "processes"], place / "out", ABSENT).ranks == 2


FORKS = """
import multiprocessing
from torch.distributed import {group}
def work():
    pass
if __name__ == "__main__":
    made = []
    for _ in range(3):
        made.append(multiprocessing.get_context("fork").Process(target=work))
        made[-1].start()
        assert made[-1].is_alive()
        multiprocessing.active_children()
    for each in made:
        each.join()
"""


@pytest.mark.parametrize(("group", "ranks"), [("init_process_group", 3), ("is_available", 0)])
def test_forked_processes_are_ranks_if_the_script_makes_a_process_group(place: Path, group: str, ranks: int) -> None:
    """A look at whether one lives is no wait for it."""
    (place / "forks.py").write_text(FORKS.format(group=group))
    made = capture.launch([sys.executable, "forks.py"], place / "out", ABSENT)
    assert (made.ranks, made.forks, made.spawns) == (ranks, ranks > 0, True)


DAEMON = """
import subprocess, sys, time
from multiprocessing import get_context

def work():
    pass

if __name__ == "__main__":
    subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
    if sys.argv[2:]:
        time.sleep(60)
    get_context("spawn").Process(target=work).start()
"""


def _sleeping(mark: str) -> bool:
    """Whether a process sleeps for ``mark`` seconds."""
    found = False
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found = found or each.read_bytes() == f"sleep\0{mark}\0".encode()
    return found


def test_a_daemon_ends_with_the_launcher(place: Path) -> None:
    (place / "daemon.py").write_text(DAEMON)
    mark = f"9{os.getpid()}1"
    assert capture.launch([sys.executable, "daemon.py", mark], place / "out", ABSENT).ranks == 1
    assert not _sleeping(mark)


def test_nothing_is_left_if_racecheck_is_killed_while_the_launcher_runs(place: Path) -> None:
    (place / "daemon.py").write_text(DAEMON)
    mark = f"9{os.getpid()}2"
    capturing = "import sys; from racecheck.sessions.launchers import capture; capture.capture(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", capturing, sys.executable, "daemon.py", mark, "waits"], env=environment(place)
    )
    assert eventually(lambda: _sleeping(mark))
    process.kill()
    process.wait()
    assert eventually(lambda: not _sleeping(mark))


HELPED = """
import os, subprocess, sys
os.environ.update(RANK="0", WORLD_SIZE="1")
print(subprocess.check_output([sys.executable, "helper.py"], text=True))
open("out/helped", "x").close()
"""


def test_a_helper_that_inherits_rank_is_no_rank(place: Path) -> None:
    (place / "helps.py").write_text(HELPED)
    (place / "helper.py").write_text("open('out/ran', 'x').close()\n")
    made = capture.launch([sys.executable, "helps.py"], place / "out", ABSENT)
    assert (made.script, made.ranks, made.spawns, made.in_script) == ("helps.py", 0, True, False)
    assert sorted(os.listdir(place / "out")) == ["helped", "ran"]


LAUNCHING = """
import os, subprocess, sys
how, ranks = sys.argv[1], ["--nproc-per-node=2", "train.py", "--lr", "1"]
open("made", "w").close()
if how == "run":
    subprocess.run(["torchrun", *ranks], check=True, env={**os.environ, "A": "1"})
elif how == "module":
    subprocess.check_call([sys.executable, "-m", "torch.distributed.run", *ranks])
elif how == "shell":
    subprocess.run("A=1 torchrun " + " ".join(ranks), shell=True, check=True)
elif how == "system":
    assert os.system("torchrun " + " ".join(ranks)) == 0
elif how == "exec":
    os.execvp("torchrun", ["torchrun", *ranks])
elif how == "srun":
    subprocess.run(["srun", "-n", "2", sys.executable, *ranks[1:]], check=True)
elif how == "hand":
    own = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    made = [subprocess.Popen([sys.executable, *ranks[1:]], env=each) for each in own]
    assert not any([each.wait() for each in made])
elif how == "twice":
    for _ in range(2):
        subprocess.run(["torchrun", *ranks], check=True)
elif how == "nodes":
    subprocess.run(["torchrun", "--nnodes=2", *ranks], check=True)
"""


@pytest.fixture
def launching(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (place / "launch.py").write_text(LAUNCHING)
    (place / "train.py").write_text("open('ran', 'w')\n")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return place


@pytest.mark.parametrize("how", ["run", "module", "shell", "system", "exec", "srun", "hand"])
def test_a_python_script_may_start_a_launcher(launching: Path, how: str) -> None:
    """Its files from before the ranks are looked at, and no rank runs."""
    seen, archive = list[bool](), surroundings.pack([])

    def look(_: object) -> tuple[str, str]:
        seen.append((launching / "made").exists())
        return ABSENT, archive

    made = capture.launch([sys.executable, "launch.py", how], launching / "out", "start", look)
    assert (made.script, made.arguments, made.ranks, made.spawns) == ("train.py", ("--lr", "1"), 2, False)
    assert (made.in_script, made.start, made.before, seen) == (True, ABSENT, archive, [True])
    assert (made.environment.get("A") == "1") == (how in {"run", "shell"})
    assert not {"RACECHECK_CAPTURE", "PATH", "PYTHONPATH"} & made.environment.keys()
    assert not (launching / "ran").exists()


@pytest.mark.parametrize(("how", "said"), [("twice", "starts two jobs"), ("nodes", "--nnodes 2: racecheck starts all")])
def test_a_python_script_with_two_jobs_or_nodes_is_refused(launching: Path, how: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        capture.launch([sys.executable, "launch.py", how], launching / "out", ABSENT)
