"""``racecheck run --watch DIR -- torchrun ...``: programs that know nothing of racecheck, launched as they are.

``command`` runs a command as a user does, ``racecheck`` in a process that covers the machine's files for many tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from racecheck.kernel import proc
from tests.support.launching import TORCHRUN, Racecheck, environment
from tests.support.outside import eventually, snapshot


def test_a_race_is_found_and_replays_and_no_file_of_the_user_changes(programs: Path, racecheck: Racecheck) -> None:
    before = snapshot(programs)
    status, text = racecheck(
        "run", "--watch", "checkpoints/my_run", "--json", "--", *TORCHRUN, "train.py", "--overwrite"
    )
    assert status == 1, text
    data = json.loads(text)
    assert data["violations"][0]["invariant"] == "no-file-errors"
    assert snapshot(programs) == before
    finding = Path(data["violations"][0]["finding"])
    for launch in finding.parent.glob("launch-*.json"):
        launch.unlink()
    status, text = racecheck("replay", finding, "--times", 5, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 5), "the finding carries all that it takes"
    outside, forged = f"{programs}/train.py", json.loads((programs / finding).read_text())
    for changes, doubt in (
        ({"script": "", "module": "timeit"}, f"timeit in {programs} is not below the current directory"),
        ({"environment": {"LD_PRELOAD": "x.so"}}, "it sets LD_PRELOAD"),
        ({"directory": "/", "script": outside}, f"{outside} in / is not below the current directory"),
    ):
        (programs / "forged.json").write_text(json.dumps({**forged, "launch": {**forged["launch"], **changes}}))
        status, text = racecheck("replay", "forged.json", "--constraints")
        assert status == 2, text
        assert f"{doubt}: read what it is, then add --trust" in text
    for changes, wrong in (
        ({"script": "nothing.py"}, f"no nothing.py in {programs}: replay it where it was run"),
        ({"directory": "/nowhere"}, "no train.py in /nowhere: replay it where it was run"),
        ({"watched": "/etc"}, "--watch /etc: name a directory below it, such as /etc/run"),
    ):
        (programs / "forged.json").write_text(json.dumps({**forged, "launch": {**forged["launch"], **changes}}))
        status, text = racecheck("replay", "forged.json", "--constraints", "--trust")
        assert status == 2, text
        assert wrong in text
    (programs / "train.py").write_text((programs / "train.py").read_text() + "# changed\n")
    status, text = racecheck("replay", finding)
    assert status == 2
    assert "train, or a file that it uses, has changed since the finding was created" in text


def test_a_careful_program_passes_and_what_it_writes_elsewhere_is_thrown_away(
    programs: Path, racecheck: Racecheck
) -> None:
    before = snapshot(programs)
    status, text = racecheck("run", "--watch", "checkpoints/my_run", "--", *TORCHRUN, "careful.py")
    assert status == 0, text
    assert text.startswith("PASS  EXHAUSTED")
    assert "the program's NCCL groups are gloo here" in text
    assert f"thrown away, not real: what was written to {programs}/log.txt and 2 more" in text
    assert snapshot(programs) == before


def test_what_a_run_leaves_in_memory_or_outside_is_gone_in_the_next(programs: Path, racecheck: Racecheck) -> None:
    """Else the second run would fail, and only because racecheck made the first one."""
    (programs / "leaves.py").write_text(
        "import os\nrank = os.environ['RANK']\nopen(f'out/{rank}', 'x').close()\n"
        "if rank == '0':\n    [open(each, 'x').close() for each in ('/dev/shm/left', 'left', '/var/tmp/left')]\n"
    )
    status, text = racecheck("run", "--watch", "out", "--", *TORCHRUN, "leaves.py")
    assert status == 0, text
    assert text.startswith("PASS  EXHAUSTED")


def test_a_module_with_a_race_in_what_it_imports(programs: Path, racecheck: Racecheck) -> None:
    command = ["torchrun", "--nproc-per-node=3", "-m", "package.start", "--name", "a b"]
    status, text = racecheck("run", "--watch", "out", "--nodes", 3, "--", *command)
    assert status == 1, text
    assert "package/saving.py:10 save" in text
    assert not [*(programs / "out").iterdir()]


SCRIPT = """set -e
export MODE=--overwrite
touch notes.txt made.txt
torchrun --nproc-per-node=2 train.py $MODE
"""


def test_a_script_that_starts_the_launcher(programs: Path, racecheck: Racecheck) -> None:
    """Its ranks race as they do without it, the finding replays, and what else it does is named; nothing is real."""
    (programs / "run.sh").write_text(SCRIPT)
    before = (programs / "notes.txt").stat().st_mtime_ns
    status, text = racecheck("run", "--watch", "checkpoints/my_run", "--json", "--", "bash", "run.sh")
    assert status == 1, text
    (violation,) = json.loads(text)["violations"]
    assert violation["invariant"] == "no-file-errors"
    assert (programs / "notes.txt").stat().st_mtime_ns == before
    assert not (programs / "made.txt").exists()
    status, text = racecheck("replay", violation["finding"])
    assert (status, f"its script has made {programs}/made.txt and 1 more: read" in text) == (2, True), text
    status, text = racecheck("replay", violation["finding"], "--times", 3, "--json", "--trust")
    assert (status, json.loads(text)["reproduced"]) == (1, 3)
    (programs / "run.sh").write_text(SCRIPT.replace("MODE=--overwrite", "MODE="))
    status, text = racecheck("replay", violation["finding"], "--trust")
    assert (status, "has changed since the finding was created" in text) == (2, True), text
    words = ["run", "--watch", "out", "--schedules", 2, "--explain", 0, "--", "env", "RUN=1"]
    status, text = racecheck(*words, *TORCHRUN, "resumable.py")
    assert (status, "no part of the runs" in text) == (0, False), text
    (programs / "run.sh").write_text("torchrun --nproc-per-node=2 resumable.py\n")
    status, text = racecheck(*words, "bash", "run.sh")
    assert (status, text.count("what env RUN=1 bash run.sh does after its ranks, and again before")) == (0, 2), text


SURROUNDED = """import os, sys
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
assert open("conf/run.txt").read() == "lr 1\\n" and os.listdir("old") == ["new"] and not os.path.exists("stale")
assert os.listdir("out") == ["sub"] and not os.path.exists("after")
with open(f"logs/{rank}", "x"):
    pass
if "race" in sys.argv or rank == 0:
    os.makedirs("out/sub/step")
dist.barrier()
"""
PREPARING = """set -e
mkdir -p logs conf
rm -rf out old stale
mkdir -p out/sub old
touch old/new
echo "lr 1" > conf/run.txt
cp prepared.txt conf/prepared.py
torchrun --nproc-per-node=2 conf/prepared.py "$@"
touch after
rm -r conf
"""


def test_each_run_finds_what_a_script_does_before_its_ranks(programs: Path, racecheck: Racecheck) -> None:
    (programs / "prepared.txt").write_text(SURROUNDED)
    (programs / "run.sh").write_text(PREPARING)
    for each in ("out", "old"):
        (programs / each).mkdir(exist_ok=True)
        (programs / each / "left").touch()
    (programs / "stale").touch()
    before = snapshot(programs)
    words = ["run", "--watch", "out", "--json", "--explain", 0, "--", "bash", "run.sh"]
    status, text = racecheck(*words)
    assert (status, json.loads(text)["claim"].partition(":")[0]) == (0, "EXHAUSTED"), text
    assert "what bash run.sh does after its ranks, and again before a recovery, is no part of the runs" in text
    status, text = racecheck(*words, "race")
    (violation,) = json.loads(text)["violations"]
    assert (status, violation["invariant"]) == (1, "no-file-errors"), text
    status, text = racecheck("replay", violation["finding"])
    assert (status, f"its script has made {programs}/conf/prepared.py and " in text) == (2, True), text
    status, text = racecheck("replay", violation["finding"], "--times", 10, "--json", "--trust")
    assert (status, json.loads(text)["reproduced"]) == (1, 10), text
    assert snapshot(programs) == before


def test_ranks_have_the_variables_that_a_command_before_the_launcher_leaves(
    programs: Path, racecheck: Racecheck
) -> None:
    (programs / "asks.py").write_text(
        "import os\nassert os.environ['A'] == '1' and 'HOME' not in os.environ, sorted(os.environ)\n"
        "open('out/' + os.environ['RANK'], 'w').close()\n"
    )
    words = ["run", "--watch", "out", "--", "env", "-u", "HOME", "A=1", *TORCHRUN, "asks.py"]
    status, text = racecheck(*words)
    assert status == 0, text


@pytest.mark.parametrize(("how", "end"), [("loop", "exit status 143"), ("stubborn", "died by SIGKILL")])
def test_the_launcher_ends_the_others_when_a_rank_has_failed(
    findings: Path, racecheck: Racecheck, how: str, end: str
) -> None:
    words = ["run", "--watch", "out", "--explain", 0, "--full", "--", *TORCHRUN, "emergency.py", how]
    status, text = racecheck(*words)
    assert status == 1, text
    lines = text.splitlines()
    assert lines[0].startswith("FAIL  no-unexpected-errors: rank 0 exited with status 3")
    assert "no-unexpected-errors: rank 1" not in text
    assert f"rank 1  {end}, caused by rank 0" in lines
    events = [line.split()[2:] for line in lines if line[:4].strip().isdigit()]
    rank1 = [" ".join(each[:2]) for each in events if each[:1] in (["SIGTERM"], ["SIGKILL"], ["sleep"], ["open"])]
    expected = {"loop": ["SIGTERM", "sleep 8", "open emergency"], "stubborn": ["SIGTERM", *["sleep 8"] * 3, "SIGKILL"]}
    assert rank1[-len(expected[how]) :] == expected[how], text
    assert "the launcher's SIGTERM to the others was tried at one moment" in text
    (finding,) = (findings / "emergency").glob("??????????.json")
    trace = json.loads(finding.read_text())["outcome"]["trace"]
    tenths = [
        (each["syscall"], round(each["time"] / 1e8, 1))
        for each in trace
        if each.get("call") in {"kill", "open", "exit"}
    ]
    last = {"loop": [("SIGTERM", 1), ("openat", 1)], "stubborn": [("SIGTERM", 1), ("SIGKILL", 301)]}
    assert tenths[-2:] == last[how], "a tenth of a second after the failure, and thirty seconds later"


@pytest.mark.parametrize("how", ["rest", "nanosleep"])
def test_a_sleep_that_the_signal_interrupts_continues_for_what_is_left(
    findings: Path, racecheck: Racecheck, how: str
) -> None:
    status, text = racecheck("run", "--watch", "out", "--explain", 0, "--", *TORCHRUN, "emergency.py", how)
    assert status == 1, text
    (finding,) = (findings / "emergency").glob("??????????.json")
    trace = json.loads(finding.read_text())["outcome"]["trace"]
    created = [round(each["time"] / 1e8) for each in trace if each.get("call") == "open" and each["rank"] == 1]
    assert created[-2:] == [1, 80], "the handler's file after a tenth of a second, the other one after the sleep"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["loop", "queue", "rest"])
def test_a_handler_of_sigterm_does_under_torchrun_what_it_does_here(
    programs: Path, racecheck: Racecheck, how: str
) -> None:
    command = ["run", "--check-launcher", "--json", "--watch", "out", "--", *TORCHRUN, "emergency.py", how]
    status, text = racecheck(*command)
    assert status == 0, text
    assert json.loads(text)["ops"] > 6


@pytest.mark.slow
@pytest.mark.parametrize("program", [["who.py", "a", "b c"], ["-m", "who", "-x"]])
def test_a_rank_finds_what_torchrun_would_have_given_it(
    programs: Path, command: Racecheck, program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment, too: so the command has a process of its own.

    The number of ops counts variables. torch sets some in the process that tests (``TORCHINDUCTOR_CACHE_DIR``).
    """
    for inherited in [name for name in os.environ if name.startswith("TORCH")]:
        monkeypatch.delenv(inherited)
    (programs / "out").rmdir()
    (programs / "out").mkdir()
    status, text = command("run", "--check-launcher", "--watch", "out", "--", *TORCHRUN, *program)
    size = "2 ranks, 152 ops in the watched directory"
    expected = f"PASS  torchrun and racecheck run this program alike: {size}, their results, the exit statuses"
    assert (status, text.splitlines()) == (0, [expected])


@pytest.mark.slow
def test_a_training_script_does_under_torchrun_what_it_does_here(programs: Path, racecheck: Racecheck) -> None:
    script = (programs / "train.py").read_text()
    alone = script.replace("if os.path.exists", "dist.barrier()\n    if dist.get_rank() == 0 and os.path.exists")
    alone = alone.replace("os.makedirs(options.out)", "dist.barrier(); os.makedirs(options.out, exist_ok=True)")
    (programs / "alone.py").write_text(alone)
    before = snapshot(programs)
    command = [*TORCHRUN, "alone.py", "--overwrite"]
    status, text = racecheck("run", "--check-launcher", "--json", "--watch", "checkpoints/my_run", "--", *command)
    assert status == 0, text
    assert json.loads(text)["ops"] > 10
    assert snapshot(programs) == before


def test_a_program_that_does_something_else_here_is_named(programs: Path, racecheck: Racecheck) -> None:
    (programs / "looks.py").write_text(
        "import os\nrank = os.environ['RANK']\n"
        "open(f'out/{rank}', 'w').write('x' * (1 + ('RACECHECK_SLOT' in os.environ)))\n"
        "if 'RACECHECK_SLOT' in os.environ and rank == '1':\n"
        "    open('out/more', 'x').close()\n    raise SystemExit(3)\n"
    )
    status, text = racecheck("run", "--check-launcher", "--json", "--watch", "out", "--", *TORCHRUN, "looks.py")
    data = json.loads(text)
    assert (status, data["verdict"], data["ranks"]) == (1, "FAIL", 2)
    assert [(each["rank"], each["real"], each["emulated"]) for each in data["differences"]] == [
        (0, "write 0: ok, 1", "write 0: ok, 2"),
        (1, "write 1: ok, 1", "write 1: ok, 2"),
        (1, "", "open more O_CLOEXEC O_CREAT O_EXCL O_WRONLY: ok, 0"),
        (1, "", "stat more AT_EMPTY_PATH: ok, 0"),
        (1, "", "close more"),
        (1, "exit status 0", "exit status 3"),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--watch", "/", "--", "torchrun", "train.py"], "name the directory that the checkpoints go to"),
        (
            ["--watch", "/checkpoints", "--", "torchrun", "train.py"],
            "name a directory below it, such as /checkpoints/run",
        ),
        (["--watch", "/proc/self/../../dev/shm", "--", "torchrun", "train.py"], "name a directory below it"),
        (["--watch", "..", "--", "torchrun", "train.py"], "the working directory is in it"),
        (["--watch", "no/such/dir", "--", "torchrun", "train.py"], "your program fails without any race"),
        (["--watch", "notes.txt", "--", "torchrun", "train.py"], "notes.txt is no directory"),
        (["--watch", "out", "--", "bash", "nowhere.sh"], "bash nowhere.sh started no rank that racecheck could see"),
        (["--watch", "out", "--", "ls", "out"], "unknown launcher 'ls' 'out'"),
        (["--watch", "out", "--", "python", "-c", "pass"], "unknown launcher 'python' '-c'"),
        (["--watch", "out", "--", "torchrun", "--no-python", "ls"], "--no-python starts what racecheck cannot"),
        (["--watch", "out", "--", "torchrun", "--nnodes=2", "train.py"], "--nnodes 2: racecheck starts all ranks here"),
        (["--watch", "out", "--from", "nowhere", "--", "torchrun", "train.py"], "--from nowhere: no such directory"),
        (["train.py", "--overwrite"], "racecheck run -- torchrun --nproc-per-node=2 train.py --overwrite"),
        (
            ["--", "torchrun", "train.py"],
            "your program fails before it writes a file in the working directory",
        ),
        (["--from", "out", "x.py::y"], "--from is for a launch command"),
    ],
)
def test_wrong_usage_is_reported_in_one_line_at_once(racecheck: Racecheck, words: list[str], message: str) -> None:
    status, text = racecheck("run", *words)
    assert status == 2
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        (None, 2, "no such file: bad.py"),
        ("def (", 2, "bad.py:1: invalid syntax"),
        ("input()", 2, "needs input, which no rank gets under racecheck"),
        ("import torch; torch.cuda.set_device(0)", 2, "needs a GPU"),
        ("print('nothing')", 2, "nothing happened in out, and the program wrote no file of its own elsewhere"),
        ("import sys; open('out/a', 'w'); sys.exit(3)", 1, "exited with status 3"),
        ("open('out/' + __import__('os').environ['RANK'], 'w')", 0, "PASS  EXHAUSTED"),
    ],
)
def test_a_strange_program_gets_a_plain_answer(
    programs: Path, racecheck: Racecheck, program: str | None, status: int, message: str
) -> None:
    if program is not None:
        (programs / "bad.py").write_text(program + "\n")
    before = snapshot(programs)
    found, text = racecheck("run", "--watch", "out", "--schedules", 3, "--", *TORCHRUN, "bad.py")
    assert (found, message in text) == (status, True), text
    assert snapshot(programs) == before


def test_a_program_that_ends_with_status_0_has_not_failed(programs: Path, racecheck: Racecheck) -> None:
    """torchrun asks for no more than the status."""
    (programs / "exits.py").write_text("import os; open('out/' + os.environ['RANK'], 'w').close(); os._exit(0)")
    status, text = racecheck("run", "--watch", "out", "--schedules", 3, "--", *TORCHRUN, "exits.py")
    assert (status, text[:15]) == (0, "PASS  EXHAUSTED"), text


@pytest.mark.slow
def test_racecheck_killed_half_way_changes_nothing_and_leaves_no_process(programs: Path, findings: Path) -> None:
    before = snapshot(programs)
    words = ["run", "--watch", "checkpoints/my_run", "--keep-going", "--schedules", "9999"]
    command = [sys.executable, "-m", "racecheck", *words, "--", *TORCHRUN, "train.py", "--overwrite"]
    process = subprocess.Popen(
        command, cwd=programs, env=environment(findings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert eventually(lambda: any(findings.rglob("[0-9a-f]*.json"))), "it has found the race"
    started = proc.descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert started
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    assert snapshot(programs) == before


@pytest.mark.slow
def test_a_module_that_asks_for_its_rank_when_imported_is_imported_in_each_rank(
    programs: Path, command: Racecheck
) -> None:
    """A rank that believes that it is rank 0 would be a finding that racecheck made up."""
    installed = programs / "site-packages"
    installed.mkdir()
    (installed / "asks.py").write_text("import os\nRANK = int(os.environ.get('RANK', 0))\n")
    (programs / "asking.py").write_text(
        "import os, sys\nsys.path.append('site-packages')\nimport asks\n"
        "open(f'out/{asks.RANK}', 'x').close()\nassert str(asks.RANK) == os.environ['RANK']\n"
    )
    status, text = command("run", "--watch", "out", "--", *TORCHRUN, "asking.py", path=installed)
    assert status == 0, text


DAEMON = """
import os, subprocess, sys
from pathlib import Path

if "RACECHECK_SLOT" not in os.environ:  # when the script is its own launcher, and nobody controls it
    subprocess.Popen(["sh", "-c", f"while :; do touch {sys.argv[1]}; sleep 0.01; done"], start_new_session=True)
Path("out/a").touch()
"""


def test_a_daemon_of_a_launcher_ends_before_the_real_files_are_back(programs: Path, racecheck: Racecheck) -> None:
    (programs / "daemon.py").write_text(DAEMON)
    mark = programs / "mark"
    status, text = racecheck("run", "--watch", "out", "--schedules", 1, "--", sys.executable, "daemon.py", mark)
    assert status == 0, text
    commands = (each.read_bytes() for each in Path("/proc").glob("[0-9]*/cmdline") if os.access(each, os.R_OK))
    assert not [each for each in commands if f"touch {mark}".encode() in each]
    assert not mark.exists()
