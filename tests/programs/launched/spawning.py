"""Two ranks that ``torch.multiprocessing.spawn`` starts; the first argument says what they do."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

OUT = Path("out")


def join(rank: int) -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=2)


def race(rank: int) -> None:
    join(rank)
    if OUT.exists():
        shutil.rmtree(OUT)
    OUT.mkdir(exist_ok=True)


def guarded(rank: int) -> None:
    join(rank)
    if rank == 0:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
    dist.barrier()
    torch.save({"weights": torch.full((4,), float(rank))}, OUT / f"{rank}.pt")


def dies(rank: int, how: str) -> None:
    """One ends, the other sleeps; when that is sent SIGTERM it leaves a note."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    if rank == 0:
        time.sleep(100)
    ends = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "exit": lambda: os._exit(5),
        "leave": lambda: sys.exit(3),
    }
    ends[how]() if how in ends else 1 / 0


def put(rank: int, queue: multiprocessing.SimpleQueue[int], shared: torch.Tensor) -> None:
    (OUT / str(rank)).touch()
    shared[rank] = rank + 1
    queue.put(rank)


def touch(rank: int) -> None:
    (OUT / f"{rank} {os.environ['SET_BY_PARENT']}").touch()
    time.sleep(1)
    (OUT / str(rank)).touch()


def merges() -> None:
    mp.spawn(guarded, nprocs=2)
    assert [float(torch.load(OUT / f"{rank}.pt")["weights"][0]) for rank in range(2)] == [0, 1]


def by_hand() -> None:
    for rank in range(2):
        if os.fork() == 0:
            guarded(rank)
            os._exit(0)
    for _ in range(2):
        os.wait()


def processes() -> None:
    made = [mp.get_context("spawn").Process(target=guarded, args=(rank,)) for rank in range(2)]
    for each in made:
        each.start()
    for each in made:
        each.join()
    assert [each.exitcode for each in made] == [0, 0]


def shares() -> None:
    queue, shared = mp.get_context("spawn").SimpleQueue(), torch.zeros(2).share_memory_()
    mp.spawn(put, args=(queue, shared), nprocs=2)
    assert sorted([queue.get(), queue.get()]) == [0, 1]
    assert shared.tolist() == [1, 2]


def orphans() -> None:
    mp.spawn(touch, nprocs=2, join=False)
    time.sleep(0.5)
    os._exit(4)


def polls() -> None:
    """The parent asks whether a process is alive while the others are at work."""
    context = mp.spawn(touch, nprocs=2, join=False)
    if not context.processes[0].is_alive():
        (OUT / "late").touch()
    while not context.join():
        pass


def fewer() -> None:
    """A later start needs one process only."""
    flag = OUT / "flag"
    count = 1 if flag.exists() else 2
    flag.touch()
    mp.spawn(touch, nprocs=count)


def twice() -> None:
    for _ in range(2):
        mp.spawn(touch, nprocs=2)


def sends(rank: int, end: Any) -> None:
    (OUT / str(rank)).touch()
    end.send(rank)


def talks(*, duplex: bool) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex)
    mp.spawn(sends, args=(theirs,), nprocs=2)
    assert {ours.recv(), ours.recv()} == {0, 1}


WAYS = {
    "race": lambda: mp.spawn(race, nprocs=2),
    "guarded": merges,
    "processes": processes,
    "queue": shares,
    "orphans": orphans,
    "twice": twice,
    "socket": lambda: talks(duplex=True),
    "pipe": lambda: talks(duplex=False),
    "polls": polls,
    "fewer": fewer,
    "fork": by_hand,
    "none": lambda: torch.save({"weights": torch.ones(2)}, OUT / "model.pt"),
    **{how: lambda how=how: mp.spawn(dies, args=(how,), nprocs=2) for how in ("kill", "exit", "leave", "raise")},
}


if __name__ == "__main__":
    os.environ["SET_BY_PARENT"] = "yes"
    try:
        WAYS[sys.argv[1]]()
    except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
        code, name = getattr(error, "exit_code", None), getattr(error, "signal_name", None)
        raise SystemError(f"{type(error).__name__} {error.error_index} {code} {name} {str(error)[-20:]!r}") from None
