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
from contextlib import contextmanager

import pytest

from racecheck.kernel import libc, proc, syscalls

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


def test_who_sleeps_is_asleep() -> None:
    """No event tells that a process has fallen asleep; so the question is repeated until it has."""
    with running(PAUSES) as pid:
        deadline = time.monotonic() + 60
        while not is_asleep(pid):
            assert time.monotonic() < deadline, "it pauses and is not called asleep"


def test_who_runs_is_not_asleep_whatever_its_state_is_called() -> None:
    """It never sleeps; preempted in the loop over its children it is called so, which takes some looks to meet."""
    with running(ASKS_FOR_CHILDREN) as pid:
        assert not any(is_asleep(pid) for _ in range(20_000))


def test_where_the_kernel_does_not_tell_the_call_the_state_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str, original: Callable[[str], bytes] = proc._read) -> bytes:
        if path.endswith("/syscall"):
            raise PermissionError(errno.EPERM, path)
        return original(path)

    monkeypatch.setattr(proc, "_read", read)
    test_who_sleeps_is_asleep()


@pytest.mark.parametrize(
    ("call", "flags", "awaits"),
    [("clone", 0x1200011, False), ("clone", 0x4111, True), ("clone3", 0x1200000, False), ("clone3", 0x4100, True)],
)
def test_only_a_vfork_waits_for_its_child(monkeypatch: pytest.MonkeyPatch, call: str, flags: int, awaits: bool) -> None:
    """A fork that is in "disk sleep" waits for a lock of the kernel's, and will go on."""
    arguments = ctypes.c_uint64(flags)
    first = ctypes.addressof(arguments) if call == "clone3" else flags
    monkeypatch.setattr(proc, "stopped_call", lambda *_: (syscalls.number(call, libc.MACHINE), (first, 0, 0, 0, 0, 0)))
    assert proc._awaits_its_child(os.getpid(), os.getpid()) is awaits


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
    return proc.asleep([pid], frozenset(), frozenset()) is not None
