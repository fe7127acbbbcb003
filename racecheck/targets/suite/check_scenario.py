"""A checkpointer and a check make a scenario."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from racecheck.model.errors import UsageError
from racecheck.model.nouns import Size, Verdict, World
from racecheck.targets.scenarios import Rank, Scenario, make_world
from racecheck.targets.suite import protocol
from racecheck.targets.suite.checks import CHECKS, TRAINING_TRIAL, TRIAL, Check
from racecheck.targets.suite.driver import Driver, TrainingDriver


def scenario(kind: type, name: str) -> Scenario:
    """Return the check ``name`` of a checkpointer, as a scenario that is called ``Class[check]``.

    Raises `UsageError` if it is no checkpointer, there is no such check, or it lacks the method that the check needs.
    """
    protocol.check(kind, kind.__name__ if isinstance(kind, type) else repr(kind))
    _check_names(kind)
    is_training = protocol.is_training(kind)
    trial, driver = (TRAINING_TRIAL, TrainingDriver) if is_training else (TRIAL, Driver)
    check = trial if name == TRIAL.name else CHECKS.get(name)
    if check is None:
        raise UsageError(f"there is no check {name!r}; there are: {', '.join(CHECKS)}")
    if check.of_training != is_training:
        raise UsageError(f"check {name} is for a {'training' if check.of_training else 'checkpointer'}")
    if check.needs and not callable(getattr(kind, check.needs, None)):
        raise UsageError(f"{kind.__name__} has no {check.needs}, which check {name} needs")

    def run(rank: Rank) -> None:
        check.run(driver(rank, kind))

    def recover(rank: Rank) -> int:
        return check.recover(driver(rank, kind, job=1))

    base = World(sizes=(Size("steps", check.steps),), timeout=protocol.timeout_of(kind))
    made = Scenario(
        run, world=make_world(base, **check.world), invariants=check.invariants,
        report="", expected=Verdict.PASS, breaks="",
    )  # fmt: skip
    made.recover(recover, **_recovering(kind, check))
    made.name, made.module = f"{kind.__name__}[{name}]", kind.__module__
    made.file, made.__doc__ = Path(sys.modules[kind.__module__].__file__ or "").resolve(), check.about
    return made


def applicable(kind: type) -> dict[str, Check]:
    """Return the checks that a checkpointer has the methods for.

    Raises `UsageError` if its ``not_for`` names a check that does not exist.
    """
    _check_names(kind)
    mine = {name: each for name, each in CHECKS.items() if each.of_training == protocol.is_training(kind)}
    return {name: each for name, each in mine.items() if not each.needs or callable(getattr(kind, each.needs, None))}


def _check_names(kind: type) -> None:
    known = {*CHECKS, *(each.storage for each in CHECKS.values())}
    for each in protocol.not_for(kind).keys() - known:
        raise UsageError(f"{kind.__name__}.not_for names {each!r}; known: {', '.join(sorted(known))}")


def reason_against(kind: type, check: Check) -> str:
    """Return why the findings of a check do not count for a checkpointer; "" if it does."""
    reasons: Mapping[str, str] = protocol.not_for(kind)
    return reasons.get(check.name) or reasons.get(check.storage) or ""


def _recovering(kind: type, check: Check) -> dict[str, int | None]:
    if check.recovering < 0:
        return {"ranks": None, "nodes": None}
    if check.recovering == 1 and {"shrink", "grow"} & protocol.not_for(kind).keys():
        return {"ranks": None, "nodes": None}
    return {"ranks": check.recovering, "nodes": 1}
