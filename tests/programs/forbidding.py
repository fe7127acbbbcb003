"""``python forbidding.py NAME=ERRNO... -- COMMAND...`` runs a command that may not make some system calls.

As a container's profile does it: by a filter that answers them with an errno.
"""

import ctypes
import errno
import os
import sys

from racecheck.kernel import libc, seccomp
from racecheck.kernel.syscalls import number

RETURN_ERRNO = 0x00050000


def forbid(calls: dict[str, int]) -> None:
    """Answer these calls with an errno from now on."""
    codes: list[tuple[int, int, int, int]] = [(seccomp._LOAD, 0, 0, seccomp._OFFSET_NUMBER)]
    for name, error in calls.items():
        known = number(name, libc.MACHINE)
        assert known is not None
        codes += [(seccomp._EQUAL, 0, 1, known), (seccomp._RETURN, 0, 0, RETURN_ERRNO | error)]
    codes.append((seccomp._RETURN, 0, 0, seccomp._ALLOW))
    program = seccomp._FilterStruct(len(codes), (seccomp._Instruction * len(codes))(*codes))  # type: ignore[misc]  # ctypes builds array types
    libc.prctl(seccomp._PR_SET_NO_NEW_PRIVS, 1)
    seccomp_number = number("seccomp", libc.MACHINE) or 0
    _, failed = libc.syscall(seccomp_number, 1, 0, ctypes.byref(program))  # type: ignore[arg-type]
    assert not failed, os.strerror(failed)


if __name__ == "__main__":
    split = sys.argv.index("--")
    pairs = (each.split("=") for each in sys.argv[1:split])
    forbid({name: getattr(errno, value) for name, value in pairs})
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])
