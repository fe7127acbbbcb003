"""Where the GIL is: found by its switch interval, and checked by who holds it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from racecheck.kernel import interpreter, libc, proc, syscalls
from racecheck.kernel.memory import Memory

KEEPS_THE_GIL = """
import ctypes, threading
from racecheck.kernel import interpreter
go = threading.Lock()
go.acquire()
thread = threading.Thread(target=go.acquire, daemon=True)
thread.start()
print(interpreter.gil(), thread.native_id, flush=True)
go.release()
ctypes.PyDLL(None).usleep(30_000_000)
"""


def test_a_thread_that_waits_for_the_gil_waits_for_a_word_of_it() -> None:
    with subprocess.Popen([sys.executable, "-c", KEEPS_THE_GIL], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            gil, tid = map(int, holder.stdout.readline().split())
            assert gil > 0
            deadline = time.monotonic() + 20
            while not waits(holder.pid, tid, gil):
                assert time.monotonic() < deadline, "it waits for the GIL, and that is not seen"
            assert interpreter.is_held(gil, Memory(holder.pid))
        finally:
            holder.kill()


def waits(pid: int, tid: int, gil: int) -> bool:
    call = proc.stopped_call(pid, tid)
    return (
        call is not None
        and call[0] == syscalls.number("futex", libc.MACHINE)
        and interpreter.is_of_gil(gil, call[1][0])
    )


def test_what_lies_beside_the_gil_is_not_of_it() -> None:
    gil = 0x1000
    assert not interpreter.is_of_gil(gil, gil)
    assert not interpreter.is_of_gil(gil, gil + 32 + 48)
    assert interpreter.is_of_gil(gil, gil + 32 + 40)
    assert not interpreter.is_of_gil(0, 40), "nobody knows where it is"


def test_the_switch_interval_stays_as_it_was() -> None:
    before = sys.getswitchinterval()
    assert interpreter.gil.__wrapped__() == interpreter.gil() > 0
    assert sys.getswitchinterval() == before


def test_other_interpreters_that_are_installed() -> None:
    """Each CPython from 3.10 on that lies beside this one."""
    source = Path(interpreter.__file__).parents[2]
    here = Path(sys.executable).resolve().parents[2]
    found = sorted(here.glob("3.1[0-9].*/bin/python3"))
    for python in found or [Path(sys.executable)]:
        code = f"import sys; sys.path.insert(0, {str(source)!r}); from racecheck.kernel import interpreter as i"
        code += "; assert i.gil() in i.runtime(), hex(i.gil())"
        subprocess.run([python, "-c", stub() + code], check=True)


def stub() -> str:
    """The package's face imports what other interpreters have not installed."""
    package = Path(interpreter.__file__).parents[1]
    return (
        "import sys, types; face = types.ModuleType('racecheck'); "
        f"face.__path__ = [{str(package)!r}]; sys.modules['racecheck'] = face; "
    )
