"""The guardian: a small process between the supervisor and everything it starts.

Run as a plain script (it imports nothing of racecheck, so that it is there in a few milliseconds).  It starts
the zygote, or a launcher, and waits until the supervisor or that one is gone; then it kills every process that
descends from it and empties a directory, the session's.  As a subreaper (prctl(2)) it inherits the orphans of its
descendants, so that "every process that descends from it" misses none, whatever they did to detach themselves.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import struct
import sys
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAPBSET_DROP, PR_CAP_AMBIENT, CLEAR_ALL = 1, 36, 24, 47, 4
ADDR_NO_RANDOMIZE = 0x0040000
NEWNS, NEWPID = 0x20000, 0x20000000
READ_ONLY, REMOUNT, BIND, REC, PRIVATE = 1, 32, 4096, 16384, 1 << 18
NO_PROGRAMS = 2 | 4 | 8
"""No set-user-id bits, devices or programs (mount(2)): as ``/proc`` is mounted everywhere."""
ADMINISTRATION = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Files in ``/proc`` that are for the whole machine, and can be written to."""
SYS_ADMIN, CAPABILITIES = 21, 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def start(command: list[str], *, alone: bool) -> int:
    """Fork and execute the command, without address randomisation where that is allowed; returns its pid.

    ``alone``: it sees no process but its own children.
    """
    pid = os.fork()
    if pid:
        return pid
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    libc.personality(ctypes.c_ulong(ADDR_NO_RANDOMIZE))
    if alone:
        if libc.unshare(NEWNS | NEWPID) == 0:
            become_alone()
        give_up_mounting()
    os.execv(command[0], command)  # noqa: S606
    raise AssertionError


def become_alone() -> None:
    """Go on in a child in the new namespace of process numbers, below one that is the first there, and reaps orphans.

    Where the kernel allows no other ``/proc``, this one goes on to show the processes outside, by numbers that mean
    nothing there.
    """
    first = os.fork()
    if first:
        os._exit(end_of(first))
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    libc.mount(None, b"/", None, ctypes.c_ulong(REC | PRIVATE), None)
    libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(NO_PROGRAMS), None)
    for name in ADMINISTRATION:
        path = f"/proc/{name}".encode()
        libc.mount(path, path, None, ctypes.c_ulong(BIND), None)
        libc.mount(None, path, None, ctypes.c_ulong(BIND | REMOUNT | READ_ONLY | NO_PROGRAMS), None)
    working = os.fork()
    if working:
        os._exit(end_of(working))
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


def end_of(pid: int) -> int:
    """Wait for the end of a child, and reap others; returns its exit status as a shell tells it."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def give_up_mounting() -> None:
    """Give up the right to mount anything, and to unmount a layer (capabilities(7))."""
    libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(SYS_ADMIN), 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(CLEAR_ALL), 0, 0, 0)
    if os.geteuid() != 0:
        libc.capset(struct.pack("Ii", CAPABILITIES, 0), bytes(24))


def children() -> list[int]:
    """Return the pids of this process's children."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                stat = file.read()
                if int(stat[stat.rindex(b")") + 2 :].split()[1]) == os.getpid():
                    found.append(int(entry))
    return found


def kill_all() -> None:
    """Kill until no child is left; the children of the dead become ours."""
    while True:
        for pid in children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def empty(directory: str) -> None:
    """Remove the contents of a directory, but not the directory: its lock is held through it."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)


def status_of(pid: int) -> int:
    """Return the exit status of a child as a shell tells it, 0 while it runs."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return 0
    return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status


def main(supervisor: int, directory: str, command: list[str], *, alone: bool) -> int:
    """Guard until ``supervisor`` (a pid: our parent) or the command is gone, or SIGTERM ends the session.

    ``alone``: the command sees no other process, and cannot mount anything.  Returns the exit status of the command.
    """
    status = 0
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    watch = select.poll()
    watch.register(os.pidfd_open(supervisor), select.POLLIN)
    if os.getppid() != supervisor:
        return status
    guarded = start(command, alone=alone)
    watch.register(os.pidfd_open(guarded), select.POLLIN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        watch.poll()
        status = status_of(guarded)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all()
        empty(directory)
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[4:], alone=sys.argv[3] == "alone"))
