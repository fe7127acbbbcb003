"""Programs that meet one gap or condition each, which the claim names.

Sleeps are in virtual time and take none.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import threading
import time

import torch
import torch.distributed as dist

import racecheck
from racecheck import Rank

_libc = ctypes.CDLL(None, use_errno=True)
_IO_SETUP, _IO_GETEVENTS, _IO_SUBMIT, _NOBODYS = 206, 208, 209, 900
_PWRITE = 1


@racecheck.scenario(ranks=2)
def asks_whether_it_is_complete(rank: Rank) -> None:
    work = dist.all_reduce(torch.zeros(1), async_op=True)
    if work.is_completed():
        (rank.path / str(rank.rank)).touch()
    work.wait()


@racecheck.scenario(ranks=2)
def uses_a_queue(rank: Rank) -> None:
    store = dist.distributed_c10d._get_default_store()
    if rank.rank == 0:
        store.queue_push("queue", "1")
    else:
        store.queue_pop("queue")
    (rank.path / str(rank.rank)).touch()


@racecheck.scenario(ranks=1)
def executes_beside_a_thread(rank: Rank) -> None:
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        os.execv(sys.executable, [sys.executable, "-S", "-c", f"open({str(rank.path / 'file')!r}, 'w')"])
    os.waitpid(pid, 0)


@racecheck.scenario(ranks=1)
def ends_beside_a_thread_that_waits(rank: Rank) -> None:
    lock = os.open(rank.path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def wait() -> None:
        other = os.open(rank.path / "lock", os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)

    threading.Thread(target=wait, daemon=True).start()
    time.sleep(1)


@racecheck.scenario(ranks=3)
def receives_from_anyone(rank: Rank) -> None:
    tensor = torch.tensor([rank.rank])
    if rank.rank == 0:
        for _ in range(2):
            dist.recv(tensor)
            (rank.path / str(int(tensor))).touch()
    else:
        dist.send(tensor, 0)


@racecheck.scenario(ranks=1)
def watches(rank: Rank) -> None:
    found = _libc.inotify_init()
    _libc.inotify_add_watch(found, os.fsencode(rank.path), 0x100)
    os.close(found)


@racecheck.scenario(ranks=1)
def submits(rank: Rank) -> None:
    """Write a byte as libaio does."""
    file = os.open(rank.path / "file", os.O_CREAT | os.O_RDWR)
    context, data = ctypes.c_ulong(0), ctypes.create_string_buffer(b"1")
    assert _libc.syscall(_IO_SETUP, 1, ctypes.byref(context)) == 0
    block = ctypes.create_string_buffer(
        struct.pack("QIIHhIQQqQII", 0, 0, 0, _PWRITE, 0, file, ctypes.addressof(data), 1, 0, 0, 0, 0)
    )
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    assert _libc.syscall(_IO_SUBMIT, context, 1, blocks) == 1
    events = ctypes.create_string_buffer(32)
    assert _libc.syscall(_IO_GETEVENTS, context, 1, 1, events, None) == 1
    os.close(file)
    assert (rank.path / "file").read_bytes() == b"1"


@racecheck.scenario(ranks=1)
def administers(rank: Rank) -> None:
    (rank.path / "file").touch()
    _libc.swapoff(os.fsencode(rank.path / "file"))


@racecheck.scenario(ranks=1)
def calls_what_nobody_knows(rank: Rank) -> None:
    (rank.path / "file").touch()
    _libc.syscall(_NOBODYS)


@racecheck.scenario(ranks=2)
def sleeps_long(rank: Rank) -> None:
    if rank.rank == 0:
        time.sleep(60)
    (rank.path / "file").touch()
