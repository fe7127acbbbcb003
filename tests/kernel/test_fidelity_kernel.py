"""The kernel's side: which calls the filter stops, what a notification says, and memory read to its last byte."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from racecheck.kernel import libc, seccomp
from racecheck.kernel.memory import PATH_MAX, Memory
from racecheck.kernel.numbers import NUMBERS
from racecheck.kernel.seccomp import HYPERCALL, Listener, Notification, program
from racecheck.kernel.syscalls import HIGHEST, TABLE, UNTOUCHED, Call, Notify, Role, number
from racecheck.supervisor.files.paths import AT_FDCWD, Identities, Resolver, ThreadView, Watched

ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = sorted(AUDIT)
PAGE = mmap.PAGESIZE


def verdict(
    machine: str,
    call: int,
    arguments: tuple[int, ...] = (0,) * 6,
    arch: int | None = None,
    runtime: range = range(0),
) -> int:
    """What the filter says, by an interpreter of classic BPF on a ``struct seccomp_data`` (seccomp(2))."""
    padded = [each & (1 << 64) - 1 for each in (*arguments, *(0,) * 6)][:6]
    data = struct.pack("=iIQ6Q", call, AUDIT[machine] if arch is None else arch, 0, *padded)
    code, at, register = program(machine, runtime), 0, 0
    while True:
        operation, jump_if, jump_else, operand = code[at]
        at += 1
        if operation == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            assert operand % 4 == 0, "the kernel takes no other offset"
            (register,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            register &= operand
        elif operation == 0x06:  # BPF_RET | BPF_K
            return operand
        else:
            holds = {0x15: register == operand, 0x25: register > operand, 0x35: register >= operand}[operation]
            at += jump_if if holds else jump_else


def fd_arguments(call: Call) -> list[int]:
    return [index for index, arg in enumerate(call.args) if arg.role is Role.FD]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_on_descriptors_stops_where_one_may_be_of_a_watched_file(machine: str) -> None:
    """0 to 2 and from 256 on; not what lies between, and no negative one.  The other half of the register is noise."""
    random.seed(0)
    seen = {-1: False, 0: True, 1: True, 2: True, 3: False, 255: False, 256: True, 257: True, 1 << 30: True}
    for row in TABLE.values():
        known = number(row.name, machine)
        if known is None or row.notify is not Notify.DESCRIPTOR:
            continue
        indexes = fd_arguments(row)
        assert 1 <= len(indexes) <= 2
        for first, first_stops in seen.items():
            for second, second_stops in seen.items():
                arguments = [random.getrandbits(64) for _ in range(6)]
                for index, value in zip(indexes, (first, second), strict=False):
                    arguments[index] = (value & 0xFFFFFFFF) | random.getrandbits(32) << 32
                stops = first_stops or (second_stops and len(indexes) == 2)
                assert verdict(machine, known, tuple(arguments)) == (NOTIFY if stops else ALLOW), (
                    row.name,
                    first,
                    second,
                )


@pytest.mark.parametrize("machine", MACHINES)
def test_a_clock_stops_where_it_is_virtual(machine: str) -> None:
    """The kernel waits by the monotonic ones, which stay as they are."""
    known = NUMBERS[machine]["clock_gettime"]
    stops = {clock for clock in range(16) if verdict(machine, known, (clock,) * 6) == NOTIFY}
    assert stops == {time.CLOCK_REALTIME, time.CLOCK_TAI, 5}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_futex_stops_where_it_waits_for_anything_but_the_gil(machine: str) -> None:
    known, limit, high = NUMBERS[machine]["futex"], 0x7FFC_0000_0000, 0x7F9D << 32
    runtime = range(high + 0x4000, high + 0x8000)

    def says(operation: int, limit: int, word: int = high) -> int:
        return verdict(machine, known, (word, operation, 1, limit, 0, 0xFFFFFFFF), runtime=runtime)

    private, realtime = 128, 256
    for operation in range(14):
        waits = operation in {0, 9}  # FUTEX_WAIT, FUTEX_WAIT_BITSET
        for more in (0, private, realtime, private | realtime):
            for there in (0, limit, 1, 1 << 32):
                assert says(operation | more, there) == (NOTIFY if waits else ALLOW)
    for word in (high + 0x4000, high + 0x7FFC):
        assert says(9, limit, word) == ALLOW
    for word in (high + 0x3FFC, high + 0x8000, 0x4000, high + (1 << 32) + 0x4000):
        assert says(9, limit, word) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wait_for_descriptors_stops_if_it_is_limited(machine: str) -> None:
    """Neither a look nor a wait without a limit; nor gloo's loop, which waits for 10 ms at a time."""
    noise = 0x5A5A << 32
    limits = {"poll": (2, 1), "epoll_wait": (3, 11), "epoll_pwait": (3, 11)}
    pointers = {"ppoll": 2, "select": 4, "pselect6": 4, "epoll_pwait2": 3}
    assert {call.name for call in TABLE.values() if call.notify is Notify.LIMITED} == {*limits, *pointers}
    for name, (place, least) in limits.items():
        for milliseconds in (-(1 << 31), -1, 0, 1, 10, 11, 5000, (1 << 31) - 1):
            arguments = [7] * 6
            arguments[place] = (milliseconds & 0xFFFFFFFF) | noise
            stops = milliseconds >= least
            if (known := number(name, machine)) is not None:
                assert verdict(machine, known, tuple(arguments)) == (NOTIFY if stops else ALLOW), (name, milliseconds)
    for name, place in pointers.items():
        for pointer in (0, 1, 1 << 32, 0x7FFC_0000_0000):
            arguments = [7] * 6
            arguments[place] = pointer
            if (known := number(name, machine)) is not None:
                assert verdict(machine, known, tuple(arguments)) == (NOTIFY if pointer else ALLOW), (name, pointer)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_of_the_kernel_stops_or_passes_as_the_table_says(machine: str) -> None:
    for name, known in NUMBERS[machine].items():
        if name in UNTOUCHED:
            assert verdict(machine, known, (300,) * 6) == ALLOW, name
        elif TABLE[name].notify is Notify.ALWAYS:
            assert verdict(machine, known) == NOTIFY, name


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_about_a_process_stops_unless_that_is_the_caller(machine: str) -> None:
    named = [call for call in TABLE.values() if call.notify is Notify.NAMED]
    assert len(named) == 16
    for call in named:
        (place,) = (index for index, arg in enumerate(call.args) if arg.name == "pid")
        for pid in (0, 1, 4711):
            arguments = tuple(pid if index == place else 7 for index in range(6))
            known = NUMBERS[machine][call.name]
            assert verdict(machine, known, arguments) == (NOTIFY if pid else ALLOW), call.name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_table_does_not_know_stops(machine: str) -> None:
    """Newer calls, announcements, and calls by another table: of 32-bit code, or of x32, whose numbers have bit 30."""
    for call in (HIGHEST[machine] + 1, HYPERCALL, 0x4000_0000 | 1, -1, 0x7FFF_FFFF):
        assert verdict(machine, call) == NOTIFY
    for arch in (0x40000003, 0x40000028, 0, *(AUDIT[each] for each in MACHINES if each != machine)):
        assert verdict(machine, NUMBERS[machine]["getpid"], arch=arch) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_would_load_the_filter(machine: str) -> None:
    """At most 4096 instructions, jumps that fit into a byte and stay inside."""
    code = program(machine, range(1 << 40, (1 << 40) + 100))
    assert len(code) < 4096
    for at, (operation, jump_if, jump_else, _) in enumerate(code):
        if operation in (0x15, 0x25, 0x35):
            assert 0 <= jump_if <= 255
            assert 0 <= jump_else <= 255
            assert at + 1 + max(jump_if, jump_else) < len(code)
    assert code[-1][0] == 0x06


@contextmanager
def filtered(body: str) -> Iterator[tuple[Listener, int, socket.socket]]:
    """A process with the filter on itself that runs ``body``; returns its listener, its pid and a socket to it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    pid = os.fork()
    if pid == 0:
        try:
            listener = seccomp.install()
            seccomp.hand_over(theirs, b"x", [listener])
            exec(body, {"os": os, "libc": libc, "theirs": theirs, "ctypes": ctypes})
        finally:
            os._exit(1)
    theirs.close()
    _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
    listener = Listener(descriptor)
    try:
        yield listener, pid, ours
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        listener.close()
        ours.close()


def received(listener: Listener, call: int) -> Notification:
    """The next notification of this call; others go on."""
    while True:
        found = listener.receive()
        assert found is not None
        if found.number == call:
            return found
        listener.carry_on(found.id)


def test_a_notification_has_thread_call_and_arguments() -> None:
    """A number that no kernel has, with registers at their extremes; its answers arrive as they were given."""
    body = f"""
for _ in range(2):
    said = libc.syscall({HYPERCALL}, -1, 1 << 63, 3, 0xFFFF_FFFF, 5, 6)
    theirs.send(repr(said).encode())
"""
    with filtered(body) as (listener, pid, channel):
        first = received(listener, HYPERCALL)
        assert first.thread == pid
        assert first.arguments == ((1 << 64) - 1, 1 << 63, 3, 0xFFFF_FFFF, 5, 6)
        assert not first.foreign
        assert listener.is_waiting(first.id)
        assert listener.answer(first.id, value=1 << 40)
        assert not listener.answer(first.id), "nobody waits any more"
        assert not listener.is_waiting(first.id)
        assert channel.recv(100) == repr((1 << 40, 0)).encode()
        second = received(listener, HYPERCALL)
        assert second.id != first.id
        assert listener.answer(second.id, value=5, error=errno.EXDEV)
        assert channel.recv(100) == repr((-1, errno.EXDEV)).encode()


def test_a_descriptor_is_handed_over_under_its_number(tmp_path: Path) -> None:
    """With its flags; what is only a path cannot be, and the rank's limit on numbers holds."""
    body = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
for _ in range(4):
    theirs.send(repr(libc.syscall({HYPERCALL})).encode())
"""
    file, path = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_PATH)
    with filtered(body) as (listener, pid, channel):
        for closing in (True, False):
            waiting = received(listener, HYPERCALL)
            assert listener.give(waiting.id, file, 299 - closing, close_on_exec=closing) == 299 - closing
            assert channel.recv(100) == repr((299 - closing, 0)).encode()
            flags = int(Path(f"/proc/{pid}/fdinfo/{299 - closing}").read_text().split()[3], 8)
            assert bool(flags & os.O_CLOEXEC) is closing
        for source, target in ((file, 300), (path, 270)):
            waiting = received(listener, HYPERCALL)
            assert listener.give(waiting.id, source, target, close_on_exec=False) == -errno.EBADF
            assert listener.answer(waiting.id, error=errno.EMFILE)
            assert channel.recv(100) == repr((-1, errno.EMFILE)).encode()
    os.close(file)
    os.close(path)


def test_the_kernel_performs_a_call_that_is_let_pass(tmp_path: Path) -> None:
    body = f"os.mkdir({str(tmp_path / 'made')!r}); theirs.send(b'done'); os.wait()"
    mkdir = number("mkdir", platform.machine()) or number("mkdirat", platform.machine())
    assert mkdir is not None
    with filtered(body) as (listener, _, channel):
        waiting = received(listener, mkdir)
        assert not (tmp_path / "made").exists()
        assert listener.carry_on(waiting.id)
        assert channel.recv(10) == b"done"
        assert (tmp_path / "made").is_dir()


@pytest.fixture
def pages() -> tuple[int, mmap.mmap]:
    """Two pages before one that is not there: the address behind them, and what keeps them."""
    room = mmap.mmap(-1, 3 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    assert libc.syscall(number("munmap", platform.machine()) or 0, start + 2 * PAGE, PAGE) == (0, 0)
    return start + 2 * PAGE, room


def put(address: int, data: bytes) -> int:
    ctypes.memmove(address, data, len(data))
    return address


def test_a_string_is_read_up_to_its_nul_and_no_further(pages: tuple[int, mmap.mmap]) -> None:
    memory, end = Memory(os.getpid()), pages[0]
    assert memory.string(put(end - 5, b"path\0")) == b"path", "the next page is not there"
    assert memory.string(put(end - PAGE - 3, b"across\0")) == b"across"
    assert memory.string(end - 1) == b""
    long = b"a/" * 400
    assert memory.string(put(end - PAGE - 500, long + b"\0")) == long


def test_a_string_without_an_end_is_a_fault(pages: tuple[int, mmap.mmap]) -> None:
    memory, end = Memory(os.getpid()), pages[0]
    for address in (put(end - 4, b"path"), put(end - 1000, b"x" * 1000), end, 0, 1, (1 << 63) + 5, (1 << 64) - 1):
        with pytest.raises(OSError, match="Bad address") as caught:
            memory.string(address)
        assert caught.value.errno == errno.EFAULT


def test_a_path_may_have_4095_bytes(pages: tuple[int, mmap.mmap]) -> None:
    memory, start = Memory(os.getpid()), pages[0] - 2 * PAGE
    for length, offset in ((PATH_MAX - 1, 0), (PATH_MAX - 1, 100), (PATH_MAX, 0), (PATH_MAX, 100), (PATH_MAX + 1, 7)):
        text = put(start + offset, b"x" * length + b"\0")
        assert memory.string(text) == (b"x" * length if length < PATH_MAX else None)


def test_memory_is_read_and_written_to_its_last_byte(pages: tuple[int, mmap.mmap]) -> None:
    memory, end = Memory(os.getpid()), pages[0]
    memory.write(end - 3, b"end")
    assert memory.read(end - 3, 3) == b"end"
    assert memory.part(end - 3, 100) == b"end"
    assert memory.fill(end - 2, b"abcdef") == 2
    assert memory.read(end - 3, 3) == b"eab"
    assert memory.fill(end - PAGE - 1, b"z" * (PAGE + 5)) == PAGE + 1
    assert memory.read(end, 0) == b""
    for address in (end, 0, 1, 1 << 63, (1 << 64) - 1):
        assert memory.part(address, 5) == b""
        assert memory.fill(address, b"x") == 0
        for fails in (lambda at=address: memory.read(at, 1), lambda at=address: memory.write(at, b"x")):
            with pytest.raises(OSError, match="Bad address"):
                fails()


def test_what_has_ended_has_no_memory(pages: tuple[int, mmap.mmap]) -> None:
    end, _ = pages
    with subprocess.Popen(["sleep", "60"]) as ended:
        memory = Memory(ended.pid)
        with pytest.raises(OSError, match="Bad address"):
            memory.read(1, 1)
        ended.kill()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert memory.fill(end - 1, b"x") == 0
        assert memory.part(end - 1, 1) == b""
        for fails in (lambda: memory.read(end - 1, 1), lambda: memory.write(end - 1, b"x")):
            with pytest.raises(OSError, match="Bad address"):
                fails()


@pytest.mark.parametrize(("protection", "is_read"), [(0, False), (mmap.PROT_READ, True)])
def test_protected_memory_is_as_if_not_there(protection: int, is_read: bool) -> None:
    pages = mmap.mmap(-1, 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), protection) == 0
    memory = Memory(os.getpid())
    assert len(memory.part(start, 2 * PAGE)) == PAGE * (1 + is_read)
    assert memory.fill(start, b"x" * 2 * PAGE) == PAGE
    assert memory.fill(start + PAGE, b"x") == 0
    assert libc.mprotect(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_identities_are_given_in_the_order_of_meeting(tmp_path: Path) -> None:
    identities = Identities()
    one, two = tmp_path / "one", tmp_path / "two"
    one.touch()
    two.touch()
    assert [identities.of(each.stat()) for each in (two, one, two, tmp_path)] == [1, 2, 1, 3]
    (tmp_path / "hard").hardlink_to(one)
    assert identities.of((tmp_path / "hard").stat()) == 2


def test_a_new_object_has_a_new_identity_though_its_inode_number_is_used_again(tmp_path: Path) -> None:
    identities, file = Identities(), tmp_path / "file"
    file.touch()
    status = file.stat()
    first = identities.created(status)
    assert identities.of(status) == first
    assert identities.created(status) == first + 1
    assert identities.of(status) == first + 1


def place(watched: Path, path: str | Path, *, follow: bool = True) -> tuple[str | None, str, int]:
    """Where a path leads from this process's working directory: shown, canonical, error."""
    resolver = Resolver(Watched({str(watched): ""}), ThreadView(os.getpid(), os.getpid()))
    found = resolver.locate(AT_FDCWD, str(path), follow=follow)
    found.close()
    return found.shown, found.path, found.error


def test_below_is_decided_on_where_a_path_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, beside = tmp_path / "x", tmp_path / "xy"
    (watched / "d").mkdir(parents=True)
    beside.mkdir()
    (beside / "in").symlink_to("../x/d")
    (watched / "out").symlink_to(beside)
    monkeypatch.chdir(watched)
    assert place(watched, "d/new")[0] == "d/new"
    assert place(watched, watched)[0] == "."
    assert place(watched, ".")[0] == "."
    assert place(watched, "..") == (None, str(tmp_path), 0)
    assert place(watched, "/")[:2] == (None, "/")
    assert place(watched, beside / "file")[0] is None
    assert place(watched, beside / "in" / "f")[0] == "d/f"
    assert place(watched, beside / "in")[0] == "d"
    assert place(watched, beside / "in", follow=False)[0] is None
    assert place(watched, "out/f") == (None, str(beside / "f"), 0)
    assert place(watched, "out", follow=False)[0] == "out"
    assert place(watched, "d/../../xy/in/../d/f")[0] == "d/f"
    assert place(watched, "../x//d/./f")[0] == "d/f"


def test_a_way_that_ends_early_is_shown_as_far_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed look is a look all the same: whoever makes ``missing`` changes its result."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nothing")
    monkeypatch.chdir(tmp_path)
    assert place(tmp_path, "missing/a/b") == ("missing/a/b", f"{tmp_path}/missing/a/b", errno.ENOENT)
    assert place(tmp_path, "missing/../../../etc/passwd")[::2] == ("missing", errno.ENOENT)
    assert place(tmp_path, "file/x")[::2] == ("file/x", errno.ENOTDIR)
    assert place(tmp_path, "dangling/x")[::2] == ("nothing/x", errno.ENOENT)
    assert place(tmp_path, "dangling")[::2] == ("nothing", 0)
    assert place(tmp_path, "n" * 300 + "/x")[2] == errno.ENAMETOOLONG


def test_the_way_may_be_longer_than_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(20):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    assert place(tmp_path, "new")[0] == "/".join(["d" * 250] * 20 + ["new"])
    monkeypatch.undo()


def test_our_own_proc_is_not_theirs(tmp_path: Path) -> None:
    """``/proc/self`` and ``/dev/stdin`` are the calling thread's, whatever we have under the same number."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.dup2(os.open(tmp_path / "theirs", os.O_CREAT | os.O_RDWR), 0)
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    resolver = Resolver(Watched({str(tmp_path): ""}), ThreadView(child, child))
    try:
        for path, shown in (
            ("/dev/stdin", "theirs"), ("/proc/self/fd/0", "theirs"), ("/proc/thread-self/fd/0", "theirs"),
            ("/dev/fd/0", "theirs"), ("//proc/self/cwd/x", "x"), ("/proc/self/../self/fd/0", "theirs"), ("y", "y"),
        ):  # fmt: skip
            found = resolver.locate(AT_FDCWD, path, follow=True)
            assert found.shown == shown, path
            found.close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_the_filter_is_tested_for_this_machine() -> None:
    assert libc.MACHINE in MACHINES
    assert sys.byteorder == "little", "the filter loads the lower half of an argument first"
