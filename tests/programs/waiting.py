"""Carries out a program whose threads save while others wait for them; ``RACECHECK_PROGRAM`` names its file.

It runs under control only, where sleeps take virtual time: nothing here waits for a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent import futures
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from racecheck import Rank, scenario

_LONG = 600
"""Seconds of a time limit that no run reaches."""

Way = tuple[Callable[[], object], Callable[[], object]]
"""How a thread is told of something, and how it waits for that."""


@scenario(ranks=2)
def carry_out(rank: Rank) -> None:
    with open(os.environ["RACECHECK_PROGRAM"], encoding="utf-8") as file:
        program = json.load(file)
    weights = torch.zeros(program["size"])
    savers = [_Saver(rank.path, f"{rank.rank}{each}", weights, *ways) for each, ways in enumerate(program["savers"])]
    for what in program["main"]:
        _main_step(what, rank, weights, savers)


def _main_step(what: str, rank: Rank, weights: torch.Tensor, savers: list[_Saver]) -> None:
    name, _, number = what.partition("#")
    if name == "update":
        weights.add_(1)
    elif name == "touch":
        (rank.path / f"main{rank.rank}").touch()
    elif number:
        getattr(savers[int(number)], name)()
    else:
        COLLECTIVES[name](rank.rank)


class _Saver:
    """A thread that waits until it is told, saves the weights, and tells that it has."""

    def __init__(self, path: Path, name: str, weights: torch.Tensor, told: str, saves: str, done: str) -> None:
        self.go, self._wait = WAYS[told](path / f"{name}go")
        self._tell, self.join = WAYS[done](path / f"{name}done")
        self._save = lambda: SAVES[saves](path / name, weights)
        self._thread = threading.Thread(target=self._work)
        self.start = self._thread.start
        if done == "join":
            self._tell, self.join = _nothing, self._thread.join

    def _work(self) -> None:
        self._wait()
        self._save()
        self._tell()


def _nothing() -> None:
    pass


def _event(_: Path) -> Way:
    event = threading.Event()
    return event.set, event.wait


def _limited_event(_: Path) -> Way:
    event = threading.Event()
    return event.set, lambda: event.wait(_LONG)


def _condition(_: Path) -> Way:
    condition, told = threading.Condition(), list[bool]()

    def tell() -> None:
        with condition:
            told.append(True)
            condition.notify_all()

    def wait() -> None:
        with condition:
            condition.wait_for(lambda: told)

    return tell, wait


def _queue(_: Path) -> Way:
    items = queue.Queue[int]()
    return lambda: items.put(1), items.get


def _simple_queue(_: Path) -> Way:
    items = queue.SimpleQueue[int]()
    return lambda: items.put(1), items.get


def _semaphore(_: Path) -> Way:
    semaphore = threading.Semaphore(0)
    return semaphore.release, semaphore.acquire


def _lock(_: Path) -> Way:
    lock = threading.Lock()
    lock.acquire()
    return lock.release, lock.acquire


def _barrier(_: Path) -> Way:
    barrier = threading.Barrier(2)
    return barrier.wait, barrier.wait


def _future(_: Path) -> Way:
    future = futures.Future[int]()
    return lambda: future.set_result(1), future.result


def _futures(_: Path) -> Way:
    future = futures.Future[int]()
    return lambda: future.set_result(1), lambda: futures.wait([future])


def _pipe(_: Path) -> Way:
    read, write = os.pipe()
    return lambda: os.write(write, b"x"), lambda: os.read(read, 1)


def _selected_pipe(_: Path) -> Way:
    read, write = os.pipe()
    return lambda: os.write(write, b"x"), lambda: select.select([read], [], [])


def _sockets(_: Path) -> Way:
    one, other = socket.socketpair()
    return lambda: one.sendall(b"x"), lambda: other.recv(1)


def _file(path: Path) -> Way:
    """A poll: its sleep is an op, which ends when nothing else can continue, and takes no real time."""

    def wait() -> None:
        while not path.exists():
            time.sleep(60)

    return path.touch, wait


def _child(_: Path) -> Way:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    return child.stdin.close, child.wait


WAYS: dict[str, Callable[[Path], Way]] = {
    "event": _event,
    "limited event": _limited_event,
    "condition": _condition,
    "queue": _queue,
    "simple queue": _simple_queue,
    "semaphore": _semaphore,
    "lock": _lock,
    "barrier": _barrier,
    "future": _future,
    "futures": _futures,
    "pipe": _pipe,
    "selected pipe": _selected_pipe,
    "sockets": _sockets,
    "file": _file,
    "child": _child,
    "join": lambda _: (_nothing, _nothing),
}


def _replace(path: Path, weights: torch.Tensor) -> None:
    staged = path.with_suffix(".tmp")
    with staged.open("wb") as file:
        file.write(weights.numpy().tobytes())
        os.fsync(file.fileno())
    staged.rename(path)


def _copy(path: Path, weights: torch.Tensor) -> None:
    copy = weights.clone()
    path.with_name(f"{path.name}-{copy.min():g}-{copy.max():g}").touch()


def _digest(path: Path, weights: torch.Tensor) -> None:
    path.with_name(f"{path.name}-{hashlib.sha256(weights.numpy().data).hexdigest()[:8]}").touch()


SAVES: dict[str, Callable[[Path, torch.Tensor], None]] = {
    "replace": _replace,
    "torch": lambda path, weights: torch.save({"w": weights}, path),
    "copy": _copy,
    "digest": _digest,
    "program": lambda path, _: subprocess.run(["touch", path], check=True) and None,
}


def _ones() -> torch.Tensor:
    return torch.ones(2)


def _exchange(rank: int) -> None:
    if rank:
        dist.recv(_ones(), src=0)
    else:
        dist.send(_ones(), dst=1)


COLLECTIVES: dict[str, Callable[[int], Any]] = {
    "barrier": lambda _: dist.barrier(),
    "all_reduce": lambda _: dist.all_reduce(_ones()),
    "async all_reduce": lambda _: dist.all_reduce(_ones(), async_op=True).wait(),
    "broadcast": lambda _: dist.broadcast(_ones(), src=0),
    "reduce": lambda _: dist.reduce(_ones(), dst=0),
    "all_gather": lambda _: dist.all_gather([_ones(), _ones()], _ones()),
    "gather": lambda rank: dist.gather(_ones(), None if rank else [_ones(), _ones()], dst=0),
    "scatter": lambda rank: dist.scatter(_ones(), None if rank else [_ones(), _ones()], src=0),
    "reduce_scatter": lambda _: dist.reduce_scatter(_ones(), [_ones(), _ones()]),
    "all_to_all": lambda _: dist.all_to_all_single(_ones(), _ones()),
    "exchange": _exchange,
    "all_gather_object": lambda rank: dist.all_gather_object([None, None], rank),
    "broadcast_object_list": lambda rank: dist.broadcast_object_list([rank], src=0),
    "monitored_barrier": lambda _: dist.monitored_barrier(timeout=timedelta(seconds=_LONG)),
}
