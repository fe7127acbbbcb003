"""Where worlds live: slots, paths, users, full disks."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
from pathlib import Path
from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.kernel.trees import wipe
from racecheck.model.compare import first_difference
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Returned, World
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.file_digests import plain
from racecheck.sessions.session import Session, Slot
from racecheck.targets import resolve
from tests.support.controlled_runs import run
from tests.support.targets import target


def test_slots_are_numbered_and_exclusive(tmp_path: Path) -> None:
    first, second = Slot(tmp_path), Slot(tmp_path)
    assert (first.path.name, second.path.name) == ("racecheck-0000", "racecheck-0001")
    first.close()
    third = Slot(tmp_path)
    assert third.path == first.path
    second.close()
    third.close()


def test_a_slot_is_emptied_when_it_is_taken(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    (slot.path / "disk").mkdir()
    os.close(slot.lock)  # killed, so to say
    assert not (Slot(tmp_path).path / "disk").exists()


def test_a_directory_that_others_can_use_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "racecheck-0000").mkdir(mode=0o755)
    (tmp_path / "racecheck-0001").symlink_to("/tmp")
    (tmp_path / "racecheck-0002").touch()
    slot = Slot(tmp_path)
    assert slot.path.name == "racecheck-0003"
    slot.close()


def test_a_slot_can_be_asked_for(tmp_path: Path) -> None:
    asked = Slot(tmp_path, 7)
    assert (asked.number, asked.path.name) == (7, "racecheck-0007")
    for number in (7, -1, 10**9):
        other = Slot(tmp_path, number)
        assert other.number == 0, "it is in use, or there is none"
        other.close()
    asked.close()


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(CannotRun, match="set RACECHECK_RUNS"):
        Slot(Path("/proc"))


PACKAGES = {
    "plain_part.py": "",
    "threaded/__init__.py": "import threading as t\nt.Thread(target=t.Event().wait, daemon=True).start()",
    "threaded/inner.py": "",
    "without_init/inner.py": "",
}
LAZY = """
import racecheck

@racecheck.scenario(ranks=1)
def lazy(rank):
    import plain_part
    import threaded.inner
    import without_init.inner
"""


def test_what_ranks_import_is_imported_once_for_all_but_what_starts_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in PACKAGES.items():
        file = tmp_path / "site-packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    (tmp_path / "lazy.py").write_text(LAZY)
    scenario = resolve.load(f"{tmp_path / 'lazy.py'}::lazy")
    with Session(tmp_path / "runs") as fresh:
        ran = runner.warm_up(fresh, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
        assert ran is not None, "there was nothing more to learn"
        assert ran.results == (Returned(),)
        fresh.imported.clear()
        strategy = RandomWalk()
        strategy.begin(Random(0))
        runner.run(fresh, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
        assert fresh.imported == {"threaded", "threaded.inner"}


ROLLED = """
import os
import random
import racecheck

DRAWN = os.urandom(8).hex(), random.Random().random()

@racecheck.scenario(ranks=1)
def rolled(rank):
    from safetensors.torch import save_file
    import torch

    save_file({"one": torch.zeros(1)}, rank.path / "file", {str(key): "" for key in range(16)})
    return list(DRAWN)
"""


def test_what_is_drawn_by_chance_at_import_is_the_same_in_every_session(tmp_path: Path) -> None:
    """Python's numbers, and the order of Rust's hash maps: safetensors writes one of those."""
    (tmp_path / "rolled.py").write_text(ROLLED)
    scenario = resolve.load(f"{tmp_path / 'rolled.py'}::rolled")
    left = []
    for _ in range(2):
        with Session(tmp_path / "runs") as fresh:
            ran = runner.warm_up(fresh, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
            assert ran is not None
            left.append((ran.results, ran.disk["file"].digest))
    assert left[0] == left[1]


def test_a_setup_is_kept_only_if_a_copy_is_the_same(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    slot.reset(World(ranks=1))
    (slot.watched / "a").write_text("x")
    slot.keep("t")
    slot.reset(World(ranks=1))
    assert not slot.restore("another")
    assert slot.restore("t")
    assert (slot.watched / "a").read_text() == "x"
    os.link(slot.watched / "a", slot.watched / "b")
    slot.keep("t")
    slot.reset(World(ranks=1))
    assert not slot.restore("t"), "a copy would make two files of one with two names"
    slot.close()


def test_wipe_removes_what_has_lost_its_permissions(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "link").symlink_to(tmp_path)
    (tree / "below").chmod(0)
    tree.chmod(0o500)
    wipe(tree)
    assert tmp_path.exists()
    assert not tree.exists()


def test_paths_with_spaces_and_without_ascii(tmp_path: Path) -> None:
    """The same scenario with its own file, and its runs, below such a directory."""
    odd = tmp_path / "wörk space\n日本"
    odd.mkdir()
    code = Path(__file__).parents[1] / "programs" / "worlds.py"
    (odd / "odd_worlds.py").write_text(code.read_text())
    with Session(odd) as session:
        scenario = runner_target(odd / "odd_worlds.py")
        strategy = RandomWalk()
        strategy.begin(Random(0))
        outcome = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
    assert outcome.results == (Returned(), Returned())
    assert {"lock"} == set(outcome.disk)


def runner_target(path: Path):  # type: ignore[no-untyped-def]
    from racecheck.targets import resolve

    return resolve.load(f"{path}::locks")


def test_where_racecheck_runs_out_of_descriptors_is_not_a_finding(session: Session) -> None:
    """A rank that may have the file must not be told that it may not."""
    scenario = target("worlds", "many_open_files")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    strategy = RandomWalk()
    strategy.begin(Random(0))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        with pytest.raises(CannotRun, match=r"EMFILE.*ulimit -n"):
            runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    strategy.begin(Random(0))
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
    assert outcome.results == (Returned(150), Returned(150))


def test_a_full_disk_is_not_a_finding(tmp_path: Path) -> None:
    """On a file system of 1 MiB a scenario that writes 2 MiB cannot run; it does not fail."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode:
        assert os.getuid() != 0, "root can mount"
        return
    try:
        with Session(small) as session:
            scenario = target("worlds", "writes_much")
            strategy = RandomWalk()
            strategy.begin(Random(0))
            with pytest.raises(CannotRun, match="ENOSPC"):
                runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
        assert not list((small / "racecheck-0000").iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_sessions_that_run_at_once_come_to_the_same(tmp_path: Path) -> None:
    """Their directories have other numbers, which checkpointers write into files."""
    with Session(tmp_path) as first, Session(tmp_path) as second:
        assert first.slot.path != second.slot.path
        one, other = (run(session, "names_its_place", file="naming") for session in (first, second))
    assert len(one.ops) > 6
    assert first_difference(one, other) == ""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"/dev/shm/racecheck-0012/disk/a", b"/dev/shm/racecheck-0000/disk/a"),
        (b"x/racecheck-4095/disk\0/racecheck-0001", b"x/racecheck-0000/disk\0/racecheck-0000"),
        (b"/racecheck-12/disk /racecheck-00123 racecheck-0", b"/racecheck-12/disk /racecheck-00123 racecheck-0"),
    ],
)
def test_the_number_of_a_slot_counts_as_0(written: bytes, expected: bytes) -> None:
    assert plain(written) == expected


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_in_a_pickled_path_too(protocol: int) -> None:
    places = [Path(f"/dev/shm/racecheck-{slot}/disk/0001") for slot in ("0000", "0012")]
    first, other = (pickle.dumps({"at": place, "step": "0003"}, protocol) for place in places)
    assert first != other
    assert plain(first) == plain(other) == first
