"""Strategies answer points.  Each has a small file, and `protocol` defines them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from racecheck.faults import is_modelled
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Outcome, Point, World
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies.auto import Auto
from racecheck.scheduling.strategies.dpor import DPOR, DporProgress
from racecheck.scheduling.strategies.following.replay import Replay
from racecheck.scheduling.strategies.protocol import Diverged, Strategy
from racecheck.scheduling.strategies.sampling.pct import PCT
from racecheck.scheduling.strategies.sampling.portfolio import Portfolio
from racecheck.scheduling.strategies.sampling.pos import POS
from racecheck.scheduling.strategies.sampling.random_walk import RandomWalk
from racecheck.scheduling.strategies.sampling.round_robin import RoundRobin
from racecheck.scheduling.strategies.sampling.urw import URW
from racecheck.scheduling.strategies.staged import Staged
from racecheck.scheduling.strategies.sweep import Sweep

__all__ = [
    "DEFAULT", "DPOR", "NAMES", "PCT", "POS", "URW", "Auto", "Diverged", "Portfolio", "RandomWalk", "Replay",
    "RoundRobin", "Staged", "Strategy", "Sweep", "check_strategy", "make",
]  # fmt: skip


DEFAULT = "auto"
_DEPTH, _DEEPEST = 3, 9
_SAMPLED = "dpor does not cover nth=each, kill, term, slow or storage with client caches: schedules are sampled"
_PROVING: dict[str, Callable[[Relation, DporProgress | None], Strategy]] = {"auto": Auto, "dpor": Staged}
_BY_NAME: dict[str, Callable[[Relation], Strategy]] = {
    "portfolio": lambda relation: Portfolio(relation.footprint),
    "pct": lambda _: PCT(_DEPTH),
    "pos": lambda relation: POS(relation.footprint),
    "urw": lambda _: URW(),
    "random": lambda _: RandomWalk(),
    "round-robin": lambda _: RoundRobin(),
}
NAMES = (*_PROVING, *_BY_NAME)


def make(name: str, world: World, progress: DporProgress | None = None, swept: int | None = None) -> Strategy:
    """Return the strategy of this name for a world; a depth may follow PCT's: "pct:2".

    ``progress`` is an earlier search's, to continue.  Where there is more to choose than which op goes next, that is
    swept first (``swept``: no more than that many of it); and what proves something takes part only if the dependence
    relation knows all that the faults do: else the portfolio stands in, and the claim of ``dpor`` says so.  Raises
    `UsageError` for a strategy that does not exist, or that has no such progress.
    """
    relation = Relation(world)
    is_swept = any(not fault.nth for fault in world.faults) or relation.storage.has_views
    if name not in _PROVING or (not is_swept and all(map(is_modelled, world.faults))):
        made, remark = _make(name, relation, progress), ""
    elif progress is not None:
        raise UsageError(f"{_SAMPLED}, so there is nothing to resume")
    else:
        remark = _SAMPLED if name == "dpor" else ""
        made = Portfolio(relation.footprint, remark)
    return Sweep(made, remark, swept) if is_swept else made


def _make(name: str, relation: Relation, progress: DporProgress | None) -> Strategy:
    if name in _PROVING:
        return _PROVING[name](relation, progress)
    if progress is not None:
        raise UsageError(f"only {' and '.join(_PROVING)} can resume a search, not {name}")
    plain, colon, depth = name.partition(":")
    if plain not in _BY_NAME or (colon and plain != "pct"):
        raise UsageError(f"unknown strategy {name!r}; known: {', '.join(NAMES)}")
    if colon and not (depth.isdecimal() and 1 <= int(depth) <= _DEEPEST):
        raise UsageError(f"the depth of PCT must be 1 to {_DEEPEST}, as in pct:3, not {depth!r}")
    return PCT(int(depth)) if colon else _BY_NAME[plain](relation)


def check_strategy(make_strategy: Callable[[], Strategy], points: list[Point]) -> None:
    """Conformance: two fresh strategies with one seed choose the same at ``points``, and only existing options.

    Raises `AssertionError` with the first point at which that is not so.
    """
    runs = []
    for _ in range(2):
        strategy = make_strategy()
        assert strategy.begin(Random("conformance")), "begin() of a fresh strategy must be true"
        runs.append([strategy.choose(point) for point in points])
        strategy.end(Outcome(World(), (), (), ()))
    for point, first, second in zip(points, *runs, strict=True):
        assert 0 <= first < len(point.options), f"{first} is no option of {point}"
        assert first == second, f"two runs from one seed chose {first} and {second} at {point}"
