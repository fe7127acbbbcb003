"""The job of a world's ranks, as the session gives it to them."""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from racecheck.agent.hypercalling import hypercall, stack
from racecheck.model.hypercalls import (
    Declare,
)
from racecheck.targets.scenarios import Rank

STACK_SIGNAL = 62
"""Asks a stopped thread for its Python stack: faulthandler writes it, no Python code runs.  It is the third real-time
signal from the end; by its number, since `signal` names none elsewhere than on Linux, where `doctor` has to run too.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a world's ranks.

    ``watched`` is the scenario's directory, ``kept`` are its entries that are not watched; ``scratch`` holds a TMPDIR
    for each node, ``output`` the prints of each.
    ``controlled`` is False in free mode, in which calls that a fault may be about are ``filtered`` all the same.
    ``ahead`` is how many nanoseconds each rank's clock is ahead, ``sizes`` are the world's by name.  ``recovering``:
    they run the scenario's recovery, ``restarted``: as the launcher starts them again.  ``loads`` is the directory of a
    loader (`racecheck.agent.recovery_worker`), whose bytes are in the file ``spool``; if it is ``reading`` it reports
    the contents of the files, too.  ``early``: a rank whose part of a collective needs nothing of its peers
    continues at once. ``spread``: ranks compute enough that they are faster on different processors.  ``program``: they
    run a program; if it ``spawns``, the last one starts the others, and belongs to no process group; it may be that it
    ``forks`` them.  ``note`` is the remark of the report about its launch.
    """

    target: str
    ranks: int
    nodes: int
    seed: str
    watched: str
    scratch: str
    output: str
    controlled: bool
    backend: str = "gloo"
    filtered: bool = False
    ahead: Sequence[int] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    recovering: bool = False
    restarted: bool = False
    loads: str = ""
    spool: str = ""
    reading: bool = False
    early: bool = False
    spread: bool = False
    program: bool = False
    spawns: bool = False
    forks: bool = False
    note: str = ""
    kept: Sequence[str] = ()

    @property
    def group(self) -> int:
        """Return how many ranks the process group has."""
        return self.ranks - self.spawns

    def rank(self, number: int, channel: socket.socket) -> Rank:
        """Return the scenario's argument."""
        node, local = divmod(number, self.ranks // self.nodes)
        tell, sizes = functools.partial(_tell, self, channel), MappingProxyType(_Sizes(self.sizes, channel))
        return Rank(number, self.ranks, Path(self.watched), node, local, sizes, tell)


class _Sizes(dict[str, int]):
    """Sizes by name; to ask for an unknown one is wrong usage, not the target's bug."""

    def __init__(self, sizes: Mapping[str, int], channel: socket.socket) -> None:
        super().__init__(sizes)
        self._channel = channel

    def __missing__(self, name: str) -> int:
        known = ", ".join(self) or "none"
        send(self._channel, {"usage": f"the scenario reads size {name!r}, but its world has: {known}"})
        raise KeyError(name)


SHOWN = "RACECHECK_CUDA_VISIBLE_DEVICES"
"""CUDA_VISIBLE_DEVICES as the session's own process has it; the zygote and most ranks see no GPU."""


def show_gpus() -> None:
    """Make the GPUs of the session's own process visible to this process, before it asks CUDA."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if SHOWN in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[SHOWN]


def listen_for_stacks() -> int:
    """Have this process write the stack of a thread that gets `STACK_SIGNAL` to a pipe; returns the other end."""
    reading, writing = os.pipe()
    faulthandler.register(STACK_SIGNAL, file=writing, all_threads=False, chain=False)
    return reading


def _tell(job: Job, channel: socket.socket, kind: str, state: Any, step: int, at: str | Path) -> None:
    """Report which weights were saved or loaded, or that a save has returned.

    Where the world is controlled, the events before are known.
    """
    weights = importlib.import_module("racecheck.agent.contents.weight_digests")
    digests = weights.all_digests if kind == "trained" else weights.digests
    where = os.path.relpath(at, job.watched) if at else ""
    said = {"kind": kind, "step": step, "checkpoint": where, "tensors": digests(state)}
    if job.controlled:
        hypercall(Declare(said, stack=stack()))
    else:
        send(channel, {"weights": said})


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send a line of JSON data."""
    channel.sendall(json.dumps(message).encode() + b"\n")
