"""A process that sees and reaches no process outside of this command: it cannot signal, trace or look at one.

It is in namespaces of its own for process numbers, IPC objects, the host name and control groups (namespaces(7)).  The
process that asks for that cannot enter them: children do.  So it starts one, which goes on in its place; what remains
passes signals on, and ends as the other one does.  A process between them is the first one of the namespace, which has
to reap orphans, and which ignores signals that it does not handle (pid_namespaces(7)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from racecheck.kernel import libc, namespace

_NEWCGROUP, _NEWUTS, _NEWIPC, _NEWPID, _NEWNS = 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x20000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_PASSED = {
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGCONT,
}  # fmt: skip
"""Signals that are for the process which goes on."""
_ORPHANED = signal.SIGURG
"""Tells the first process of the namespace that the process outside is gone."""
_SECONDS = 5
"""How long the first process waits for others when the one that went on is gone."""

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> bool:
    """Go on in a process that sees no other; returns False, in this process, where the kernel does not allow it.

    It takes a mount namespace of its own, in which ``/proc`` then shows the processes of this command, the right to
    mount, and one thread.
    """
    if not _is_allowed():
        return False
    for each in (sys.stdout, sys.stderr):
        if each is not None:
            each.flush()
    is_subreaper = ctypes.c_int()
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    outside, inside = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED, signal.SIGCHLD})
    _unshare()
    first = os.fork()
    if first:
        inside.close()
        _stand_for(first, outside)
    outside.close()
    working = os.fork()
    if working:
        _be_first(working, inside)
    handle = os.pidfd_open(os.getpid())
    socket.send_fds(inside, [b"."], [handle])
    os.close(handle)
    inside.close()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, is_subreaper.value)
    _leave_group()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _mount_proc()
    return True


def _leave_group() -> None:
    """Leave the group of the process outside, which gets the signals of the terminal and passes them on."""
    os.setpgid(0, 0)
    if any(map(os.isatty, (1, 2))):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as in the foreground, it may write


def _unshare() -> None:
    namespace.unshare(_NEWPID | _NEWIPC | _NEWUTS | _NEWCGROUP)


def _mount_proc() -> None:
    namespace.mount("proc", Path("/proc"), 0xE, kind="proc")  # nosuid, nodev, noexec


def _is_allowed() -> bool:
    """Try it in a child: a process that has left its namespaces cannot come back.

    A container may hide parts of ``/proc``, and then its users cannot mount another one.
    """

    def mount() -> None:
        namespace.unshare(_NEWNS)
        _mount_proc()

    def enter_and_mount() -> None:
        _unshare()
        if not _succeeds(mount):
            raise OSError

    return _succeeds(enter_and_mount)


def _succeeds(function: Callable[[], None]) -> bool:
    """Return whether a function raises no error in a child."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    status = 1
    try:
        function()
        status = 0
    finally:
        os._exit(status)


def _stand_for(first: int, inside: socket.socket) -> NoReturn:
    """Pass signals on to the process that goes on, and end as it does."""
    _, handles, _, _ = socket.recv_fds(inside, 1, 1)
    _close_but(inside.fileno(), *handles)
    while (number := signal.sigwaitinfo({*_PASSED, signal.SIGCHLD}).si_signo) != signal.SIGCHLD or not _is_over(first):
        with suppress(ProcessLookupError):
            if handles and number != signal.SIGCHLD:
                sent = signal.SIGSTOP if number == signal.SIGTSTP else number
                signal.pidfd_send_signal(handles[0], sent)
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
    said = inside.recv(16)
    status = os.waitstatus_to_exitcode(int(said)) if said else -signal.SIGKILL
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status)


def _is_over(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _be_first(working: int, talk: socket.socket) -> NoReturn:
    """Reap orphans until none is left; tell how the process that goes on has ended.

    If the process outside is killed, so is that one; its guardian then kills the others, and empties its directory.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(_ORPHANED, lambda *_: os.kill(working, signal.SIGKILL))
        signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
        libc.prctl(_PR_SET_PDEATHSIG, _ORPHANED)
        _close_but(talk.fileno())
        talk.setblocking(False)
        with suppress(BlockingIOError):
            if not talk.recv(1):  # it had gone before
                os.kill(working, signal.SIGKILL)
        while True:
            pid, status = os.wait()
            if pid == working:
                signal.alarm(_SECONDS)
                with suppress(OSError):
                    talk.sendall(str(status).encode())
    except ChildProcessError:
        pass
    finally:
        os._exit(0)


def _close_but(*kept: int) -> None:
    """Close descriptors that are the other process's business, such as locks."""
    last = 2
    for each in sorted(kept):
        os.closerange(last + 1, each)
        last = each
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
