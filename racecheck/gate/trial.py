"""A plain run before all checks, to see whether this checkpointer can be judged at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from racecheck.model.nouns import Frame, Outcome, Raised, RankResult, Stopped
from racecheck.targets.suite import driver, protocol

_USAGE = "racecheck.model.errors.UsageError"
_MISSING = {"ModuleNotFoundError", "ImportError"}
_DEVICE = re.compile(r"\b(CUDA|NVIDIA|GPUs?|XPU|HPU|accelerator)\b", re.IGNORECASE)
"""Words of errors about a device that does not exist."""


def cell_of(kind: type) -> str:
    """Return the check whose cell says why a class cannot be judged."""
    return "resume" if protocol.is_training(kind) else "save"


def base_of(kind: type) -> str:
    """Return the check whose run without faults the trial is: others share it."""
    return "resume" if protocol.is_training(kind) else "kill"


def misuse(outcome: Outcome) -> str:
    """Return why a checkpointer cannot be judged here, in one line; "" if it can.

    A call that is not in the protocol is wrong input, not a bug.  Any other failure may be a bug, and is left to the
    checks.
    """
    return next((each.message for each in _raised(outcome) if each.type == _USAGE), "")


def reason(outcome: Outcome) -> str:
    """Why it cannot be judged here, in one line; "" if it can.

    Another failure may be a bug, and is left to the checks.
    """
    for each in _raised(outcome):
        said = f"{each.type}: {' '.join(each.message.split())}"
        if _DEVICE.search(each.message):
            return f"needs a device that this machine lacks: {said}"
        if each.type in _MISSING:
            return f"needs a package that is not installed: {said}"
        if any(_is_construction(frame) for frame in each.stack):
            return f"its constructor raises {said}{_at(each.stack)}"
    for stopped in _results(outcome):
        if isinstance(stopped, Stopped) and stopped.kind == "running":
            return f"hangs: {stopped.why}{_at(stopped.stack)}"
    return ""


def by_itself(name: str, outcome: Outcome, alone: Outcome) -> str:
    """Return how it fails without any race: in the same place with one rank ``alone``; "" if it does not."""
    if _finds_nothing(outcome) and _finds_nothing(alone):
        return f"{name} saves nothing that it finds again: save returned on all ranks, then latest returned None"
    if not (any(_raised(outcome)) and any(_raised(alone))):
        return ""
    one, other = next(_raised(outcome)), next(_raised(alone))
    if (one.type, _at(one.stack)) != (other.type, _at(other.stack)):
        return ""
    said = f"{one.type}: {' '.join(one.message.split())}"
    return f"{name} fails by itself, with one rank too, and no fault: {said}{_at(one.stack)}"


def _finds_nothing(outcome: Outcome) -> bool:
    """Return whether all ranks have saved and the recovery has loaded nothing."""
    recovery = outcome.recovery
    if recovery is None or any(_raised(outcome)):
        return False
    is_saved = any(each.kind == "acked" for each in outcome.weights)
    return is_saved and not any(each.kind == "loaded" for each in recovery.weights)


def _results(outcome: Outcome) -> Iterator[RankResult]:
    """Return the failures of the run, and then of its recovery."""
    yield from outcome.results
    if outcome.recovery is not None:
        yield from _results(outcome.recovery)


def _raised(outcome: Outcome) -> Iterator[Raised]:
    return (each for each in _results(outcome) if isinstance(each, Raised))


def _is_construction(frame: Frame) -> bool:
    return frame.file == driver.__file__ and frame.function == "__init__"


def _at(stack: tuple[Frame, ...]) -> str:
    """Return where the checkpointer was, if known; its own calls are not shown."""
    ours = [number for number, frame in enumerate(stack) if frame.file == driver.__file__]
    if ours and ours[0] == 0:
        return ""
    own = stack[ours[0] - 1] if ours else next(iter(stack), None)
    return f" ({own.file}:{own.line} {own.function})" if own is not None else ""
