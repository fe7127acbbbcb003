"""What a process in a layer writes, removes and renames is gone with the layer; the real files are as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from racecheck.kernel.layer import OverlayMount, writable
from racecheck.kernel.trees import wipe
from tests.programs.layered import PLACES
from tests.support.outside import snapshot
from tests.support.users import MOUNTING, USERS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "a tree"
    (made / "b").mkdir(parents=True)
    (made / "a").write_text("a")
    (made / "b" / "c").write_text("c")
    (made / "link").symlink_to("a")
    return made


def run(tree: Path, tmp_path: Path, end: str, start: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    (tmp_path / "real").mkdir()
    place = Path("/dev/shm") / f"layer {os.getpid()} {end}"
    place.mkdir()
    try:
        command = [*start, sys.executable, "-m", "tests.programs.layered", place, tmp_path / "real", tree, end]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        wipe(place)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("end", ["renewed", "killed"])
def test_the_real_files_stay_as_they_are(tree: Path, tmp_path: Path, end: str, user: str) -> None:
    before = snapshot(tree)
    status, seen = run(tree, tmp_path, end, USERS[user])
    assert status == (-9 if end == "killed" else 0)
    assert seen["here"] == ["a", "moved", "new", "second"], "it sees its own changes"
    assert seen["real"] == ["a", "b", "link"], "and the real files below it"
    assert seen["held"] == [True, True, False, False]
    assert seen["cwd"] == str(tree), "at the user's own path"
    assert snapshot(tree) == before
    assert not [each for each in ("/", *PLACES) if Path(each, f"mark of layer {os.getpid()} {end}").exists()]
    assert (tmp_path / "real" / "kept").read_text() == "kept"
    if end == "renewed":
        assert seen["renewed"] == ["a", "b", "link"], "a new layer shows the real files again"
        assert seen["marks"] == seen["then"] == []
        assert seen["held again"]


def test_a_layer_that_is_lifted_shows_the_real_files_and_covers_them_as_they_are_then(
    tree: Path, tmp_path: Path
) -> None:
    before = snapshot(tree)
    status, seen = run(tree, tmp_path, "lifted")
    assert status == 0
    assert seen["again"] == seen["lifted"] == ["a", "b", "link", "real"]
    assert (tree / "real").read_text() == "real", "written while it was lifted"
    (tree / "real").unlink()
    assert snapshot(tree) == before
    assert not [each for each in PLACES if Path(each, f"mark of layer {os.getpid()} lifted").exists()]


@pytest.mark.parametrize("user", USERS)
def test_what_is_kept_is_there_again_until_it_is_forgotten(tree: Path, tmp_path: Path, user: str) -> None:
    before = snapshot(tree)
    status, seen = run(tree, tmp_path, "kept", USERS[user])
    assert status == 0
    assert seen["difference"] == [["a", False], ["b", True], ["d", False], ["d/e", False], ["link", False]]
    assert (seen["kept"], seen["changed"]) == ([["a", "b", "d"], [], "other"], [])
    assert seen["again"] == [["a", "b", "d"], [], "e"]
    assert seen["forgotten"] == [["a", "b", "link"], ["c"], "a"]
    assert snapshot(tree) == before


MOUNTS = {
    "a file on a file": "touch ../a.txt && mount --bind ../b.txt ../a.txt",
    "tmpfs": 'mount -t tmpfs none . && cd "$PWD" && cp -a ../copy/. .',
    "ramfs": 'mount -t ramfs none . && cd "$PWD" && cp -a ../copy/. .',
    "overlay": "mkdir ../u ../w && mount -t overlay none . -o lowerdir=../copy,upperdir=../u,workdir=../w",
    "a directory on itself": "mount --bind . .",
}


@pytest.mark.parametrize("mounted", MOUNTS)
def test_what_is_mounted_is_covered(tree: Path, tmp_path: Path, mounted: str) -> None:
    """At the end the program that mounted it says how it is really."""
    check = 'find . -printf "%P %m %s %T@\\n" | sort | sha256sum; cat ../b.txt'
    script = f'cp -a . ../copy; echo b > ../b.txt; {MOUNTS[mounted]}; cd "$PWD"; '
    extra = f"EXTRA={tmp_path}/a.txt" if "a.txt" in MOUNTS[mounted] else ""
    script += f'({check}) > ../before; {extra} "$@"; ({check}) > ../after'
    _, seen = run(tree, tmp_path, "renewed", [*MOUNTING, "env", f"--chdir={tree}", "sh", "-c", script, "sh"])
    assert seen["renewed"] == ["a", "b", "link"]
    assert seen["held"][:2] == [True, True]
    if extra:
        assert str(tmp_path / "a.txt") in seen["changed"]
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


def test_changes_outside_are_named(tree: Path, tmp_path: Path) -> None:
    _, seen = run(tree, tmp_path, "renewed")
    assert f"/tmp/mark of layer {os.getpid()} renewed" in seen["changed"]
    assert not [each for each in seen["changed"] if each.startswith(str(tree))]
    assert {*seen["but for kept"]} - {*seen["changed"]} == {f"{tree}/a", f"{tree}/moved"}


def test_the_kernels_own_file_systems_are_not_covered() -> None:
    every = [
        OverlayMount(Path("/"), "ext4", False), OverlayMount(Path("/proc"), "proc", False),
        OverlayMount(Path("/dev/shm"), "tmpfs", False),
        OverlayMount(Path("/tmp"), "tmpfs", False), OverlayMount(Path("/sys/fs/cgroup"), "tmpfs", False),
        OverlayMount(Path("/usr"), "squashfs", True),
    ]  # fmt: skip
    found = writable(every)
    assert {Path("/tmp"), Path("/dev/shm"), Path("/etc")} <= {*found}
    assert not {Path("/"), Path("/proc"), Path("/dev"), Path("/sys"), Path("/sys/fs/cgroup")} & {*found}
