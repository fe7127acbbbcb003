"""Observe the steps of a program's training; the program needs no line of racecheck.

At each ``Optimizer.step``, before it changes anything, a rank tells digests of the batch that a ``DataLoader`` gave
last, of the optimizer's settings, parameters and state (of large ones after a save), and of the generators.  A resumed
job is compared with these (`racecheck.invariants.resuming`).  An observation draws no random number and makes no call
that the supervisor could order.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from racecheck.agent.contents.weight_digests import digest_of_own, digest_of_parts, own_parts
from racecheck.model.training_parts import BATCH, PARAMETERS, RANDOM, SETTING, STATE

_CLOSE, _SMALL = 1, 1 << 16
"""By which step after the start, and after a save, large parameters are looked at; smaller ones are at each step.

A job resumes at a save, so the first step after it shows most of the lost parts; digests at all steps would slow the
training down.
"""
_LONGEST = 40
"""A setting that is longer, as text, is told by its digest."""

Send = Callable[[dict[str, Any]], None]


class _StepObserver:
    """Tells the steps of this process; ``saves`` says how many saves it has begun."""

    def __init__(self, saves: Callable[[], int], send: Send) -> None:
        self._saves, self._send = saves, send
        self.process = os.getpid()
        self._batch = ""
        self._begun, self._since = 0, 0

    def take(self, batch: Any) -> None:
        """Note the batch that a loader returns; those of an evaluation are fetched without gradients."""
        if os.getpid() == self.process and sys.modules["torch"].is_grad_enabled():
            self._batch = digest_of_own(batch)

    def step(self, optimizer: Any, *_: object) -> None:
        """Tell of a step that is about to be taken (a hook of torch's)."""
        if os.getpid() != self.process or _does_nothing(optimizer):
            return
        saves = self._saves()
        self._since = self._since + 1 if saves == self._begun else 1
        self._begun = saves
        parts = {**_settings(optimizer), **dict(_generators())}
        if self._since <= _CLOSE or _size(optimizer) <= _SMALL:
            parts |= _tensors(optimizer)
        if self._batch:
            parts[BATCH] = self._batch
        self._send({"saves": saves, "parts": parts})


_observers: list[_StepObserver] = []


def be_rank() -> None:
    """Go on observing in this process, which was forked to be a rank."""
    for each in _observers:
        each.process = os.getpid()


def observe(saves: Callable[[], int], send: Send) -> None:
    """Observe the steps of this process; ``send`` takes the fields of a `TrainingStep` but its rank."""
    training = _StepObserver(saves, send)
    _observers.append(training)
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_pre_hook(training.step)
    loader: Any = vars(importlib.import_module("torch.utils.data.dataloader"))["_BaseDataLoaderIter"]
    loader.__next__ = _taking(loader.__next__, training.take)


def _taking(original: Callable[[Any], Any], take: Callable[[Any], None]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def next_(iterator: Any) -> Any:
        batch = original(iterator)
        take(batch)
        return batch

    return next_


def _does_nothing(optimizer: Any) -> bool:
    """Return whether a step only makes room for state that DCP's ``set_state_dict``, or a program, is about to load.

    No parameter has a gradient then, or all gradients and learning rates are zero.
    """
    gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    if any(float(group.get("lr", 1.0)) for group in optimizer.param_groups):
        return not gradients
    return not any(bool(own.any()) for each in gradients for _, own in own_parts(each))


def _settings(optimizer: Any) -> dict[str, str]:
    """Return the settings of an optimizer's groups as text."""
    parts: dict[str, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        where = f" of group {number}" if len(optimizer.param_groups) > 1 else ""
        for name, value in group.items():
            if name != "params" and (text := _shown(value)):
                parts[f"{SETTING}{name}{where}"] = text
    return parts


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _size(optimizer: Any) -> int:
    """Return how many numbers the parameters of an optimizer have."""
    return sum(int(each.numel()) for each in _parameters(optimizer))


def _tensors(optimizer: Any) -> dict[str, str]:
    """Return digests of an optimizer's parameters, and of each kind of its state."""
    states: dict[str, list[Any]] = {}
    for parameter in (parameters := _parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            states.setdefault(str(name), []).append(value)
    kinds = {f"{STATE}{name}": digest_of_parts(*values) for name, values in states.items()}
    return {PARAMETERS: digest_of_parts(*parameters), **kinds}


def _shown(value: Any) -> str:
    """Return a number, a text, or a tuple of such, as text; "" for other settings."""
    if callable(getattr(value, "item", None)) and value.numel() == 1:
        value = value.item()
    each = value if isinstance(value, (tuple, list)) else (value,)
    if not all(one is None or isinstance(one, (bool, int, float, str)) for one in each):
        return ""
    text = repr(value)
    return text if len(text) <= _LONGEST else digest_of_parts(text.encode())


def _generators() -> Iterator[tuple[str, str]]:
    """Yield digests of the states of the generators that programs share."""
    torch = sys.modules["torch"]
    yield f"{RANDOM}torch", digest_of_parts(torch.get_rng_state())
    yield f"{RANDOM}Python", digest_of_parts(repr(random.getstate()).encode())
    if "numpy.random" in sys.modules:
        name, keys, *rest = sys.modules["numpy.random"].get_state()
        yield f"{RANDOM}numpy", digest_of_parts(repr((name, keys.tobytes(), rest)).encode())
