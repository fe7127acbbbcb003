"""The saves of a run: where each began, where it returned, and the loads of the recovery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from racecheck.invariants.weights import steps_of_loads
from racecheck.model.nouns import Outcome, Weights


@dataclass(slots=True)
class Save:
    """The save of a step.

    ``begun`` and ``acked`` say of each rank after how many events of the trace it began there (`Rank.saved`), and
    returned (`Rank.acked`); ``checkpoints`` are the paths that were named.
    """

    step: int
    ranks: int
    begun: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    checkpoints: set[str] = field(default_factory=set)

    @property
    def is_acked(self) -> bool:
        """Whether it has returned on all ranks."""
        return len(self.acked) == self.ranks

    @property
    def since(self) -> int:
        """After how many events it had returned on all ranks on which it returned."""
        return max(self.acked.values(), default=0)


def saves(outcome: Outcome) -> list[Save]:
    """Return the saves that ranks have declared, by step."""
    found: dict[int, Save] = {}
    for each in outcome.weights:
        if each.kind in {"saved", "acked"}:
            save = found.setdefault(each.step, Save(each.step, outcome.world.ranks))
            table = save.begun if each.kind == "saved" else save.acked
            table.setdefault(each.rank, each.event)
            save.checkpoints |= {each.checkpoint} - {""}
    return [found[step] for step in sorted(found)]


def newest_acked(outcome: Outcome) -> Save | None:
    """Return the last step whose save has returned on all ranks."""
    return next((save for save in reversed(saves(outcome)) if save.is_acked), None)


def recovered(outcome: Outcome) -> Iterator[tuple[Weights, int]]:
    """Each load of the recovery with its step: the one that it named, else the newest that has these weights.

    Raises `LookupError` if there is none.
    """
    for load, steps in steps_of_loads(outcome):
        step = load.step if load.step >= 0 else max(steps, default=-1)
        if step < 0:
            raise LookupError(f"rank {load.rank} of the recovery did not declare which step it loaded")
        yield load, step
