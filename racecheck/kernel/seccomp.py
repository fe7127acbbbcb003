"""Seccomp user notification: the filter that a rank puts on itself and the listener that answers it.

Sources: seccomp(2), seccomp_unotify(2), and the kernel's Documentation/userspace-api/seccomp_filter.rst.

A call stops in the kernel until the listener answers.  Two flags carry the design:

* ``SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`` (Linux 5.19): once the supervisor has received a call, only a
  fatal signal interrupts it.  Without it a signal between performing and answering makes the kernel
  restart the call, which is then performed twice.
* ``SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`` (Linux 6.6, used where there is): the answered thread is woken on
  the supervisor's processor, which has nothing else to do.

The supervisor may be interrupted at any moment: by a profiler or debugger that attaches, or by a signal with a handler.
A comment at each request says what an interruption does to it.
"""

from __future__ import annotations

import array
import ctypes
import errno
import functools
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from racecheck.kernel import interpreter, libc
from racecheck.kernel.syscalls import HIGHEST, TABLE, Call, Notify, Role, number

FIRST_DESCRIPTOR = 256
"""Descriptors of watched files are handed out from here, so that the filter can tell them from sockets and
pipes, whose traffic then runs at full speed."""

CLOCKS = (0, 5, 11)
"""The clocks that are virtual: CLOCK_REALTIME, CLOCK_REALTIME_COARSE and CLOCK_TAI (clock_gettime(2)).  The monotonic
ones stay real, because the kernel waits by them."""

HYPERCALL = 0x7261
"""A system call number that no kernel has: the agent in a rank reports to the supervisor with it.  Without a filter it
fails with ENOSYS, and the agent does nothing."""

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _AT_LEAST, _GREATER, _AND, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x54, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NO_DESCRIPTOR = 0xFFFFFFFF
_HANDS_OVER = socket.MSG_CONFIRM
"""The flag of sendmsg(2) with which a rank hands its listener over; it means nothing on a Unix socket."""
_LOCK_COMMANDS = (5, 6, 7, 36, 37, 38, 1024)
"""F_GETLK, F_SETLK, F_SETLKW, the same for open file descriptions, and F_SETLEASE, of fcntl(2)."""

FUTEX_COMMAND, FUTEX_WAIT, FUTEX_WAIT_BITSET = 0x7F, 0, 9
"""The bits of futex(2)'s operation that select the operation; those that wait for a word to change."""
_LOOPS = 10
"""Milliseconds that gloo's loop waits with epoll_wait(2)."""

_RECEIVE, _SEND, _ID_VALID, _ADD_DESCRIPTOR, _SET_FLAGS = (
    0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x40082104,
)  # fmt: skip
_RESPOND_CONTINUE = 1
_ADD_SET = 1
_SYNC_WAKE_UP = 1


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _FilterStruct(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


class _NotificationStruct(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("nr", ctypes.c_int),
        ("arch", ctypes.c_uint32),
        ("ip", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
    )


class _Response(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class _AddDescriptor(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("source", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("descriptor_flags", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Notification:
    """A call that waits for its answer.  ``foreign`` marks one of another architecture's table."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]
    foreign: bool = False


_Code = tuple[int, int, int, int]


def program(machine: str, runtime: range = range(0)) -> list[_Code]:
    """Return the filter for a machine ("x86_64" or "aarch64"), as tuples (code, jump if true, jump if false, operand).

    ``runtime`` is the address range of the GIL.  The filter lets pass the calls that the table does not name, and those
    on descriptors that cannot be of a watched file.  All others stop, and so does any call newer than the table or of
    another architecture.
    """
    code: list[_Code] = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _NOTIFY),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_GREATER, 0, 1, HIGHEST[machine]),
        (_RETURN, 0, 0, _NOTIFY),
    ]
    for call in TABLE.values():
        known = number(call.name, machine)
        if known is not None:
            block = list(_block(call, runtime))
            code += [(_EQUAL, 0, len(block), known), *block]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _block(call: Call, runtime: range) -> Iterator[_Code]:
    if call.notify in {Notify.DESCRIPTOR, Notify.LOCK}:
        yield from _of_descriptor(call)
    elif call.notify is Notify.CLOCK:
        yield (_LOAD, 0, 0, _OFFSET_ARGUMENTS)
        for left, clock in zip(range(len(CLOCKS), 0, -1), CLOCKS, strict=True):
            yield (_EQUAL, left, 0, clock)
        yield (_RETURN, 0, 0, _ALLOW)
        yield (_RETURN, 0, 0, _NOTIFY)
    elif call.notify is Notify.MESSAGE:
        yield (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 16)
        yield (_EQUAL, 0, 1, _HANDS_OVER)
        yield (_RETURN, 0, 0, _ALLOW)
        yield (_RETURN, 0, 0, _NOTIFY)
    elif call.notify is Notify.NAMED:
        (index,) = (index for index, argument in enumerate(call.args) if argument.name == "pid")
        yield (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)
        yield (_EQUAL, 0, 1, 0)
        yield (_RETURN, 0, 0, _ALLOW)
        yield (_RETURN, 0, 0, _NOTIFY)
    elif call.notify is Notify.WAIT:
        yield from _memory_wait(runtime)
    elif call.notify is Notify.LIMITED:
        yield from _limited_wait(call)
    else:
        yield (_RETURN, 0, 0, _NOTIFY)


def _of_descriptor(call: Call) -> Iterator[_Code]:
    """Return the instructions that stop a call on a descriptor that may be of a watched file, or about a lock."""
    for index in descriptor_arguments(call):
        yield (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)
        yield (_EQUAL, 3, 0, _NO_DESCRIPTOR)
        yield (_AT_LEAST, 1, 0, FIRST_DESCRIPTOR)
        yield (_GREATER, 1, 0, 2)
        yield (_RETURN, 0, 0, _NOTIFY)
    if call.notify is Notify.LOCK:
        yield (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8)
        for left, command in zip(range(len(_LOCK_COMMANDS), 0, -1), _LOCK_COMMANDS, strict=True):
            yield (_EQUAL, left, 0, command)
        yield (_RETURN, 0, 0, _ALLOW)
        yield (_RETURN, 0, 0, _NOTIFY)
    yield (_RETURN, 0, 0, _ALLOW)


def _memory_wait(runtime: range) -> Iterator[_Code]:
    """Return the instructions that stop a futex wait, unless its word is in ``runtime``."""
    word, operation = (_OFFSET_ARGUMENTS + 8 * index for index in (0, 1))
    yield (_LOAD, 0, 0, operation)
    yield (_AND, 0, 0, FUTEX_COMMAND)
    yield (_EQUAL, 2, 0, FUTEX_WAIT)
    yield (_EQUAL, 1, 0, FUTEX_WAIT_BITSET)
    yield (_RETURN, 0, 0, _ALLOW)
    (high, first), (last_high, last) = divmod(runtime.start, 1 << 32), divmod(runtime.stop - 1, 1 << 32)
    if runtime and high == last_high:
        yield (_LOAD, 0, 0, word + 4)
        yield (_EQUAL, 0, 4, high)
        yield (_LOAD, 0, 0, word)
        yield (_AT_LEAST, 0, 2, first)
        yield (_GREATER, 1, 0, last)
        yield (_RETURN, 0, 0, _ALLOW)
    yield (_RETURN, 0, 0, _NOTIFY)


def _limited_wait(call: Call) -> Iterator[_Code]:
    """Return the instructions that stop a wait with a limit: a number of milliseconds, or a pointer to a struct."""
    (index,) = (index for index, each in enumerate(call.args) if each.role is not Role.IGNORED)
    place = _OFFSET_ARGUMENTS + 8 * index
    yield (_LOAD, 0, 0, place)
    if call.args[index].role is Role.INT:
        yield (_AT_LEAST, 1, 0, 1 << 31)  # negative: no limit
        yield (_GREATER, 1, 0, _LOOPS if call.name.startswith("epoll") else 0)
        yield (_RETURN, 0, 0, _ALLOW)
    else:
        yield (_EQUAL, 0, 3, 0)
        yield (_LOAD, 0, 0, place + 4)
        yield (_EQUAL, 0, 1, 0)
        yield (_RETURN, 0, 0, _ALLOW)
    yield (_RETURN, 0, 0, _NOTIFY)


def descriptor_arguments(call: Call) -> list[int]:
    """Return which arguments of a call are descriptors that it acts on (not those that a path starts from)."""
    return [index for index, argument in enumerate(call.args) if argument.role is Role.FD]


@functools.cache
def assembled(*, stop_for_gil: bool = False) -> _FilterStruct:
    """Return the filter of this machine as the kernel takes it; made once, before ranks are forked.

    ``stop_for_gil``: a thread that waits for the GIL stops, if it is known where that is.
    """
    codes = program(libc.MACHINE, range(0) if stop_for_gil and interpreter.gil() else interpreter.runtime())
    instructions = (_Instruction * len(codes))(*(_Instruction(*each) for each in codes))
    return _FilterStruct(len(codes), instructions)


def hand_over(channel: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    """Send a listener and other descriptors to the supervisor; until that has them, it answers no other message."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([text], [rights], _HANDS_OVER)


def install(*, stop_for_gil: bool = False) -> int:
    """Put the filter on the calling thread (and all it will start); returns the listener's descriptor.

    Irrevocable.  Raises `OSError`: EINVAL where the kernel is older than 5.19.
    """
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    seccomp = number("seccomp", libc.MACHINE)
    assert seccomp is not None
    flags = _NEW_LISTENER | _WAIT_KILLABLE_RECV
    descriptor, error = libc.syscall(
        seccomp, _SET_MODE_FILTER, flags, ctypes.addressof(assembled(stop_for_gil=stop_for_gil))
    )
    if error:
        raise libc.os_error(error)
    return descriptor


class Listener:
    """The supervisor's end of a filter.  It is readable (``poll``) while a call waits to be received."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._notification = _NotificationStruct()
        self._response = _Response()
        self._add = _AddDescriptor()
        libc.ioctl(descriptor, _SET_FLAGS, _SYNC_WAKE_UP)

    def fileno(self) -> int:
        return self.descriptor

    def receive(self) -> Notification | None:
        """Return the next waiting call, or None if its thread was interrupted or died in the meantime."""
        raw = self._notification
        ctypes.memset(ctypes.byref(raw), 0, ctypes.sizeof(raw))
        # Interrupted: EINTR before a call is taken, which then still waits and is reported again (poll).
        status = libc.ioctl(self.descriptor, _RECEIVE, ctypes.byref(raw))
        if status in (-errno.ENOENT, -errno.EINTR):
            return None
        if status < 0:
            raise libc.os_error(-status)
        foreign = raw.arch != _AUDIT_ARCH[libc.MACHINE]
        return Notification(raw.id, raw.pid, raw.nr, tuple(raw.args), foreign)

    def answer(self, id_: int, value: int = 0, error: int = 0) -> bool:
        """End the call with a value or an errno, without the kernel performing it.

        Returns False if the thread was killed and no longer waits for the answer.
        """
        return self._respond(id_, value if not error else 0, -error, 0)

    def carry_on(self, id_: int) -> bool:
        """Let the kernel perform the call.  Returns False if the thread was killed."""
        return self._respond(id_, 0, 0, _RESPOND_CONTINUE)

    def _respond(self, id_: int, value: int, error: int, flags: int) -> bool:
        response = self._response
        response.id, response.value, response.error, response.flags = id_, value, error, flags
        return self._request(_SEND, ctypes.byref(response)) >= 0

    def _request(self, request: int, argument: object) -> int:
        """Make a request that does nothing where it is interrupted (EINTR: it waits for the filter's lock), until done.

        Returns minus the errno where it fails.
        """
        while (status := libc.ioctl(self.descriptor, request, argument)) == -errno.EINTR:
            pass
        return status

    def give(self, id_: int, descriptor: int, number_: int = -1, *, close_on_exec: bool) -> int:
        """End the call with a duplicate of ``descriptor``; returns its number, or minus the errno.

        The number is ``number_``, or the lowest free one for -1.  It fails with EMFILE or EBADF where the rank's limit
        on open files is below the number.

        There is a flag to do both in one step (SECCOMP_ADDFD_FLAG_SEND).  Interrupted, that one takes the descriptor
        back, but the call is marked as answered, and returns 0.  In two steps nothing is lost: where the first is
        interrupted, either the descriptor is there, and that is the result, or nothing has happened.
        """
        add = self._add
        add.id, add.flags, add.source, add.number = id_, 0, descriptor, 0
        if number_ >= 0:
            add.flags, add.number = _ADD_SET, number_
        add.descriptor_flags = os.O_CLOEXEC if close_on_exec else 0
        installed = self._request(_ADD_DESCRIPTOR, ctypes.byref(add))
        if installed >= 0:
            self.answer(id_, installed)
        return installed

    def is_waiting(self, id_: int) -> bool:
        """Return whether the call still waits.  Check this after reading the memory of a thread that may have died."""
        return self._request(_ID_VALID, ctypes.byref(ctypes.c_uint64(id_))) == 0

    def close(self) -> None:
        os.close(self.descriptor)
