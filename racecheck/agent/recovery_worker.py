"""Runs inside a loader, a process that puts crash states on the disk and runs the scenario's recovery on them.

It is forked from the zygote like a rank, and is the only rank of a world that is not controlled.  It continues from one
state to the next as long as the recovery leaves it as it was: a fork for each would take longer than most loads.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from racecheck.agent import ending, life
from racecheck.agent.disk_writer import Placed
from racecheck.agent.job import Job, listen_for_stacks, send
from racecheck.kernel import namespace
from racecheck.kernel.trees import wipe
from racecheck.targets.scenarios import Scenario

_SECOND = 10**9

ENOUGH = 75
"""A loader's exit status when the next load might find another state of the process than the last one did."""


def run(load: Callable[[], Scenario], job: Job, channel: socket.socket, connect: Callable[[Job, int], None]) -> int:
    """Run a loader; returns its exit status.

    1. see a directory of its own in place of the watched one; 2. settle and bring the process group up, as a rank does;
    3. say hello; 4. for each line that comes, a list of `Item`: place them, read the contents if asked, let the
    recovery run, and report its result.  Ends when no request comes any more, or when the next load might not find
    everything as this one did.
    """
    own = Path(job.loads)
    (own / "disk").mkdir(parents=True)
    moved = namespace.stand_in(own / "disk", Path(job.watched), job.kept)
    life.settle(job, 0)
    scratch = own / "tmp"
    scratch.mkdir()
    os.environ["TMPDIR"] = str(scratch)
    pipe = listen_for_stacks()
    connect(job, 0)
    hello = {"pid": os.getpid(), "moved": moved}
    itself = os.pidfd_open(os.getpid())  # its number would be useless once it has ended
    socket.send_fds(channel, [json.dumps(hello).encode() + b"\n"], [pipe, itself])
    os.close(itself)
    if job.program:
        load = life.with_program(load(), job)
        life.observe(job, lambda said: send(channel, {"weights": said}))
    disk = Placed(Path(job.watched), Path(job.spool), time.time_ns() - _SECOND, frozenset(job.kept))
    reset, before = _generators(), _surroundings()
    with channel.makefile("rb") as requests:
        for line in requests:
            try:
                disk.place(json.loads(line))
            except OSError as error:
                send(channel, {"problem": f"cannot write a crash state: {error.strerror}"})
                return 1
            send(channel, _load(load, job, channel))
            reset()
            if _surroundings() != before:
                return ENOUGH
            for each in os.scandir(scratch):
                wipe(Path(each.path))
    return 0


def _load(load: Callable[[], Scenario], job: Job, channel: socket.socket) -> dict[str, Any]:
    reading = importlib.import_module("racecheck.agent.contents.reading")
    contents = reading.read(job.watched, job.kept) if job.reading else {}
    before = len(sys.modules)
    result, _ = life.result_of(load, job.rank(0, channel), job, channel)
    fresh = ending.newest_modules(len(sys.modules) - before)
    answer = {"type_name": type(result).__name__, **asdict(result)}
    return {"result": answer, "contents": contents, "modules": sorted(fresh)}


def _generators() -> Callable[[], None]:
    """Return a function that sets the random generators back to their present state."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy.random")
    ours, its = random.getstate(), torch.get_rng_state()
    others = numpy.get_state() if numpy else None

    def reset() -> None:
        random.setstate(ours)
        torch.set_rng_state(its)
        if numpy is not None:
            numpy.set_state(others)

    return reset


def _surroundings() -> tuple[object, ...]:
    """Return the parts of its process that a recovery may change, and a later one would notice."""
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    group = sys.modules["torch.distributed"].is_initialized()
    return os.getcwd(), dict(os.environ), list(sys.path), handlers, group, threading.active_count(), _has_children()


def _has_children() -> bool:
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False
