"""Nothing is left behind: no process, no directory, no descriptor, whoever is killed and whenever."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.session import Session
from tests.support import soak
from tests.support.outside import eventually
from tests.support.targets import TARGETS, target

_DRIVER = """
import sys
from pathlib import Path
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.scheduling import strategies
from racecheck.targets import resolve as targets
from racecheck.sessions.session import Session
scenario = targets.load(sys.argv[2])
with Session(Path(sys.argv[1])) as session:
    print(session.slot.path, session._guardian.pid, flush=True)
    runner.run(session, RunRequest.of(scenario, scenario.world, strategies.RandomWalk(), seed="0"))
"""


def processes_of(slot: str) -> list[int]:
    """All processes that were started for a slot, found by their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if f"RACECHECK_SLOT={slot}".encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except (OSError, ValueError):
            continue
    return found


@contextmanager
def hanging(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A run that hangs, with a child of its rank that has detached itself; returns its slot and guardian."""
    command = [sys.executable, "-c", _DRIVER, str(tmp_path), f"{TARGETS / 'worlds.py'}::hangs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        assert driver.stdout is not None
        slot, guardian = driver.stdout.readline().split()
        assert eventually(lambda: (Path(slot) / "disk" / "detached").exists()), "the run did not come that far"
        assert len(processes_of(slot)) == 4, "guardian, zygote, rank and its child"
        yield driver, slot, int(guardian)
        driver.kill()


def is_free(slot: str) -> bool:
    """Whether nobody holds the slot's lock: a process that is being killed does so until the very end."""
    descriptor = os.open(slot, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def gone(slot: str) -> bool:
    return not processes_of(slot) and not list(Path(slot).iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_supervisor_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with hanging(tmp_path) as (driver, slot, _):
        driver.send_signal(number)
        driver.wait(60)
    assert eventually(lambda: gone(slot)), (processes_of(slot), list(Path(slot).rglob("*")))


def test_the_guardian_is_killed(tmp_path: Path) -> None:
    with hanging(tmp_path) as (driver, slot, guardian):
        os.kill(guardian, signal.SIGKILL)
        assert driver.wait(60) != 0, "a run without its guardian must not look like one that ended well"
    assert eventually(lambda: gone(slot)), (processes_of(slot), list(Path(slot).rglob("*")))


def test_what_a_killed_pair_left_goes_with_the_next_session(tmp_path: Path) -> None:
    """Supervisor and guardian killed together: nobody is left to clean up, so the slot's next owner does."""
    with hanging(tmp_path) as (driver, slot, guardian):
        driver.send_signal(signal.SIGSTOP)
        os.kill(guardian, signal.SIGKILL)
        driver.kill()
        driver.wait(60)
    for pid in processes_of(slot):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: is_free(slot))
    with Session(tmp_path) as session:
        assert str(session.slot.path) == slot
        assert {path.name for path in session.slot.path.iterdir()} == {"output"}


def test_a_session_ends_with_a_command_that_is_wrong(tmp_path: Path) -> None:
    """As when a command is wrong in another way: torch is still being imported."""
    with Starting(tmp_path) as starting:
        starting.begin()
        slot = str(tmp_path / "racecheck-0000")
        assert eventually(lambda: bool(processes_of(slot))), "its processes have the slot in their environment soon"
    assert eventually(lambda: gone(slot))
    assert is_free(slot)


def resources() -> tuple[int, int]:
    """Descriptors of this process, and its descendants."""
    return len(os.listdir("/proc/self/fd")), len(processes_of(str(_slot)))


_slot = Path()


def worlds_leak_nothing(session: Session, numbers: range) -> None:
    global _slot
    assert session.gpus >= 0, "counting them leaves nothing"
    _slot = session.slot.path
    names = [("worlds", name) for name in ("locks", "one_raises", "sub_groups", "one_returns", "subprocesses")]
    names += [("threads", "same_group_in_two_threads"), ("threads", "polled_child"), ("nodes", "saves")]
    scenarios = [target(file, name) for file, name in names]
    for scenario in scenarios:
        runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    before, left = None, 0
    for number in numbers:
        scenario = scenarios[number % len(scenarios)]
        strategy = RandomWalk()
        strategy.begin(Random(number))
        runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
        if number % len(scenarios) == len(scenarios) - 1:
            session.request("end", world=0, thorough=True)
            before = before or resources()
            left += resources() != before
    assert before is not None
    assert left == 0, f"before {before}, now {resources()}"
    assert {path.name for path in session.slot.path.iterdir()} <= {"output", "disk", "tmp", "setup", "nodes"}
    assert {path.name for path in session.slot.output.iterdir()} <= {"setup"}, "what ranks have printed goes"


def test_worlds_leak_nothing(session: Session) -> None:
    worlds_leak_nothing(session, range(16))


@pytest.mark.slow
def test_a_hundred_worlds_leak_nothing(session: Session) -> None:
    worlds_leak_nothing(session, range(100))


@pytest.mark.soak
def test_no_world_leaks_anything(session: Session) -> None:
    for seed in soak.seeds():
        worlds_leak_nothing(session, range(48 * seed, 48 * seed + 48))
