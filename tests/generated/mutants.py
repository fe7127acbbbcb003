"""Faulty engines: each brings back one cause of a false proof, and the generated programs have to find it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from racecheck.crash import changes, cuts
from racecheck.model.nouns import Op
from racecheck.model.ops.footprint import Footprint
from racecheck.scheduling import happens_before
from racecheck.scheduling.file_times import Timed
from racecheck.scheduling.happens_before import Order, Step
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR
from racecheck.storage import footprints
from racecheck.supervisor.state import collectives

Break = Callable[[pytest.MonkeyPatch], None]


def _hide(patch: pytest.MonkeyPatch, is_hidden: Callable[[Op], bool]) -> None:
    """Some ops are no steps any more."""
    visible, releases = Relation.visible, happens_before.releases
    patch.setattr(Relation, "visible", lambda self, op: not is_hidden(op) and visible(self, op))
    patch.setattr(happens_before, "releases", lambda op: not is_hidden(op) and releases(op))


def _forget(patch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Ops touch no locations of these kinds any more."""
    footprint = Relation.footprint

    def without(self: Relation, op: Op) -> Footprint:
        return {where: mode for where, mode in footprint(self, op).items() if where.kind not in kinds}

    patch.setattr(Relation, "footprint", without)


def locks_exclude(patch: pytest.MonkeyPatch) -> None:
    """A lock is taken to wait for whatever lock somebody else has on the file, of any kind, mode or range."""
    add, races = Order.add, Order._races

    def adding(self: Order, op: Op) -> Step:
        self.__dict__.setdefault("held", []).append(_holders(self))
        return add(self, op)

    def fewer(self: Order, op: Op, *rest: object) -> list[int]:
        found = races(self, op, *rest)  # type: ignore[arg-type]
        if op.call != "flock" or "LOCK_UN" in op.flags or {"LOCK_NB", "F_SETLK"} & set(op.flags):
            return found
        held = self.__dict__.get("held", [])
        inode = op.places[-1].inode
        return [each for each in found if held[each].get(inode, frozenset()) <= {op.rank}]

    patch.setattr(Order, "add", adding)
    patch.setattr(Order, "_races", fewer)


def _holders(order: Order) -> dict[int, frozenset[int]]:
    """By file the ranks that have a lock on it."""
    found: dict[int, frozenset[int]] = {}
    for op in (step.op for step in order.steps):
        for place in op.places if op.call in {"flock", "close", "exit"} else ():
            had = found.get(place.inode, frozenset())
            found[place.inode] = had - {op.rank} if "LOCK_UN" in op.flags else had | {op.rank}
    return found


def locks_at_exit(patch: pytest.MonkeyPatch) -> None:
    """A process gives its locks back at its end, and that is no step."""
    _hide(patch, lambda op: op.call == "exit" and "LOCK_UN" in op.flags)


def store(patch: pytest.MonkeyPatch) -> None:
    """Operations on the store touch nothing."""
    _forget(patch, "store")


def fault_counters(patch: pytest.MonkeyPatch) -> None:
    """Ops that a fault counts do not depend on each other."""
    _forget(patch, "fault")


def polls(patch: pytest.MonkeyPatch) -> None:
    """A question about another thread is answered at once, and so is one about a process."""
    _hide(patch, lambda op: op.call in {"poll", "reap", "end"})


def memory(patch: pytest.MonkeyPatch) -> None:
    """The threads of a rank share nothing but files."""
    _forget(patch, "memory")


def end_of_process(patch: pytest.MonkeyPatch) -> None:
    """A process ends, and its threads with it, when nothing else can go on."""
    _hide(patch, lambda op: op.call == "exit" and "LOCK_UN" not in op.flags)


def early_root(patch: pytest.MonkeyPatch) -> None:
    """Nobody gets out of a collective before all have come."""
    patch.setattr(collectives, "before", lambda kind, ranks, root, rank: tuple(ranks))


def state_without_footprint(patch: pytest.MonkeyPatch) -> None:
    """A reader of a file does not depend on its writer."""
    patch.setitem(footprints.FAMILIES, "read", footprints.FAMILIES["sleep"])  # type: ignore[index]


def raised_claim(patch: pytest.MonkeyPatch) -> None:
    """A search forgets its doubts."""
    claim = DPOR.claim

    def without_doubts(self: DPOR) -> object:
        self.progress.doubts.clear()
        return claim(self)

    patch.setattr(DPOR, "claim", without_doubts)


def times(patch: pytest.MonkeyPatch) -> None:
    """What a program learns from times of files is no order."""
    patch.setattr(Timed, "learn", lambda *_: False)


def crash_order(patch: pytest.MonkeyPatch) -> None:
    """A crash leaves what the one order that was run leaves."""
    patch.setattr(changes, "before_entries", lambda log: [(1 << each) - 1 for each in range(len(log.entries))])
    patch.setattr(cuts, "before_events", lambda moments: [(1 << each) - 1 for each in range(len(moments))])


MUTANTS: dict[str, tuple[Break, str, int]] = {
    "locks taken to exclude": (locks_exclude, "locks", 100),
    "locks at exit": (locks_at_exit, "ends", 50),
    "store without footprint": (store, "store", 50),
    "fault counters": (fault_counters, "faults", 100),
    "polls": (polls, "threads", 100),
    "memory of a rank": (memory, "threads", 50),
    "end of process": (end_of_process, "ends", 50),
    "early root": (early_root, "collectives", 100),
    "state without footprint": (state_without_footprint, "files", 200),
    "times of files": (times, "times", 50),
    "claim raised": (raised_claim, "polls", 100),
}
"""By cause: what breaks the engine, the feature of the programs that find it, and within how many of them."""
