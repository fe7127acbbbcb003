"""Observe the saves and loads of a program in the watched directory; the program needs no line of racecheck.

Observed are ``torch.save`` and ``torch.load``, the checkpoints of ``torch.distributed.checkpoint``, and the files of
safetensors.  The functions are replaced once, in the zygote; in a rank that does not `observe` they do what they did.
An observation makes no call that the supervisor could order: it takes digests of tensors in memory, of sharded tensors
of the rank's own part, and tells the supervisor.

Saves are counted by series: those of the same tensors to paths that are equal but for numbers and random parts.  A save
counts as acknowledged when it has returned and the rank begins the next one of the series (until then other files may
be added to a checkpoint, and it may be renamed), when the script ends, or when it says so (`racecheck.acked`).

If other threads of the rank have changed a state by the time its save returns, it tells that, too.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from racecheck.agent.contents import weight_digests
from racecheck.agent.training import Send
from racecheck.targets import programs

_RANDOM = re.compile(r"tmp[a-z0-9_]{8}|[0-9a-f]{8}[0-9a-f-]*|\d+")
_PLACES: Mapping[str, Mapping[str, tuple[bool, str, str]]] = {
    "torch.serialization": {"save": (True, "obj", "f"), "load": (False, "", "f")},
    "torch.distributed.checkpoint.state_dict_saver": {"_save_state_dict": (True, "state_dict", "storage_writer")},
    "torch.distributed.checkpoint.state_dict_loader": {"_load_state_dict": (False, "state_dict", "storage_reader")},
    "safetensors.torch": {"save_file": (True, "tensors", "filename"), "load_file": (False, "", "filename")},
}
"""By module the functions to observe: whether one saves, and the names of its arguments for the state and the path.

A function that loads returns the state where it has no argument for it.
"""

_observer: list[_Observer] = []


class _Observer:
    """Tells of the saves and loads of this rank below ``watched``, but for its entries ``kept``."""

    def __init__(self, watched: str, kept: Collection[str], send: Send) -> None:
        self._watched, self._kept, self._send = f"{watched}/", frozenset(kept), send
        self._count: Counter[str] = Counter()
        self._kinds: dict[str, list[frozenset[str]]] = {}
        self._returned: dict[str, tuple[str, str, int]] = {}
        self._inside: list[str] = []
        self.process = os.getpid()

    @property
    def saves(self) -> int:
        """How many saves have begun."""
        return self._count.total()

    def save(self, state: Any, path: Any, original: Callable[[], Any]) -> Any:
        checkpoint = self._below(path)
        if checkpoint is None or self._is_part(checkpoint):
            return original()
        series = self._series(checkpoint, state)
        self._acknowledge(series)
        self._count[series] += 1
        which = checkpoint, series, self._count[series]
        before = self._say("saved", *which, state)
        result = self._inner(checkpoint, original)
        if threading.active_count() > 1 and weight_digests.own_digests(state) != before:
            self._say("changed", *which, state)
        self._returned[series] = which
        return result

    def load(self, state: Any, path: Any, original: Callable[[], Any], planner: Any = None) -> Any:
        checkpoint = self._below(path)
        if checkpoint is None or self._is_part(checkpoint):
            return original()
        result = self._inner(checkpoint, original)
        known = _asked_for(planner)
        self._say("loaded", checkpoint, _RANDOM.sub("#", checkpoint), -1, result if state is None else state, known)
        return result

    def _series(self, checkpoint: str, state: Any) -> str:
        """Return the series of a save: paths with the same tensors.  Others have a number: parts of one checkpoint."""
        path, names = _RANDOM.sub("#", checkpoint), weight_digests.names_of_tensors(state)
        kinds = self._kinds.setdefault(path, [])
        if names not in kinds:
            kinds.append(names)
        number = kinds.index(names) + 1
        return path if number == 1 else f"{path} ({number})"

    def acknowledge(self) -> None:
        """Declare that the job counts on its saves so far."""
        if os.getpid() != self.process:
            return
        for series in [*self._returned]:
            self._acknowledge(series)

    def _acknowledge(self, series: str) -> None:
        which = self._returned.pop(series, None)
        if which is not None:
            self._say("acked", *which, {})

    def _inner(self, checkpoint: str, original: Callable[[], Any]) -> Any:
        self._inside.append(checkpoint)
        try:
            return original()
        finally:
            self._inside.remove(checkpoint)

    def _is_part(self, path: str) -> bool:
        """Return whether a file belongs to a checkpoint that is just being saved or loaded: that one counts."""
        return any(each in {".", path} or path.startswith(f"{each}/") for each in self._inside)

    def _say(
        self, kind: str, checkpoint: str, series: str, step: int, state: Any, known: Collection[str] | None = None
    ) -> dict[str, str]:
        """Tell of a state, or its ``known`` part, by its names; returns its digests."""
        tensors = weight_digests.own_digests(state)
        if known is not None:
            tensors = {name: each for name, each in tensors.items() if name.partition(weight_digests.PART)[0] in known}
        self._send({"kind": kind, "step": step, "checkpoint": checkpoint, "series": series, "tensors": tensors})
        return tensors

    def _below(self, path: Any) -> str | None:
        """Return a path relative to the watched directory; None for a path elsewhere, and for no path.

        A process that the rank has started counts for nothing: its saves are not this one's.
        """
        for name in ("path", "name"):  # of a reader or writer of DCP, of an open file
            path = getattr(path, name, path) if not isinstance(path, (str, bytes, os.PathLike)) else path
        if not isinstance(path, (str, bytes, os.PathLike)) or os.getpid() != self.process:
            return None
        text = os.fsdecode(path)
        whole = os.path.normpath(text if text.startswith("/") else os.path.join(os.getcwd(), text))
        if f"{whole}/" == self._watched:
            return "."
        below = whole.removeprefix(self._watched)
        return None if below == whole or below.partition("/")[0] in self._kept else below


def _asked_for(planner: Any) -> Collection[str] | None:
    """Return the names in a checkpoint of DCP if it may be loaded in part; None if it must be loaded whole."""
    if not getattr(planner, "allow_partial_load", False):
        return None
    return frozenset(getattr(getattr(planner, "metadata", None), "state_dict_metadata", ()))


def observe(watched: str, kept: Collection[str], send: Send) -> None:
    """Observe the saves and loads of this process below a directory; ``send`` takes the fields of a `Weights`."""
    _observer.append(_Observer(watched, kept, send))
    programs.acknowledging.append(_observer[0].acknowledge)


def be_rank() -> None:
    """Go on observing in this process, which was forked to be a rank."""
    for each in _observer:
        each.process = os.getpid()


def saves() -> int:
    """Return how many saves of this process have begun."""
    return _observer[0].saves


def install() -> None:
    """Replace the functions, wherever modules have them by now."""
    replaced = {}
    for name, functions in _PLACES.items():
        module = sys.modules.get(name)
        for function, how in functions.items():
            original = getattr(module, function, None)
            if original is not None and not hasattr(original, "racecheck_observes"):
                replaced[id(original)] = original, _observing(original, *how)
    for module in [*sys.modules.values()] if replaced else []:
        for attribute, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in replaced:
                setattr(module, attribute, replaced[id(value)][1])


def _observing(original: Callable[..., Any], saves: bool, state: str, path: str) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        carry_out = functools.partial(original, *arguments, **named)
        if not _observer:
            return carry_out()
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError:
            return carry_out()
        if saves:
            return _observer[0].save(given.get(state), given.get(path), carry_out)
        return _observer[0].load(given.get(state), given.get(path), carry_out, given.get("planner"))

    vars(call)["racecheck_observes"] = True
    return call
