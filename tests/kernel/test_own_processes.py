"""A process that sees no other: what stands for it outside passes signals on, and ends as it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from racecheck.kernel import proc
from tests.support.users import USERS

ROOT = Path(__file__).parents[2]


@contextmanager
def standing_in(what: str, user: str = "this one") -> Iterator[subprocess.Popen[str]]:
    command = [*USERS[user], sys.executable, "-m", "tests.programs.standing_in", what]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def within_seconds(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("what", "status"), [("returns", 7), ("killed", -signal.SIGKILL), ("orphans", 7)])
def test_it_ends_as_the_other_one(what: str, status: int, user: str) -> None:
    with standing_in(what, user) as process:
        own, *seen = map(int, line_of(process).split())
        assert (own, seen) == (2, [1, 2])
        begun = time.monotonic()
        if what != "orphans":
            assert process.wait(30) == status
            assert time.monotonic() - begun < 5
            return
        (first,) = proc.children(process.pid)
        assert any(len(proc.children(first)) == 2 for _ in within_seconds(10)), "one orphan is reaped, one remains"
        process.kill()
        assert any(not os.path.exists(f"/proc/{first}") for _ in within_seconds(30)), "the rest goes with it"


def test_each_signal_arrives_once() -> None:
    """Also one to the whole group, as from a terminal."""
    with standing_in("signals") as process:
        line_of(process)
        assert line_of(process) == "waits"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGUSR1)
        assert line_of(process) == f"{signal.SIGTERM:d} {signal.SIGINT:d} {signal.SIGUSR1:d}"


def test_both_stop_and_both_continue() -> None:
    with standing_in("signals") as process:
        line_of(process)
        assert line_of(process) == "waits"
        inner = proc.children(proc.children(process.pid)[0])[0]
        process.send_signal(signal.SIGTSTP)
        assert any(proc.is_stopped(process.pid) and proc.is_stopped(inner) for _ in within_seconds(10))
        process.send_signal(signal.SIGCONT)
        assert any(not proc.is_stopped(process.pid) and not proc.is_stopped(inner) for _ in within_seconds(10))


@pytest.mark.parametrize("killed", ["the one outside", "the first one inside"])
def test_nothing_is_left_when_one_is_killed(killed: str) -> None:
    with standing_in("waits") as process:
        line_of(process)
        assert line_of(process) == "waits"
        (first,) = proc.children(process.pid)
        every = [first, *proc.descendants(first)]
        assert len(every) == 3
        os.kill(process.pid if killed == "the one outside" else first, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        assert any(not any(os.path.exists(f"/proc/{pid}") for pid in every) for _ in within_seconds(30))
