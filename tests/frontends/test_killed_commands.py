"""Launch commands that are killed at any moment leave a user's files as they were: bytes, inodes, modes and times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck.kernel import proc
from tests.support import soak
from tests.support.launching import LAUNCHED, TORCHRUN, environment
from tests.support.outside import eventually, snapshot
from tests.support.users import USERS

COMMANDS = (
    (*TORCHRUN, "train.py", "--overwrite"),
    (*TORCHRUN, "resumable.py"),
    (*TORCHRUN, "reckless.py"),
    (sys.executable, "reckless.py"),
)
OPTIONS = (
    (), ("--explain", "2"), ("--fault", "kill-job on any nth=each"), ("--fault", "ENOSPC on write", "--keep-going"),
    ("--fault", "crash on any model=posix-min"), ("--check-launcher",), ("--seconds", "3"), ("--from", "other"),
    ("--strategy", "random", "--html", "{findings}/page.html"),
)  # fmt: skip
FINDINGS = ("beside", ".", "tree", "tree/sub", "..")
RECKLESS = """
import os, shutil, subprocess, time
from pathlib import Path

if __name__ == "__main__":
    subprocess.Popen(["setsid", "sh", "-c", "sleep 1; rm -rf tree"])
    shutil.rmtree("tree/sub", ignore_errors=True)
    for path in Path("tree").rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(b"changed")
            os.chmod(path, 0o600)
    os.rename("tree/kept", "tree/moved")
    shutil.rmtree("other", ignore_errors=True)
    Path("tree/watched").mkdir(exist_ok=True)
    Path("tree/watched/x").touch()
    time.sleep(1)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with scripts and a tree of 200 files: hard links, holes, attributes, odd modes and names."""
    place = tmp_path / "place"
    place.mkdir()
    for name in ("train.py", "resumable.py", "checkpoints.py"):
        (place / name).write_text((LAUNCHED / name).read_text())
    (place / "reckless.py").write_text(RECKLESS)
    for number in range(200):
        path = place / "tree" / ("sub", "kept", "watched", "d\n\udcff")[number % 4] / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * number)
        if number % 7 == 0:
            os.truncate(path, 1 << 20)
        if number % 11 == 0:
            os.setxattr(path, "user.mine", b"%d" % number)
        if number % 13 == 0:
            os.link(path, path.with_name(f"{number} again"))
        if number % 17 == 0:
            path.with_name(f"{number} link").symlink_to("../kept")
        os.utime(path, (number, number))
        is_watched = path.parent.name == "watched"  # racecheck takes an archive of that
        os.chmod(path, (0o644, 0o400, 0o4755, 0o644 if is_watched else 0, 0o666)[number % 5])
    (place / "other").mkdir()
    (place / "other" / "a").write_text("a")
    return place


def state(tree: Path) -> dict[str, Any]:
    """The snapshot of a tree, with inodes, blocks, owners and attributes."""
    more = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        names = [] if path.is_symlink() else os.listxattr(path)
        own = [(name, os.getxattr(path, name)) for name in names if name.startswith("user.")]
        more[f"{path}: more"] = status.st_ino, status.st_blocks, status.st_uid, status.st_gid, own
    return {**snapshot(tree), **more}


def kill_one(here: Path, user: str, seed: int) -> None:
    """Run a command, and kill it at some moment."""
    rng = Random(seed)
    command, options, findings = rng.choice(COMMANDS), rng.choice(OPTIONS), rng.choice(FINDINGS)
    words = ["run", "--watch", "tree/watched", *(each.replace("{findings}", findings) for each in options)]
    number, after = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)), rng.uniform(0.2, 9)
    said = f"{seed}: {user}, {findings}, {words}, {command}, {number.name} after {after:.1f} s"
    mark = f"{here}-{seed}"
    with subprocess.Popen(
        [*USERS[user], sys.executable, "-m", "racecheck", *words, "--", *command], cwd=here, stdout=subprocess.DEVNULL,
        env={**environment(Path(findings)), "MARK": mark}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{said}: it has not ended: {_marked(mark)}")
    assert "Traceback" not in errors, f"{said}: {errors}"
    assert eventually(lambda: not _marked(mark), 30), f"{said}: {_marked(mark)}"


def _marked(mark: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_ours = f"MARK={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and not proc.has_ended(int(pid)):
            found.append(int(pid))
    return found


def _of_findings(path: str, here: Path) -> bool:
    """Return whether a path is of what racecheck keeps: in directories of scripts' names, and pages."""
    top = Path(path.removesuffix(": more")).relative_to(here.parent).parts
    return any(each in {"train", "resumable", "reckless", "beside", "page.html"} for each in top)


def check(here: Path, user: str, seeds: Any) -> None:
    before = state(here.parent)
    for seed in seeds:
        kill_one(here, user, seed)
        now = state(here.parent)
        fresh = {path for path in now.keys() - before.keys() if not _of_findings(path, here)}
        changed = [path for path in before if now.get(path) != before[path] and not _is_above_findings(path, here)]
        assert (changed, fresh) == ([], set()), f"seed {seed}"


def _is_above_findings(path: str, here: Path) -> bool:
    """Return whether findings may have been made in this directory, which changes its time."""
    return Path(path.removesuffix(": more")) in {here, here / "tree", here / "tree" / "sub"}


@pytest.mark.slow
@pytest.mark.parametrize("user", ["this one", "an ordinary one"])
def test_a_killed_command_changes_no_file(here: Path, user: str) -> None:
    check(here, user, range(5))


@pytest.mark.soak
@pytest.mark.parametrize("user", USERS)
def test_killed_commands_change_no_file(here: Path, user: str) -> None:
    check(here, user, soak.seeds())
