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
import sys
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ADDR_NO_RANDOMIZE = 0x0040000

libc = ctypes.CDLL(None, use_errno=True)


def start(command: list[str]) -> int:
    """Fork and execute the command, without address randomisation where that is allowed; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    libc.personality(ctypes.c_ulong(ADDR_NO_RANDOMIZE))
    os.execv(command[0], command)  # noqa: S606
    raise AssertionError


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
    """Kill until no child is left; the children of what dies become ours."""
    while True:
        for pid in children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def empty(directory: str) -> None:
    """Remove what is in a directory, but not the directory: its lock is held through it."""
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


def main(supervisor: int, directory: str, command: list[str]) -> int:
    """Guard until ``supervisor`` (a pid: our parent) or the command is gone, or SIGTERM ends the session.

    Returns the exit status of the command.
    """
    status = 0
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    watch = select.poll()
    watch.register(os.pidfd_open(supervisor), select.POLLIN)
    if os.getppid() != supervisor:
        return status
    guarded = start(command)
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
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
