"""The methods of a checkpointer, and of a training.

A checkpointer is any class with these three methods; it need not derive from anything.  It is made without arguments,
by every rank, when the process group is up, and then called by all ranks alike:

1. ``Checkpointer()``, at the start of a job, and again after each restart;
2. ``latest(root)``: is there something to resume from?
3. ``load(root, state)``, if there is;
4. ``save(state, root, step)``, with steps that grow; when it has returned on all ranks, the job counts on that step;
5. where there is one, ``save_async(state, root, step)`` instead: training then changes the tensors of ``state``
   in place, and the job counts on the step when the handle's ``result()`` has returned on all ranks.

Nothing of racecheck's waits for the other ranks in between, as a training loop has no barriers of its own either.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from racecheck.model.errors import UsageError
from racecheck.model.nouns import World

State = dict[str, Any]
"""``{"model": {name: tensor}, "optimizer": {name: {"exp_avg": tensor, "exp_avg_sq": tensor, "step": tensor}}}``.

A checkpointer whose ``layout`` is "replicated" (the default) gets whole tensors, the same on all ranks, as data
parallel training has them.  With "sharded" they are DTensors, each rank having its part of the first dimension, as with
FSDP2; scalars stay whole.  ``parts = ("model",)`` leaves the optimizer out.
"""


@runtime_checkable
class Handle(Protocol):
    """A save that is under way; a ``concurrent.futures.Future`` is one."""

    def result(self) -> Any:
        """Wait until it is done; raises the error of the save."""


class Checkpointer(Protocol):
    """The methods that a checkpointer must have; the module says which rank calls them, and when."""

    def save(self, state: State, root: Path, step: int) -> None:
        """Save the state below the directory ``root``, which exists; every rank calls it."""

    def load(self, root: Path, state: State) -> tuple[State, int]:
        """Return the newest checkpoint below ``root`` and its step; every rank calls it.

        ``state`` has the names, shapes and placement that are wanted, and other values: it may be filled in place and
        given back, or left alone.
        """

    def latest(self, root: Path) -> int | None:
        """Return the step that ``load`` would load, None if there is none."""


class Training(Protocol):
    """A whole training job, of which the gate checks that it goes on after an interruption as if there had been none.

    Like a checkpointer it is a class of its own that every rank makes without arguments, when the process group is up,
    at the start of a job and again after each restart.  All ranks call its four methods alike.
    """

    def step(self) -> None:
        """Take the next training step."""

    def save(self, root: Path, step: int) -> None:
        """Save below the directory ``root`` what a restart needs, after ``step`` steps."""

    def load(self, root: Path) -> int:
        """Load the newest checkpoint below ``root``; returns how many steps it has behind it, 0 if there is none."""

    def state(self) -> Any:
        """Return all on which further steps depend, in dicts and lists: tensors, arrays, bytes, numbers and texts.

        Among these are the weights, the optimizer, the scheduler, the random generators and the place in the data.
        """


REQUIRED = ("save", "load", "latest")
OF_TRAINING = ("step", "save", "load", "state")
LAYOUTS = ("replicated", "sharded")
PARTS = ("model", "optimizer")
_CALLED_WITH = {
    "save": ("state", "root", "step"), "load": ("root", "state"), "latest": ("root",),
    "save_async": ("state", "root", "step"),
}  # fmt: skip
_TRAINING_CALLED_WITH = {"step": (), "save": ("root", "step"), "load": ("root",), "state": ()}


def is_training(kind: type) -> bool:
    """Return whether a class is meant as a `Training`: it takes steps, and nobody asks it for its ``latest`` one."""
    return callable(getattr(kind, "step", None)) and not callable(getattr(kind, "latest", None))


def layout_of(kind: type) -> str:
    """Return how the tensors of its states are placed: one of `LAYOUTS`."""
    return str(getattr(kind, "layout", "replicated"))


def parts_of(kind: type) -> tuple[str, ...]:
    """Return the parts of a state that it is given: some of `PARTS`."""
    return tuple(getattr(kind, "parts", PARTS))


def not_for(kind: type) -> Mapping[str, str]:
    """Return the promises that a checkpointer does not make: the name of a check or storage, and the documented reason.

    That is the class's attribute ``not_for``.  Such checks are run all the same, to show the effect of the misuse, but
    do not count.
    """
    return dict(getattr(kind, "not_for", {}))


def requires(kind: type) -> tuple[str, ...]:
    """Return the packages that it needs, as their import names: the class's attribute ``requires``."""
    return tuple(getattr(kind, "requires", ()))


def timeout_of(kind: type) -> float:
    """Return how many seconds it may take to reach its next op: the class's attribute ``timeout``, 30 by default."""
    return float(getattr(kind, "timeout", World().timeout))


def check(kind: Any, name: str) -> None:
    """Raise `UsageError`, with the remedy in one line, for a class that is no checkpointer."""
    if not isinstance(kind, type):
        raise UsageError(f"{name} is not a class: name one with the methods {', '.join(REQUIRED)}")
    _check_methods(kind, name)
    if layout_of(kind) not in LAYOUTS:
        raise UsageError(f"{name}.layout must be {' or '.join(LAYOUTS)}, not {layout_of(kind)!r}")
    if not parts_of(kind) or not set(parts_of(kind)) <= set(PARTS):
        raise UsageError(f"{name}.parts may contain {' and '.join(PARTS)}, not {parts_of(kind)!r}")
    timeout, reasons, packages = (getattr(kind, each, None) for each in ("timeout", "not_for", "requires"))
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise UsageError(f"{name}.timeout must be a number of seconds, not {timeout!r}")
    if reasons is not None and not isinstance(reasons, Mapping):
        raise UsageError(f"{name}.not_for must map names of checks or storages to reasons, not {reasons!r}")
    if isinstance(packages, str):
        raise UsageError(f"{name}.requires must be a tuple, not {packages!r}: write ({packages!r},)")


def _check_methods(kind: type, name: str) -> None:
    required, signatures = (OF_TRAINING, _OF_TRAINING) if is_training(kind) else (REQUIRED, _OF_CHECKPOINTER)
    missing = [each for each in required if not callable(getattr(kind, each, None))]
    if missing:
        raise UsageError(f"{name} has no method {' and no method '.join(missing)}: {signatures}")
    if not _needs_nothing(kind):
        raise UsageError(
            f"{name} needs arguments, but every rank creates it without any: derive a class that passes them"
        )
    for method, given in (_TRAINING_CALLED_WITH if is_training(kind) else _CALLED_WITH).items():
        if not _takes(kind, method, given):
            raise UsageError(f"{name}.{method} cannot be called as {method}({', '.join(given)})")


def _needs_nothing(kind: type) -> bool:
    """Return whether a class can be called without arguments, as far as its signature is known."""
    made = inspect.getattr_static(kind, "__init__", None)
    if not inspect.isfunction(made):
        return True
    try:
        inspect.signature(made).bind(None)
    except TypeError:
        return False
    return True


def _takes(kind: type, method: str, given: tuple[str, ...]) -> bool:
    """Return whether a method, if there is one, accepts that number of arguments, as far as its signature is known."""
    found = inspect.getattr_static(kind, method, None)
    function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    if not inspect.isfunction(function):
        return True
    first = () if isinstance(found, staticmethod) else ("self",)
    try:
        inspect.signature(function).bind(*first, *given)
    except TypeError:
        return False
    return True


_OF_CHECKPOINTER = (
    "a checkpointer has save(state, root, step), load(root, state) -> (state, step) and latest(root) -> step or None"
)
_OF_TRAINING = "a training has step(), save(root, step), load(root) -> step and state()"
