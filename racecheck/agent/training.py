"""Observe the steps of a program's training; the program needs no line of racecheck.

At each ``Optimizer.step``, before it changes anything, a rank tells digests of the batch that a ``DataLoader`` gave
last, of the optimizer's settings, parameters and state, and of the generators of random numbers.  A resumed job is
compared with these (`racecheck.invariants.resuming`).  An observation draws no random number and makes no call that
the supervisor could order.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from racecheck.agent.contents.weight_digests import digest_of_parts, own_digests, own_parts
from racecheck.model.training_parts import BATCH, PARAMETERS, RANDOM, SETTING, STATE

_LONGEST = 40
"""A setting that is longer, as text, is told by its digest."""

Send = Callable[[dict[str, Any]], None]


class _Training:
    """Tells the steps of this process; ``saves`` says how many saves it has begun."""

    def __init__(self, saves: Callable[[], int], send: Send) -> None:
        self._saves, self._send = saves, send
        self._process = os.getpid()
        self._batch = ""

    def take(self, batch: Any) -> None:
        """Note the batch that a loader returns; those of an evaluation are fetched without gradients."""
        if os.getpid() == self._process and sys.modules["torch"].is_grad_enabled():
            found = own_digests(batch)
            self._batch = digest_of_parts(json.dumps(found, sort_keys=True).encode()) if found else ""

    def step(self, optimizer: Any, *_: object) -> None:
        """Tell of a step that is about to be taken (a hook of torch's)."""
        if os.getpid() != self._process or _does_nothing(optimizer):
            return
        parts = {**_of_optimizer(optimizer), **dict(_generators())}
        if self._batch:
            parts[BATCH] = self._batch
        self._send({"saves": self._saves(), "parts": parts})


def observe(saves: Callable[[], int], send: Send) -> None:
    """Observe the steps of this process; ``send`` takes the fields of a `racecheck.model.nouns.Step` but its rank."""
    training = _Training(saves, send)
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
    """Return whether a step only makes room for state that is about to be loaded, as that of DCP's ``set_state_dict``.

    No parameter has a gradient then, or all gradients and learning rates are zero.
    """
    gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    if any(float(group.get("lr", 1.0)) for group in optimizer.param_groups):
        return not gradients
    return not any(bool(own.any()) for each in gradients for _, own in own_parts(each))


def _of_optimizer(optimizer: Any) -> Mapping[str, str]:
    """Return the settings of an optimizer's groups as text, and digests of its parameters and of each kind of state."""
    parts: dict[str, str] = {}
    states: dict[str, list[Any]] = {}
    parameters: list[Any] = []
    for number, group in enumerate(optimizer.param_groups):
        where = f" of group {number}" if len(optimizer.param_groups) > 1 else ""
        for name, value in group.items():
            if name != "params" and (text := _shown(value)):
                parts[f"{SETTING}{name}{where}"] = text
        for parameter in group["params"]:
            parameters.append(parameter)
            for name, value in optimizer.state.get(parameter, {}).items():
                states.setdefault(str(name), []).append(value)
    parts[PARAMETERS] = digest_of_parts(*parameters)
    return {**parts, **{f"{STATE}{name}": digest_of_parts(*values) for name, values in states.items()}}


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
