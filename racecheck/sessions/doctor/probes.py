"""The needs of a controlled world, each tried on this machine.

`racecheck.sessions.doctor.examination` runs this in an interpreter of its own, which has one thread and forks for each
probe: the changes to its process (a filter, a signal that kills) are gone with it.  A probe returns a remark
for people, or raises: its message then has the reason.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import json
import os
import platform
import re
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from racecheck.kernel import libc, proc, seccomp, syscalls, vdso
from racecheck.kernel.memory import Memory
from racecheck.model import config
from racecheck.model.errors import RacecheckError
from racecheck.model.nouns import World
from racecheck.model.package import DISTRIBUTION, VERSION
from racecheck.sessions import stacks
from racecheck.sessions.doctor.stopped_child import LackingError, expect, leave, readable, stopped
from racecheck.sessions.session import Session, Slot

_THIS_YEAR = 2025
_FOREIGN = "racecheck"
_PATIENCE = 20
_PATIENCE_WITH_TORCH = 180
_AT_FDCWD = -100
_KCMP_FILE = 0
_ADDR_NO_RANDOMIZE = 0x0040000
_SET_MODE_FILTER, _LISTENER_AND_KILLABLE = 1, 1 << 3 | 1 << 5
_SET_FLAGS, _SYNC_WAKE_UP = 0x40082104, 1
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_ANSWER = errno.EXDEV
"""The errno that the probes answer with; the kernel would not return it."""


def _make_directory() -> int:
    """Return the errno of a call that the kernel would answer otherwise."""
    return libc.syscall(_number("mkdirat"), _AT_FDCWD, b"/proc/racecheck", 0o700)[1]


def _open_a_file() -> int:
    opened, _ = libc.syscall(_number("openat"), _AT_FDCWD, b"/proc/racecheck", os.O_RDONLY, 0)
    return 0 if opened == seccomp.FIRST_DESCRIPTOR else 1


def _draw() -> int:
    buffer = ctypes.create_string_buffer(b"question")
    libc.syscall(_number("getrandom"), buffer, 8, 0)
    return 0 if buffer.value == b"answered" else 1


def _wait() -> int:
    time.sleep(_PATIENCE)
    return 0


def _architecture() -> str:
    bits = 8 * struct.calcsize("P")
    if not libc.MACHINE or bits != 64:
        raise LackingError(f"this is a {bits}-bit Python on {platform.machine()}")
    return libc.MACHINE


def _kernel() -> str:
    """Return the kernel looks at the flags first, EINVAL, and then at the filter, EFAULT for none (seccomp(2))."""
    error = libc.syscall(_number("seccomp"), _SET_MODE_FILTER, _LISTENER_AND_KILLABLE, None)[1]
    release = platform.release()
    known = error == errno.EFAULT or (error != errno.EINVAL and _version(release) >= (5, 19))
    expect(known, f"Linux {release} has no SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV")
    return f"Linux {release}"


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", release)[:2])


def _filter() -> str:
    with stopped(_make_directory) as subject:
        subject.listener.answer(subject.receive().id, error=_ANSWER)
        expect(subject.status() == _ANSWER, "an answer did not arrive")
    return "stopped and answered a call"


def _signals() -> str:
    """Check that a received call is neither interrupted nor made again, whatever signal comes."""
    with stopped(_make_directory) as subject:
        received = subject.receive()
        os.kill(subject.pid, signal.SIGUSR1)
        again = readable(subject.listener.descriptor, 50)
        expect(not again and subject.listener.is_waiting(received.id), "a signal interrupted a received call")
        subject.listener.answer(received.id, error=_ANSWER)
        expect(subject.status() == _ANSWER, "an answer did not arrive")
    return "a signal did not interrupt a received call"


def _descriptors() -> str:
    """Check with as many open files allowed as a rank gets."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = seccomp.FIRST_DESCRIPTOR
    with stopped(_open_a_file) as subject, tempfile.TemporaryFile() as file:
        received = subject.receive()
        given = subject.listener.give(received.id, file.fileno(), wanted, close_on_exec=False)
        said = os.strerror(-given) if given < 0 else f"it became {given}"
        expect(given == wanted, f"descriptor {wanted} could not be given (limit {hard}): {said}")
        expect(subject.status() == 0, "an injected descriptor did not arrive")
    return "passed an open file with the answer"


def _memory() -> str:
    with stopped(_draw) as subject:
        received = subject.receive()
        memory = Memory(subject.pid)
        try:
            expect(memory.read(received.arguments[0], 8) == b"question", "something else was read")
            memory.write(received.arguments[0], b"answered")
        except OSError as error:
            raise LackingError(f"process_vm_readv: {error.strerror}; {_scope()}") from None
        subject.listener.answer(received.id, 8)
        expect(subject.status() == 0, "what was written did not arrive")
    return f"read and wrote another process's memory; {_scope()}"


def _scope() -> str:
    """Check Yama (Documentation/admin-guide/LSM/Yama.rst): it must allow access to descendants, so at most 1."""
    try:
        return f"kernel.yama.ptrace_scope is {_YAMA.read_text().strip()}"
    except OSError:
        return "no Yama"


def _same_file() -> str:
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other, stopped(_wait) as subject:
        pair = subject.pid, os.getpid(), _KCMP_FILE
        same = _call("kcmp", *pair, one.fileno(), one.fileno())
        different = _call("kcmp", *pair, one.fileno(), other.fileno())
    expect(same == 0, f"kcmp(2) answered {same} for the same file")
    expect(different != 0, "kcmp(2) took two files for the same")
    return "compared open files"


def _fetch() -> str:
    with tempfile.TemporaryFile() as file, stopped(_wait) as subject:
        fetched = _call("pidfd_getfd", os.pidfd_open(subject.pid), file.fileno(), 0)
        expect(os.path.sameopenfile(fetched, file.fileno()), "another file was fetched")
    return "fetched an open file"


def _sleepers() -> str:
    with stopped(_make_directory) as subject:
        expect(readable(subject.listener.descriptor), "the filter did not report a call")
        call = proc.stopped_call(subject.pid, subject.pid)
        expect(call is not None and call[0] == _number("mkdirat"), "/proc/<pid>/syscall does not show it")
        task = Path(f"/proc/{subject.pid}/task/{subject.pid}")
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        expect(state == "S", f"/proc/<pid>/task/<tid>/stat says {state} of a thread that sleeps")
        times = (task / "schedstat").read_text().split()[-1]
        expect(times != "0", "/proc/<pid>/task/<tid>/schedstat does not count")
    return "/proc shows sleeping threads and their calls"


def _stacks() -> str:
    with stopped(_make_directory) as subject:
        expect(readable(subject.listener.descriptor), "the filter did not report a call")
        found = stacks.capture(subject.pid, subject.pid, subject.stack_pipe, subject.listener.descriptor)
        names = [frame.function for frame in found or ()]
        expect(_make_directory.__name__ in names, "faulthandler did not write the stack of a stopped thread")
        subject.listener.answer(subject.receive().id, error=_ANSWER)
        expect(subject.status() == _ANSWER, "an answer did not arrive")
    return "read the Python stack of a stopped thread"


def _addresses() -> str:
    libc.personality(_ADDR_NO_RANDOMIZE)
    now = libc.personality(0xFFFF_FFFF)
    expect(now >= 0 and bool(now & _ADDR_NO_RANDOMIZE), "personality(2) is not permitted")
    return "not randomised"


def _package() -> str:
    others = importlib.metadata.distributions(name=_FOREIGN)
    found = next((each.version for each in others), "")
    expect(not found, f"{_FOREIGN} {found} is installed, which is another project")
    return f"{DISTRIBUTION} {VERSION}"


def _wake_up() -> str:
    with stopped(_wait) as subject:
        status = libc.ioctl(subject.listener.descriptor, _SET_FLAGS, _SYNC_WAKE_UP)
        expect(status >= 0, f"Linux {platform.release()} has no synchronous wake-up")
    return "answered threads wake on the supervisor's CPU"


def _runs() -> str:
    slot = Slot(config.read().runs)
    try:
        slot.reset(World(ranks=1))
        (slot.watched / "file").write_bytes(b"x")
        room = os.statvfs(slot.path)
        return f"{slot.path.parent}, {room.f_bavail * room.f_frsize >> 20} MiB free"
    finally:
        slot.close()


def _jobs() -> str:
    """Measure the memory of a session, as each further job has one."""
    signal.alarm(_PATIENCE_WITH_TORCH)
    with Session(config.read().runs) as session:
        session.wait()
        pids = [os.getpid(), *proc.descendants(os.getpid())]
        taken = sum(map(proc.memory, pids))
    return f"{config.jobs()} at once; each further one takes about {taken / 1e6:.0f} MB, without its ranks"


def _layer() -> str:
    """Cover the machine's files twice, as before two runs, and write in the layer each time."""
    slot, place = Slot(config.read().runs), Path(tempfile.gettempdir())
    try:
        slot.cover(place / slot.path.name / "watched", (), [place])
        for number in range(2):
            slot.reset(World(ranks=1))
            for each in (slot.watched, place):
                (each / f"{slot.path.name}-{number}").touch()
    finally:
        slot.close()
    return f"launch commands can run, {'as root' if os.geteuid() == 0 else 'in a user namespace'}"


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    expect("lo" in names, f"there is no interface lo, only {', '.join(names) or 'none'}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address, timeout=5) as client, server.accept()[0] as accepted:
            client.sendall(b"x")
            expect(accepted.recv(1) == b"x", "what was sent to 127.0.0.1 did not arrive")
    return "127.0.0.1 answers"


def _torch() -> str:
    """Check that a process group of one comes up."""
    signal.alarm(_PATIENCE_WITH_TORCH)
    os.environ.update(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    version = torch.__version__
    able = dist.is_available() and dist.is_gloo_available()
    expect(able, f"torch {version} has no torch.distributed with gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.barrier()
    return f"torch {version} with gloo"


def _clocks() -> str:
    try:
        found = vdso.divert()
    except OSError as error:
        raise LackingError(f"/proc/self/mem: {error.strerror}") from None
    year = time.gmtime(time.time()).tm_year
    expect(year >= _THIS_YEAR, f"a redirected clock returned the year {year}")
    return f"redirected {len(found)} vDSO clocks"


PROBES: Mapping[str, Callable[[], str]] = {
    "architecture": _architecture,
    "kernel": _kernel,
    "seccomp": _filter,
    "signals": _signals,
    "descriptors": _descriptors,
    "memory": _memory,
    "clocks": _clocks,
    "kcmp": _same_file,
    "proc": _sleepers,
    "stacks": _stacks,
    "runs": _runs,
    "loopback": _loopback,
    "torch": _torch,
    "pidfd_getfd": _fetch,
    "addresses": _addresses,
    "package": _package,
    "wake-up": _wake_up,
    "layer": _layer,
    "jobs": _jobs,
}


def main(names: Sequence[str]) -> None:
    """Print a JSON object: for each name whether its probe succeeded, and the remark."""
    print(json.dumps({name: _attempt(PROBES[name]) for name in names}))


def _attempt(probe: Callable[[], str]) -> tuple[bool, str]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        leave(lambda: _report(probe, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        name = signal.Signals(-status).name
        return False, f"no answer in {_PATIENCE} s" if name == "SIGALRM" else f"{name} ended the test"
    return status == 0, text


def _report(probe: Callable[[], str], writing: int) -> int:
    signal.alarm(_PATIENCE)
    try:
        text, status = probe(), 0
    except Exception as error:  # noqa: BLE001
        known = isinstance(error, (LackingError, RacecheckError))
        text, status = str(error) if known else f"{type(error).__name__}: {error}", 1
    os.write(writing, text.encode(errors="replace")[:2000])
    return status


def _number(name: str) -> int:
    number = syscalls.number(name, libc.MACHINE)
    assert number is not None
    return number


def _call(name: str, *arguments: Any) -> int:
    value, error = libc.syscall(_number(name), *arguments)
    if error:
        raise LackingError(f"{name}(2): {os.strerror(error)}")
    return value
