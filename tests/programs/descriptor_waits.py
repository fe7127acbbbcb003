"""Scenarios that wait for descriptors with a time limit.  Not collected by pytest.

Their sleeps are virtual: what they wait for comes before, after or at no time, and no real time passes.
"""

import asyncio
import ctypes
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection

import torch.distributed as dist

from racecheck import Rank, scenario

BUSY = "import time; end = time.perf_counter() + 1.5\nwhile time.perf_counter() < end: pass\nprint('done', flush=True)"


def _polled(descriptor: int, seconds: float) -> list[tuple[int, int]]:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll(seconds * 1000)


def _epolled(descriptor: int, seconds: float) -> list[tuple[int, int]]:
    with select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLIN)
        return epoll.poll(seconds)


def _selected(descriptor: int, seconds: float) -> list[int]:
    return select.select([descriptor], [], [descriptor], seconds)[0]


WAYS = {"poll": _polled, "select": _selected, "epoll": _epolled}


def _ends(kind: str) -> tuple[int, int]:
    if kind == "pipe":
        return os.pipe()
    if kind == "event":
        event = os.eventfd(0)
        return event, event
    first, second = socket.socketpair()
    return first.detach(), second.detach()


def _empty(way: str, kind: str) -> tuple[bool, float]:
    """Wait ten minutes for nothing: whether that was ready, and how long it took by the clock."""
    reading, _ = _ends(kind)
    before = time.monotonic()
    found = WAYS[way](reading, 600)
    return bool(found), round(time.monotonic() - before, 2)


@scenario(ranks=1)
def runs_out(rank: Rank) -> list[tuple[bool, float]]:
    """Nothing comes, in all ways and over all channels."""
    del rank
    return [_empty(way, kind) for way in WAYS for kind in ("pipe", "pair", "event")]


@scenario(ranks=1)
def leaves_nothing(rank: Rank) -> tuple[list[int], list[int], int, int]:
    """What C finds in memory when the time is over: sets, events and the limit are cleared."""
    del rank
    libc, (reading, _) = ctypes.CDLL(None), os.pipe()
    sets = [(ctypes.c_uint64 * 16)(1 << reading) for _ in range(3)]
    limit = (ctypes.c_int64 * 2)(5, 3)
    libc.select(reading + 1, *map(ctypes.byref, sets), ctypes.byref(limit))
    entry = (ctypes.c_int16 * 4)(reading, 0, select.POLLIN, -1)
    ready = libc.poll(ctypes.byref(entry), ctypes.c_ulong(1), 1000)
    return [each[0] for each in sets], [*limit], ready, entry[3]


@scenario(ranks=1)
def of_many(rank: Rank) -> int:
    """A pipe with data is the last of more entries than are examined; the others are no descriptors."""
    del rank
    libc, (reading, writing) = ctypes.CDLL(None), os.pipe()
    os.write(writing, b"x")
    entries = (ctypes.c_int16 * 400)(*([-1, -1, select.POLLIN, 0] * 99), reading, 0, select.POLLIN, 0)
    return libc.poll(ctypes.byref(entries), ctypes.c_ulong(100), 1000)


@scenario(ranks=1)
def slow_child(rank: Rank) -> tuple[str, bool]:
    """A limit of a tenth of a second for a process that computes for longer than that."""
    del rank
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def work() -> None:
        subprocess.run([sys.executable, "-c", BUSY], check=True)
        sending.send("result")

    process = context.Process(target=work)
    process.start()
    found = receiving.poll(0.1)
    process.join()
    return receiving.recv(), found


@scenario(ranks=1)
def slow_program(rank: Rank) -> str:
    """A program that computes longer than its limit is not stopped: only sleeping takes time."""
    del rank
    return subprocess.run([sys.executable, "-c", BUSY], timeout=1, check=True, capture_output=True, text=True).stdout


@scenario(ranks=1)
def sleepy_program(rank: Rank) -> str:
    """One that sleeps for longer is."""
    del rank
    try:
        subprocess.run(["sh", "-c", "echo early; sleep 1000"], timeout=2, check=True, capture_output=True)
    except subprocess.TimeoutExpired as error:
        return (error.output or b"").decode()
    return "ended"


@scenario(ranks=2)
def sooner_than_a_key(rank: Rank) -> str:
    """Rank 0 waits 5 s for nothing, and sets the key that rank 1 waits for, for 10 s."""
    store = dist.distributed_c10d._get_default_store()
    if rank.rank == 0:
        _empty_for(5)
        store.set("key", "value")
        return "set"
    store.wait(["key"], timedelta(seconds=10))
    return "found"


def _empty_for(seconds: float) -> None:
    select.select([os.pipe()[0]], [], [], seconds)


@scenario(ranks=2)
def beside_a_sleeper(rank: Rank) -> float:
    """The shorter one ends first: rank 1 sleeps, rank 0 waits, and each makes a file."""
    before = time.monotonic()
    if rank.rank:
        time.sleep(3)
    else:
        _empty_for(2)
    took = time.monotonic() - before
    (rank.path / f"f{rank.rank}").touch()
    return round(took, 2)


@scenario(ranks=1)
def asynchronous(rank: Rank) -> list[str]:
    """Coroutines that sleep, and one whose time is over."""
    done: list[str] = []

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        (rank.path / name).touch()
        done.append(name)

    async def all_of_them() -> None:
        slow = asyncio.wait_for(work("never", 3600), timeout=60)
        ended = await asyncio.gather(work("second", 20), work("first", 0.5), slow, return_exceptions=True)
        done.append(type(ended[2]).__name__)

    asyncio.run(all_of_them())
    return done


@scenario(ranks=1)
def interrupted(rank: Rank) -> list[object]:
    """A handler ends the wait in the middle of it, when its timer is due."""
    del rank

    def handle(*_: object) -> None:
        raise InterruptedError("by the handler")

    signal.signal(signal.SIGALRM, handle)
    before, said = time.monotonic(), "nobody"
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        _empty_for(60)
    except InterruptedError as error:
        said = str(error)
    return [said, round(time.monotonic() - before, 2)]


@scenario(ranks=1)
def endless(rank: Rank) -> None:
    """A loop of waits that all time out."""
    del rank
    while True:
        _empty_for(5)


@scenario(ranks=2)
def idle_workers(rank: Rank) -> None:
    """A rank with two processes that look for work every five seconds sleeps for an hour, and ends them then."""
    context = multiprocessing.get_context("fork")
    ends = [context.Pipe(duplex=False) for _ in range(2)]

    def work(receiving: Connection) -> None:
        while not receiving.poll(5):
            pass

    processes = [context.Process(target=work, args=(receiving,)) for receiving, _ in ends]
    for each in processes:
        each.start()
    time.sleep(3600)
    (rank.path / f"f{rank.rank}").touch()
    for _, sending in ends:
        sending.send("end")
    for each in processes:
        each.join()


@scenario(ranks=1)
def of_a_thread(rank: Rank) -> bool:
    """A thread of the same process writes, after a file of its own; the other one waits."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=lambda: ((rank.path / "file").mkdir(), os.write(writing, b"x")))
    thread.start()
    found = bool(_polled(reading, 30))
    thread.join()
    return found
