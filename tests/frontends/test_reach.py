"""What a launched program can reach: no process outside of its run, no device, no setting of the machine."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHED, TORCHRUN, environment
from tests.support.users import USERS

_libc = ctypes.CDLL(None, use_errno=True)
_CREATE = 0o1000
SCRIPT = LAUNCHED / "reaching.py"
PROCESSES = (
    "a signal", "a signal to a group", "a process by its name", "the files of a process", "the open files of a process",
    "a trace", "a limit", "a priority", "a processor", "System V memory", "a POSIX queue",
)  # fmt: skip


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A process of this user, with shared memory and a queue; returns the file that tells the script about it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "kept").write_text("kept")
    mark = f"mark-{os.getpid()}"
    sleeper = "import sys, time; print(flush=True); time.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", sleeper, mark], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    memory = _libc.shmget(process.pid, 4096, _CREATE | 0o600)
    queue = _libc.mq_open(f"/{mark}".encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    assert min(memory, queue) >= 0
    os.close(queue)
    asked = {"outside": process.pid, "mark": mark, "file": str(tmp_path / "kept"), "machine": True}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    try:
        yield tmp_path / "asked.json"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        _libc.shmctl(memory, 0, None)
        _libc.mq_unlink(f"/{mark}".encode())


def test_each_attempt_reaches_a_process_without_racecheck(outside: Path) -> None:
    outside.write_text(json.dumps({**json.loads(outside.read_text()), "machine": False}))
    done = subprocess.run(
        [sys.executable, SCRIPT, outside], env={**os.environ, "RANK": "0"}, cwd=outside.parent, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == f"AssertionError: reached: {', '.join(PROCESSES)}"


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("launcher", [[*TORCHRUN[:1], "--nproc-per-node=1"], [sys.executable]], ids=["ranks", "script"])
def test_a_program_reaches_nothing_outside_of_its_run(outside: Path, user: str, launcher: list[str]) -> None:
    words = ["run", "--watch", "out", "--schedules", "1", "--", *launcher, SCRIPT, outside.name]
    done = subprocess.run(
        [*USERS[user], sys.executable, "-m", "racecheck", *words], cwd=outside.parent,
        env=environment(outside.parent / "findings"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (outside.parent / "kept").read_text() == "kept"


def test_a_signal_to_racecheck_itself_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "Path('out/a').touch()\n"
        "for target in (os.getppid(), 1, 2, -1):\n"
        "    try:\n"
        "        os.kill(target, 15)\n"
        "    except PermissionError:\n"
        "        Path('out', f'refused{target != os.getppid() and target}').touch()\n"
        "os.kill(os.getppid(), 0)\n"
        "assert len(os.listdir('out')) == 5\n"
    )
    (tmp_path / "out").mkdir()
    words = ["run", "--watch", "out", "--schedules", "1", "--json", "--", "torchrun", "--nproc-per-node=1", "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "racecheck", *words], cwd=tmp_path, env=environment(tmp_path / "findings"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    coverage = json.loads(done.stdout)["coverage"]
    assert coverage["holes"] == {"a signal to a process outside of the run, which is refused (EPERM)": 4}


def test_where_no_other_proc_is_allowed_processes_outside_are_seen_and_get_no_signal(outside: Path) -> None:
    """In a container that hides a part of /proc, as an ordinary user."""
    given = json.loads(outside.read_text())
    here = outside.parent
    (here / "train.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "Path('out/a').touch()\n"
        "try:\n"
        f"    os.kill({given['outside']}, 9)\n"
        "except PermissionError:\n"
        "    Path('out/refused').touch()\n"
        "assert os.path.exists('out/refused')\n"
    )
    words = ["run", "--watch", "out", "--schedules", "1", "--json", "--", "torchrun", "--nproc-per-node=1", "train.py"]
    hiding = [*USERS["root of a container"], "sh", "-c", 'mount -t tmpfs none /proc/tty; exec "$@"', "sh"]
    done = subprocess.run(
        [*hiding, *USERS["an ordinary one"], sys.executable, "-m", "racecheck", *words], cwd=here,
        env=environment(here / "findings"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    coverage = json.loads(done.stdout)["coverage"]
    assert coverage["holes"] == {"a signal to a process outside of the run, which is refused (EPERM)": 1}
    assert "processes outside of the run can be seen: this machine allows no other /proc" in coverage["notes"]


def test_a_socket_of_a_process_outside_refuses_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(
        "import socket\n"
        "from pathlib import Path\n"
        "Path('out/a').touch()\n"
        "own = socket.socket(socket.AF_UNIX)\n"
        "own.bind('own')\n"
        "own.listen()\n"
        "socket.socket(socket.AF_UNIX).connect('own')\n"
        "try:\n"
        "    socket.socket(socket.AF_UNIX).connect('theirs')\n"
        "except ConnectionRefusedError:\n"
        "    Path('out/refused').touch()\n"
        "assert Path('out/refused').exists()\n"
    )
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        with socket.socket(socket.AF_UNIX) as theirs:
            theirs.bind("theirs")
            theirs.listen()
            words = ["run", "--watch", "out", "--json", "--", "torchrun", "--nproc-per-node=1", "train.py"]
            done = subprocess.run(
                [sys.executable, "-m", "racecheck", *words], env=environment(tmp_path / "findings"),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
    finally:
        os.chdir(here)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = json.loads(done.stdout)["coverage"]["notes"]
    assert [each for each in notes if "refused" in each] == [
        "refused: a connect to theirs, where a process outside of the run listens"
    ]
