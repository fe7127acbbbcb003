"""Facts about processes from ``/proc``: which sleep, and which descends from which (proc(5))."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from racecheck.kernel import libc, syscalls
from racecheck.kernel.memory import Memory

_GONE = (FileNotFoundError, ProcessLookupError)
_FORKS = {syscalls.number(name, libc.MACHINE): name for name in ("clone", "clone3", "fork", "vfork")}
_CLONE_VFORK = 0x4000


def killed_for_memory() -> int:
    """Return how many processes the kernel has ended for want of memory, on this machine or in a control group."""
    with open("/proc/vmstat", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), 0)


def memory(pid: int) -> int:
    """Return how many bytes of memory a process takes, with its share of what others use too (Pss), 0 for none."""
    try:
        lines = read(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), 0)


def read(path: str) -> bytes:
    """Return the first page of a file of ``/proc``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object would take half as long again
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def awaits_its_child(pid: int, thread: int) -> bool:
    """Return whether a thread is in vfork(2): its wait for the child to execute a program counts as "disk sleep".

    So does the wait of any fork for a lock of the kernel's, which is over by itself.
    """
    call = stopped_call(pid, thread)
    if call is None or not starts_one(call[0]):
        return False
    try:
        return bool(clone_flags(_FORKS[call[0]], call[1], Memory(pid)) & _CLONE_VFORK)
    except OSError:
        return False


def starts_one(call: int) -> bool:
    """Return whether a call of this number starts a thread or a process."""
    return call in _FORKS


def clone_flags(call: str, arguments: Sequence[int], memory: Memory) -> int:
    """Return the flags of a call that starts a thread or process (clone(2)); raises `OSError` for bad memory."""
    if call == "clone3":
        return int.from_bytes(memory.read(arguments[0], 8), sys.byteorder)
    return {"clone": arguments[0], "vfork": _CLONE_VFORK}.get(call, 0)


def may_be_starting_one(pid: int, thread: int) -> bool:
    """Return whether a thread is in such a call, or runs and may make one."""
    call = stopped_call(pid, thread)
    return starts_one(call[0]) if call is not None else not _has_ended(pid, thread)


def _has_ended(pid: int, thread: int) -> bool:
    try:
        stat = read(f"/proc/{pid}/task/{thread}/stat")
    except _GONE:
        return True
    return stat[stat.rindex(b")") + 2 :][:1] in b"ZX"


def threads(pid: int) -> list[int]:
    """Return the thread numbers of a process; empty once it is gone."""
    try:
        return sorted(int(each) for each in os.listdir(f"/proc/{pid}/task"))
    except _GONE:
        return []


def status(pid: int) -> dict[str, str]:
    """Return ``/proc/<pid>/status`` as a mapping; empty once the process is gone.  ``pid`` may be a thread's."""
    try:
        text = read(f"/proc/{pid}/status").decode(errors="replace")
    except _GONE:
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def credentials(thread: int) -> tuple[str, ...]:
    """Return the user and group ids of a thread, and its capabilities, as text; empty ones once it is gone."""
    known = status(thread)
    return tuple(known.get(each, "") for each in ("Uid", "Gid", "CapEff"))


def ignores(pid: int, signal: int) -> bool:
    """Return whether a process ignores a signal."""
    return bool(int(status(pid).get("SigIgn", "0"), 16) >> (signal - 1) & 1)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal or a tracer."""
    return status(pid).get("State", "")[:1] in {"T", "t"}


def name(thread: int) -> str:
    """Return the first 15 bytes of a thread's name; "" once it is gone (pthread_setname_np(3))."""
    try:
        return read(f"/proc/{thread}/comm").decode(errors="replace").rstrip("\n")
    except _GONE:
        return ""


def has_signal(pid: int, thread: int) -> bool:
    """Return whether a signal is pending for a thread that would take it: its own, or one of the process's."""
    known = status(thread)
    pending, shared, blocked, ignored = (
        int(known.get(each, "0"), 16) for each in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn")
    )
    if thread != pid:  # the kernel prefers the main thread for those
        shared = 0
    return bool((pending | shared) & ~blocked & ~ignored)


def stopped_call(pid: int, thread: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the number and arguments of the call that a sleeping thread is in; None if it runs or is gone."""
    try:
        fields = read(f"/proc/{pid}/task/{thread}/syscall").split()
    except OSError:
        return None
    if len(fields) < 7:
        return None
    return int(fields[0]), tuple(int(each, 16) for each in fields[1:7])


def is_dying(pid: int) -> bool:
    """Return whether a process has been killed and is not gone yet."""
    pending = _has(pid, "SigPnd", signal.SIGKILL) or _has(pid, "ShdPnd", signal.SIGKILL)
    return pending and not has_ended(pid)


def is_caught(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    return _has(pid, "SigCgt", number)


def is_ignored(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal."""
    return _has(pid, "SigIgn", number)


def is_blocked(pid: int, number: int) -> bool:
    """Return whether the main thread of a process blocks a signal."""
    return _has(pid, "SigBlk", number)


def _has(pid: int, mask: str, number: int) -> bool:
    return bool(int(status(pid).get(mask, "0"), 16) >> (number - 1) & 1)


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or has ended and its parent has not waited for it yet."""
    return all(_has_ended(pid, thread) for thread in threads(pid))


def descendants(pid: int) -> list[int]:
    """Return all processes that descend from ``pid``, the nearest first."""
    found = children(pid)
    for each in found:
        found += children(each)
    return found


def children(pid: int) -> list[int]:
    """Return the processes that the threads of ``pid`` have started and that still have it as their parent."""
    try:
        return [int(child) for thread in threads(pid) for child in read(f"/proc/{pid}/task/{thread}/children").split()]
    except _GONE:  # the kernel was built without it, or a thread has just ended
        return _scan_for_children(pid)


def ancestors(pid: int) -> list[int]:
    """Return the processes that one descends from, the nearest first, down to 0; empty if it is gone."""
    found: list[int] = []
    while pid and (parent := status(pid).get("PPid")) is not None:
        found.append(pid := int(parent))
    return found


def group(number: int) -> list[int]:
    """Return the processes of a process group."""
    return _with_field(2, number)


def _scan_for_children(pid: int) -> list[int]:
    return _with_field(1, pid)


def _with_field(index: int, value: int) -> list[int]:
    """Return the processes with this in a field of their ``stat``, counted from the state (proc_pid_stat(5))."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(*_GONE, ValueError):
                stat = read(f"/proc/{entry}/stat")
                if int(stat[stat.rindex(b")") + 2 :].split()[index]) == value:
                    found.append(int(entry))
    return found
