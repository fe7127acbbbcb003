"""Processes that a program starts with ``multiprocessing`` by the method "fork": they are the ranks.

A forked process has the memory of its parent, so no process that existed before can stand in for it.  The program's
own process, the last rank, therefore runs alone and not controlled until it has started as many as there are
ranks.  Each of them, and at last the program's own, then hands its calls over and waits for the others, as the ranks of
other programs do after their fork.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from multiprocessing import popen_fork
from pathlib import Path
from typing import Any

from racecheck.agent import spawning
from racecheck.agent.hypercalling import stack
from racecheck.kernel import proc
from racecheck.model.hypercalls import Looks, Usage

_CHANNELS = ("pipe:", "socket:", "anon_inode:[eventfd]", "/memfd:", "/dev/mqueue")
"""How the targets of descriptors begin (proc(5)) by which processes reach each other."""


class Births:
    """The processes that a program is to start: ``ranks`` of them.

    ``begin`` makes a process the rank of a number and waits until all are there; ``end`` reports its error, if there is
    one, and ends it with a status.
    """

    def __init__(
        self, ranks: int, begin: Callable[[int], None], end: Callable[[int, BaseException | None, int], None]
    ) -> None:
        self._ranks, self._begin, self._end = ranks, begin, end
        self._born = 0
        self._own: set[int] = set()
        self._before = {*_shared_files(), *_shared_memory()}

    def fork(self, made: Any) -> int:
        """Fork the next process, which runs the function of ``made``; returns its number (pid)."""
        for each in (sys.stdout, sys.stderr):  # else the text that waits there would be printed twice
            each.flush()
        sentinel, ours = os.pipe()
        self._own |= {ours}
        pid = self._next(lambda: self._run(made, sentinel, ours))
        os.close(sentinel)
        self._count()
        return pid

    def complete(self) -> None:
        """Fork the processes that the program has not started before its end: they do nothing."""
        while self._born < self._ranks:
            self._next(lambda: (None, 0))
            self._count()

    def _count(self) -> None:
        self._born += 1
        if self._born == self._ranks:
            self._begin(self._ranks)

    def uncontrolled(self) -> Iterator[Usage | Looks]:
        """Yield hypercalls that tell of threads, processes and memory of the program that racecheck cannot control.

        Threads and processes from before the ranks end the run; memory, pipes and sockets, by which the ranks may reach
        each other unseen, are named.
        """
        others = [each for each in proc.descendants(os.getpid()) if "resource_tracker" not in _command(each)]
        if others or threading.active_count() > 1:
            kind = "another process" if others else "a thread"
            said = f"the program starts {kind} before it forks its ranks: racecheck would not control that"
            yield Usage(said, stack=stack())
        own = self._own | spawning.sentinels()
        if {*_shared_files(own), *_shared_memory()} - self._before:
            yield Looks("inherited")

    def _next(self, run: Callable[[], tuple[BaseException | None, int]]) -> int:
        """Fork a process whose parent ends at once, so that the zygote, a subreaper, learns of its end."""
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            try:
                pid = os.fork()
                if pid == 0:
                    os.close(reading)
                    os.close(writing)
                    self._be(self._born, run)
                os.write(writing, str(pid).encode())
            finally:  # whatever happens, this copy must not go on with the program
                os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            said = pipe.read()
        os.waitpid(between, 0)
        return int(said)

    def _be(self, number: int, run: Callable[[], tuple[BaseException | None, int]]) -> None:
        error, status = None, 1
        try:
            spawning.be_child()
            self._begin(number)
            error, status = run()
        finally:
            self._end(number, error, status)

    def _run(self, made: Any, sentinel: int, parents: int) -> tuple[BaseException | None, int]:
        os.close(parents)
        raised: list[BaseException] = []
        spawning.note_errors(made, raised)
        status = made._bootstrap(parent_sentinel=sentinel)
        return (raised[0] if raised else None), status


def _shared_files(but: Collection[int] = ()) -> Iterator[str]:
    """Yield the pipes, sockets and the like that a forked process inherits, but for some descriptors."""
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            leads = os.readlink(f"/proc/self/fd/{each}")
            if int(each) not in but and leads.startswith(_CHANNELS):
                yield leads


def _shared_memory() -> Iterator[str]:
    """Yield the mappings of this process that a forked process shares, and may write to."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if fields[1].endswith("s") and "w" in fields[1]:
            yield line


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


births: list[Births] = []
"""The processes to start, in a program that forks them."""


class ForkedProcess(spawning.Popen):
    """The handle of a process that ``multiprocessing`` has forked."""

    method = "fork"

    def _start(self, number: int, made: Any) -> int:
        del number
        return births[0].fork(made)


def be_parent(ranks: int, directory: str, own: str) -> None:
    """Have the processes that this one forks be the ranks; the arguments are those of `spawning.be_parent`."""
    spawning.take_over(popen_fork, ForkedProcess, ranks, directory, own)
