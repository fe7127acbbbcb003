"""Each way in which two ranks of one machine can reach each other, used by both of them (or, alone, by one).

Sleeps are in virtual time and take none.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import shared_memory
from pathlib import Path

import torch
import torch.distributed as dist

import racecheck
from racecheck import Rank

_libc = ctypes.CDLL(None, use_errno=True)
_KEY = 0x72616365
_CREATE, _REMOVE = 0o1600, 0
_NAME = b"/racecheck-test"
_ABSTRACT = "\0racecheck-test"


def _outside(name: str) -> Path:
    """Return a path outside the watched directory, the same for all ranks of one run."""
    return Path("/dev/shm") / name


@contextmanager
def _file(rank: Rank, name: str) -> Iterator[Path]:
    path = _outside(f"racecheck-{name}")
    path.touch()
    dist.barrier()
    yield path
    dist.barrier()
    if rank.rank == 0:
        path.unlink()


@racecheck.scenario(ranks=2)
def file_inside(rank: Rank) -> None:
    (rank.path / "file").write_text(str(rank.rank))


@racecheck.scenario(ranks=2)
def lock_inside(rank: Rank) -> None:
    with (rank.path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@racecheck.scenario(ranks=2)
def collective(rank: Rank) -> None:
    del rank
    dist.all_reduce(torch.zeros(1))


@racecheck.scenario(ranks=2)
def store_key(rank: Rank) -> None:
    dist.distributed_c10d._get_default_store().add("key", rank.rank)


@racecheck.scenario(ranks=2)
def exit_status(rank: Rank) -> None:
    subprocess.run([sys.executable, "-c", f"open({str(rank.path / 'file')!r}, 'w')"], check=True)


@racecheck.scenario(ranks=2)
def file_outside(rank: Rank) -> None:
    with _file(rank, "file") as path:
        path.write_text(str(rank.rank))


@racecheck.scenario(ranks=2)
def lock_outside(rank: Rank) -> None:
    """Lock this file, as a guard that only one instance runs."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (rank.path / str(rank.rank)).touch()


@racecheck.scenario(ranks=2)
def record_lock_outside(rank: Rank) -> None:
    with Path(__file__).open() as file:
        fcntl.lockf(file, fcntl.LOCK_SH)
    (rank.path / str(rank.rank)).touch()


def _signalled(rank: Rank, send: Callable[[int], None]) -> None:
    """Have rank 0 send a signal to rank 1."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    other = _others(rank)
    if rank.rank == 0:
        send(other)


@racecheck.scenario(ranks=2)
def signals(rank: Rank) -> None:
    _signalled(rank, lambda pid: os.kill(pid, signal.SIGUSR1))


@racecheck.scenario(ranks=2)
def signals_by_pidfd(rank: Rank) -> None:
    def send(pid: int) -> None:
        descriptor = os.pidfd_open(pid)
        signal.pidfd_send_signal(descriptor, signal.SIGUSR1)
        os.close(descriptor)

    _signalled(rank, send)


@racecheck.scenario(ranks=2)
def signal_zero(rank: Rank) -> None:
    other = _others(rank)
    if rank.rank == 0:
        with suppress(ProcessLookupError):
            os.kill(other, 0)


@racecheck.scenario(ranks=1)
def inherited_pipe(rank: Rank) -> None:
    reading, writing = os.pipe()
    thread = threading.Thread(target=os.write, args=(writing, b"1"))
    thread.start()
    os.read(reading, 1)
    (rank.path / "file").touch()
    thread.join()


@racecheck.scenario(ranks=2)
def fifo_inside(rank: Rank) -> None:
    with suppress(FileExistsError):
        os.mkfifo(rank.path / "fifo")
    os.close(os.open(rank.path / "fifo", os.O_RDWR | os.O_NONBLOCK))


@racecheck.scenario(ranks=2)
def fifo_outside(rank: Rank) -> None:
    path = _outside("racecheck-fifo")
    if rank.rank == 0:
        os.mkfifo(path)
    dist.barrier()
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    (rank.path / str(rank.rank)).touch()
    dist.barrier()
    if rank.rank == 0:
        path.unlink()


@racecheck.scenario(ranks=2)
def datagrams(rank: Rank) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
    (rank.path / str(rank.rank)).touch()


def _exchange(rank: Rank, address: str) -> None:
    """Rank 0 listens, and rank 1 connects when it may."""
    with socket.socket(socket.AF_UNIX) as one:
        if rank.rank == 0:
            one.bind(address)
            one.listen()
        dist.barrier()
        if rank.rank == 1:
            one.connect(address)
        dist.barrier()
    (rank.path / str(rank.rank)).touch()


@racecheck.scenario(ranks=2)
def unix_socket(rank: Rank) -> None:
    _exchange(rank, os.path.join(tempfile.gettempdir(), "socket"))


@racecheck.scenario(ranks=2)
def abstract_socket(rank: Rank) -> None:
    _exchange(rank, _ABSTRACT)


@racecheck.scenario(ranks=1)
def sent_descriptor(rank: Rank) -> None:
    one, other = socket.socketpair()
    with one, other, (rank.path / "file").open("w") as file:
        one.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])


@racecheck.scenario(ranks=2)
def memory_posix(rank: Rank) -> None:
    if rank.rank == 0:
        made = shared_memory.SharedMemory("psm_racecheck", create=True, size=8)
    dist.barrier()
    if rank.rank == 1:
        made = shared_memory.SharedMemory("psm_racecheck")
    dist.barrier()
    (rank.path / str(rank.rank)).touch()
    made.close()
    if rank.rank == 0:
        made.unlink()


@racecheck.scenario(ranks=2)
def semaphore_posix(rank: Rank) -> None:
    _libc.sem_open.restype = ctypes.c_void_p
    if rank.rank == 0:
        _libc.sem_open(_NAME, os.O_CREAT, 0o600, 1)
    dist.barrier()
    if rank.rank == 1:
        _libc.sem_open(_NAME, 0)
    dist.barrier()
    (rank.path / str(rank.rank)).touch()
    if rank.rank == 0:
        _libc.sem_unlink(_NAME)


@racecheck.scenario(ranks=2)
def queue_posix(rank: Rank) -> None:
    found = _libc.mq_open(_NAME, os.O_CREAT | os.O_RDWR, 0o600, None)
    assert found >= 0, os.strerror(ctypes.get_errno())
    os.close(found)
    dist.barrier()
    (rank.path / str(rank.rank)).touch()
    if rank.rank == 0:
        _libc.mq_unlink(_NAME)


def _system_v(rank: Rank, make: Callable[[], int], remove: Callable[[int], int]) -> None:
    """Both ranks find one object by its key."""
    number = make()
    assert number >= 0, os.strerror(ctypes.get_errno())
    dist.barrier()
    (rank.path / str(rank.rank)).touch()
    if rank.rank == 0:
        remove(number)


@racecheck.scenario(ranks=2)
def memory_system_v(rank: Rank) -> None:
    _system_v(rank, lambda: _libc.shmget(_KEY, 4096, _CREATE), lambda each: _libc.shmctl(each, _REMOVE, None))


@racecheck.scenario(ranks=2)
def semaphore_system_v(rank: Rank) -> None:
    _system_v(rank, lambda: _libc.semget(_KEY, 1, _CREATE), lambda each: _libc.semctl(each, 0, _REMOVE))


@racecheck.scenario(ranks=2)
def queue_system_v(rank: Rank) -> None:
    _system_v(rank, lambda: _libc.msgget(_KEY, _CREATE), lambda each: _libc.msgctl(each, _REMOVE, None))


@racecheck.scenario(ranks=2)
def queue_system_v_by_number(rank: Rank) -> None:
    """Rank 0 makes a private queue and says its number."""
    number: list[int] = [_libc.msgget(0, _CREATE) if rank.rank == 0 else -1]
    dist.broadcast_object_list(number)
    message = ctypes.create_string_buffer(16)
    ctypes.c_long.from_buffer(message).value = 1
    if rank.rank == 0:
        _libc.msgsnd(number[0], message, 1, 0)
    dist.barrier()
    if rank.rank == 1:
        _libc.msgrcv(number[0], message, 1, 0, 0)
    (rank.path / str(rank.rank)).touch()
    dist.barrier()
    if rank.rank == 0:
        _libc.msgctl(number[0], _REMOVE, None)


@racecheck.scenario(ranks=2)
def kernel_key(rank: Rank) -> None:
    _libc.syscall(248, b"user", b"racecheck", b"1", ctypes.c_size_t(1), -3)
    (rank.path / str(rank.rank)).touch()


@racecheck.scenario(ranks=1)
def inotify(rank: Rank) -> None:
    found = _libc.inotify_init()
    _libc.inotify_add_watch(found, os.fsencode(Path(__file__).parent), 0x100)
    os.close(found)
    (rank.path / "file").touch()


def _others(rank: Rank) -> int:
    pids: list[int | None] = [None, None]
    dist.all_gather_object(pids, os.getpid())
    (rank.path / str(rank.rank)).touch()
    return int(pids[1 - rank.rank] or 0)


@racecheck.scenario(ranks=2)
def proc_of_another(rank: Rank) -> None:
    other = _others(rank)
    Path(f"/proc/{other}/cmdline").exists()
    dist.barrier()


@racecheck.scenario(ranks=1)
def proc_locks(rank: Rank) -> None:
    Path("/proc/locks").read_text()
    (rank.path / "file").touch()


@racecheck.scenario(ranks=2)
def pidfd(rank: Rank) -> None:
    os.close(os.pidfd_open(_others(rank)))
    dist.barrier()


@racecheck.scenario(ranks=2)
def memory_of_another(rank: Rank) -> None:
    _libc.process_vm_readv(_others(rank), None, 0, None, 0, 0)
    dist.barrier()


@racecheck.scenario(ranks=1)
def proc_list(rank: Rank) -> None:
    os.listdir("/proc")
    (rank.path / "file").touch()


@racecheck.scenario(ranks=2)
def group_of_another(rank: Rank) -> None:
    os.getpgid(_others(rank))
    dist.barrier()


@racecheck.scenario(ranks=2)
def processors_of_another(rank: Rank) -> None:
    os.sched_getaffinity(_others(rank))
    dist.barrier()


@racecheck.scenario(ranks=2)
def priority_of_another(rank: Rank) -> None:
    os.getpriority(os.PRIO_PROCESS, _others(rank))
    dist.barrier()


@racecheck.scenario(ranks=2)
def limits_of_another(rank: Rank) -> None:
    resource.prlimit(_others(rank), resource.RLIMIT_NOFILE)
    dist.barrier()


@racecheck.scenario(ranks=1)
def alone(rank: Rank) -> None:
    """One rank uses what would be a gap if two did."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    for found, remove in (
        (_libc.shmget(_KEY + 1, 4096, _CREATE), lambda each: _libc.shmctl(each, _REMOVE, None)),
        (_libc.semget(_KEY + 1, 1, _CREATE), lambda each: _libc.semctl(each, 0, _REMOVE)),
        (_libc.msgget(_KEY + 1, _CREATE), lambda each: _libc.msgctl(each, _REMOVE, None)),
    ):
        assert found >= 0
        remove(found)
    one, other = socket.socketpair()
    with one, other, Path(__file__).open() as file:
        one.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.close(os.pidfd_open(child.pid))
    os.getpgid(child.pid)
    os.getpriority(os.PRIO_PROCESS, os.getpid())
    resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)
    child.wait()
    (rank.path / "file").touch()


@racecheck.scenario(ranks=2)
def shared_mapping(rank: Rank) -> None:
    """A mapping that can be made writable, with the file open for that."""
    path = rank.path / str(rank.rank)
    path.write_bytes(b"1" * mmap.PAGESIZE)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[0]


@racecheck.scenario(ranks=2)
def link_of_descriptor(rank: Rank) -> None:
    """Rank 0 asks for the path of its file, which rank 1 renames."""
    if rank.rank == 0:
        (rank.path / "file").touch()
    dist.barrier()
    if rank.rank == 0:
        with (rank.path / "file").open() as file:
            os.readlink(f"/proc/self/fd/{file.fileno()}")
            time.sleep(1)
    else:
        time.sleep(1)
        (rank.path / "file").rename(rank.path / "other")
