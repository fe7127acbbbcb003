"""Scenarios whose threads wait with a limit.  Not collected by pytest."""

import _thread
import ctypes
import os
import queue
import signal
import struct
import subprocess
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from racecheck import Rank, scenario


@scenario(ranks=2)
def runs_out(rank: Rank) -> tuple[bool, float]:
    """Nothing but time ends the wait: what it says, and how long it took by the clock."""
    before = time.monotonic()
    ended = threading.Event().wait(20)
    (rank.path / f"f{rank.rank}").touch()
    return ended, round(time.monotonic() - before, 2)


@scenario(ranks=2)
def is_told(rank: Rank) -> tuple[bool, float]:
    """Another thread tells it in time, after some work."""
    before, told = time.monotonic(), threading.Event()

    def work() -> None:
        for number in range(5):
            (rank.path / f"{rank.rank}{number}").write_text("x")
        told.set()

    threading.Thread(target=work).start()
    ended = told.wait(0.001)
    return ended, round(time.monotonic() - before, 2)


@scenario(ranks=1)
def told_or_not(rank: Rank) -> bool:
    """A wait of a second for a thread that creates a file first."""
    told = threading.Event()

    def work() -> None:
        (rank.path / "file").mkdir()
        told.set()

    thread = threading.Thread(target=work)
    thread.start()
    ended = told.wait(1)
    thread.join()
    return ended


@scenario(ranks=2)
def an_hour_beside_half_a_second(rank: Rank) -> bool:
    """An idle rank sleeps for an hour while the other one sleeps briefly; the result: was the hour over before?"""
    time.sleep(3600 if rank.rank else 0.5)
    (rank.path / f"file{rank.rank}").mkdir()
    return (rank.path / "file1").exists()


@scenario(ranks=1)
def program_with_a_limit(rank: Rank) -> str:
    """A program that sleeps for longer than its caller has patience."""
    try:
        subprocess.run(["sleep", "1000"], timeout=2, check=False)
    except subprocess.TimeoutExpired:
        return "timed out"
    return "ended"


@scenario(ranks=2)
def sooner_first(rank: Rank) -> None:
    """The thread that waits for a shorter time continues first, whatever its number."""
    threading.Event().wait(0.3 - 0.2 * rank.rank)
    (rank.path / f"f{rank.rank}").touch()


@scenario(ranks=2)
def beside_a_sleeper(rank: Rank) -> float:
    """The one waits for a second, the other sleeps for ten minutes (of virtual time, as all that is slept here)."""
    before = time.monotonic()
    if rank.rank:
        time.sleep(600)
    else:
        threading.Event().wait(1)
    (rank.path / f"f{rank.rank}").touch()
    return round(time.monotonic() - before, 1)


@scenario(ranks=1)
def empty_queue(rank: Rank) -> list[object]:
    """A queue that stays empty, a thread that is joined too early, a lock that another thread has."""
    found: list[object] = []
    try:
        queue.Queue[int]().get(timeout=5)
    except queue.Empty:
        found.append("empty")
    sleeper = threading.Thread(target=time.sleep, args=(10,))
    sleeper.start()
    sleeper.join(1)
    found.append(sleeper.is_alive())
    sleeper.join(60)
    found.append(sleeper.is_alive())
    lock = threading.Lock()
    lock.acquire()
    found.append(lock.acquire(timeout=2))
    return found


@scenario(ranks=2)
def heartbeat(rank: Rank) -> None:
    """Rank 1 never comes to the barrier; a thread of each rank beats, forever."""

    def beat() -> None:
        while not threading.Event().wait(10):
            pass

    threading.Thread(target=beat, daemon=True).start()
    if rank.rank == 0:
        dist.barrier()


@scenario(ranks=2)
def polls_for_a_file(rank: Rank) -> bool:
    """Rank 0 asks for a file every 50 ms; rank 1 makes it after a wait of a second."""
    if rank.rank:
        threading.Event().wait(1)
        (rank.path / "there").touch()
        return True
    for _ in range(100):
        if (rank.path / "there").exists():
            return True
        time.sleep(0.05)
    return False


@scenario(ranks=2)
def polls_without_a_pause(rank: Rank) -> None:
    """Rank 0 asks for a file until it is there."""
    if rank.rank:
        threading.Event().wait(1)
        (rank.path / "there").touch()
    else:
        while not (rank.path / "there").exists():
            pass


@scenario(ranks=1)
def signalled(rank: Rank) -> bool:
    """A thread sends a signal, whose handler ends the main thread's wait."""
    told = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: told.set())

    def work() -> None:
        (rank.path / "file").touch()
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=work).start()
    return told.wait(3600)


@scenario(ranks=1)
def asks_the_clock(rank: Rank) -> int:
    """As C++ does: waits until a point in time, and again as long as the kernel's clock has not come to it."""
    word, process = ctypes.c_uint32(7), ctypes.CDLL(None)
    until = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)  # (that of Python is virtual)
    spec = ctypes.create_string_buffer(16)
    process.clock_gettime(time.CLOCK_MONOTONIC, spec)
    seconds, rest = struct.unpack("qq", spec.raw)
    until = seconds * 10**9 + rest + 300_000_000
    limit, times = struct.pack("qq", *divmod(until, 10**9)), 0
    while seconds * 10**9 + rest < until:
        process.syscall(202, ctypes.byref(word), 9 | 128, 7, limit, None, -1)
        process.clock_gettime(time.CLOCK_MONOTONIC, spec)
        seconds, rest = struct.unpack("qq", spec.raw)
        times += 1
    (rank.path / "file").touch()
    return times


@scenario(ranks=1)
def limit_beside_work(rank: Rank) -> bool:
    """A wait of 50 ms while a thread of the same rank works for longer."""
    done = threading.Event()

    def work() -> None:
        for number in range(40):
            (rank.path / f"f{number}").write_text("x")
        sum(range(5_000_000))
        (rank.path / "last").touch()

    thread = threading.Thread(target=work)
    thread.start()
    (rank.path / "begun").touch()
    in_time = done.wait(0.05)
    (rank.path / "waited").touch()
    thread.join()
    return in_time


@scenario(ranks=2)
def unknown_thread(rank: Rank) -> None:
    """A thread that nobody has announced waits for 20 ms before it does anything; the main one works for longer."""
    taken, over = threading.Lock(), threading.Event()
    taken.acquire()

    def work() -> None:
        taken.acquire(timeout=0.02)
        (rank.path / f"late{rank.rank}").touch()
        over.set()

    _thread.start_new_thread(work, ())
    for number in range(20):
        (rank.path / f"{rank.rank}{number}").write_text("x" * 1000)
    over.wait()


@scenario(ranks=2)
def waits_forever(rank: Rank) -> None:
    """Rank 0 looks every ten seconds whether something has happened that never does."""
    while rank.rank == 0:
        threading.Event().wait(10)


@scenario(ranks=2)
def group_of_twenty_seconds(rank: Rank) -> None:
    """A group with a limit of its own."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=20))
    dist.barrier(group)
    (rank.path / str(rank.rank)).touch()
