"""What ``/proc`` tells, asked of real processes."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.sleepers import Sleepers

# Most of a wait among that many children is spent in a loop over them, in which the kernel already calls the waiting
# thread asleep.
ASKS_FOR_CHILDREN = """
import os, signal
for _ in range(100):
    if not os.fork():
        signal.pause()
print(flush=True)
while True:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
"""
PAUSES = "import signal; print(flush=True); signal.pause()"


def test_a_sleeping_thread_is_asleep() -> None:
    """No event tells that a process has fallen asleep; so the question is repeated until it has."""
    with running(PAUSES) as pid:
        deadline = time.monotonic() + 60
        while not is_asleep(pid):
            assert time.monotonic() < deadline, "it pauses and is not called asleep"


def test_a_running_thread_is_not_asleep_whatever_its_state() -> None:
    """It never sleeps; preempted in the loop over its children it is called so, which takes some looks to meet."""
    with running(ASKS_FOR_CHILDREN) as pid:
        assert not any(is_asleep(pid) for _ in range(20_000))


def test_where_the_kernel_does_not_tell_the_call_the_state_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Sleepers, path: str, *, original: Callable[..., bytes] = Sleepers._read) -> bytes:
        if path.endswith("/syscall"):
            raise PermissionError(errno.EPERM, path)
        return original(self, path)

    monkeypatch.setattr(Sleepers, "_read", read)
    test_a_sleeping_thread_is_asleep()


def test_a_thread_that_was_woken_and_has_not_run_yet_is_not_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is handed to a busy processor, only its state tells it from one that sleeps on."""
    with closing(Sleepers()) as sleepers, running(PAUSES) as pid:
        deadline = time.monotonic() + 60
        while sleepers.look([pid]) is None:
            assert time.monotonic() < deadline

        def read(self: Sleepers, path: str, *, original: Callable[..., bytes] = Sleepers._read) -> bytes:
            text = original(self, path)
            return text.replace(b") S ", b") R ") if path.endswith("/stat") else text

        monkeypatch.setattr(Sleepers, "_read", read)
        assert sleepers.look([pid]) is None


@pytest.mark.parametrize(
    ("call", "flags", "awaits"),
    [("clone", 0x1200011, False), ("clone", 0x4111, True), ("clone3", 0x1200000, False), ("clone3", 0x4100, True)],
)
def test_only_a_vfork_waits_for_its_child(monkeypatch: pytest.MonkeyPatch, call: str, flags: int, awaits: bool) -> None:
    """A fork that is in "disk sleep" waits for a lock of the kernel's, and will go on."""
    arguments = ctypes.c_uint64(flags)
    first = ctypes.addressof(arguments) if call == "clone3" else flags
    monkeypatch.setattr(proc, "stopped_call", lambda *_: (syscalls.number(call, libc.MACHINE), (first, 0, 0, 0, 0, 0)))
    assert proc.awaits_its_child(os.getpid(), os.getpid()) is awaits


@contextmanager
def running(program: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def is_asleep(pid: int) -> bool:
    with closing(Sleepers()) as sleepers:
        return sleepers.look([pid]) is not None


def test_a_thread_that_ran_between_two_looks_looks_different() -> None:
    # The naps are what the test looks at: each of them is a switch that the kernel counts.
    naps = "import time; print(flush=True)\nwhile True: time.sleep(0.01)"
    with closing(Sleepers()) as sleepers, running(naps) as pid:
        seen, deadline = set(), time.monotonic() + 60
        while len(seen) < 2:
            assert time.monotonic() < deadline, "it naps, and always looks the same"
            seen |= {sleepers.look([pid])} - {None}


def test_descriptors_are_given_back_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Sleepers()) as sleepers, running(PAUSES) as one, running(PAUSES) as other:
        monkeypatch.setattr(sleepers, "_most", 2)
        for _ in range(3):
            sleepers.look([one, other])
            assert len(sleepers._files) <= 6
    assert not sleepers._files


def test_a_process_that_has_ended_is_asleep_unless_its_end_is_awaited() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with closing(Sleepers()) as sleepers:
        assert sleepers.look([ended.pid]) == ()
        assert sleepers.look([ended.pid], awaited=frozenset({ended.pid})) is None
    ended.wait()
