"""Observed saves and loads of a program, one series at a time, in the form in which ranks declare theirs.

A series are the saves of the same tensors to paths that are equal but for numbers.  A load belongs to the series of its
path; if nothing was saved to that (the file was renamed), to the one that has what it loaded, or else to one with
tensors of these names.  What was there before the run is step 0, if the run loaded it; else nothing is known of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from racecheck.invariants.events import done
from racecheck.model.nouns import Op, Outcome, Weights

_NUMBER = re.compile(r"\d+")
_PART = " at "
"""Stands before the part of a sharded tensor, in its name (`racecheck.agent.contents.weight_digests`)."""


@dataclass(frozen=True, slots=True)
class Series:
    """An outcome with the weights of one series (all, where ranks declared them), and a remark for sentences about it.

    It has a ``name``, the paths of its saves, if it ``is_observed``: nobody declared anything.
    """

    outcome: Outcome
    remark: str = ""
    name: str = ""

    @property
    def is_observed(self) -> bool:
        return bool(self.name)


def series_of(outcome: Outcome) -> list[Series]:
    """Return the series of a run, in the order of their first saves."""
    worlds = [outcome, outcome.recovery] if outcome.recovery is not None else [outcome]
    if not any(each.series for world in worlds for each in world.weights):
        return [Series(outcome)]
    names = dict.fromkeys(each.series for each in outcome.weights if each.kind == "saved")
    sorting = _Sorting(outcome, {name: _saved(outcome, name) for name in names})
    return [sorting.series(name) for name in names]


def reads_parts(outcome: Outcome) -> bool:
    """Return whether a rank of the recovery loads several files of one series: they may be parts of one checkpoint."""
    for series in series_of(outcome):
        recovery = series.outcome.recovery
        loads = {(each.checkpoint, each.rank) for each in (recovery.weights if recovery is not None else ())}
        if len({rank for _, rank in loads}) < len(loads):
            return True
    return False


def count(outcome: Outcome) -> tuple[int, int]:
    """Return how many saves and loads were observed, of the recovery also; what ranks do together counts once."""
    saves = {(each.series, each.step) for each in outcome.weights if each.kind == "saved"}
    loads = 0
    for world in (outcome, outcome.recovery):
        found: dict[str, dict[int, int]] = {}
        for each in world.weights if world is not None else ():
            if each.kind == "loaded":
                ranks = found.setdefault(each.checkpoint, {})
                ranks[each.rank] = ranks.get(each.rank, 0) + 1
        loads += sum(max(ranks.values()) for ranks in found.values())
    return len(saves), loads


def loads_of(outcome: Outcome, world: Outcome) -> list[Weights]:
    """Return the loads of a run or of its recovery, without those of checkpoints that the recovery saved itself."""
    own = [each for each in world.weights if each.kind == "saved"] if world is not outcome else []
    return [
        each for each in world.weights
        if each.kind == "loaded" and not any(_is_earlier(save, each) and _is_it(save, each) for save in own)
    ]  # fmt: skip


def _is_it(save: Weights, load: Weights) -> bool:
    """Return whether a load is of a save: their paths are equal, or, since files are renamed, their tensors."""
    return bool(save.checkpoint and save.checkpoint == load.checkpoint) or _is_of(load, save)


def _saved(outcome: Outcome, name: str) -> list[Weights]:
    return [each for each in outcome.weights if each.series == name and each.kind == "saved"]


@dataclass(slots=True)
class _Sorting:
    """Assigns loads to series; ``saved`` are the saves of each, in order."""

    outcome: Outcome
    saved: dict[str, list[Weights]]
    _loads: dict[str, list[tuple[Weights, bool]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for world in (self.outcome, self.outcome.recovery):
            for each in loads_of(self.outcome, world) if world is not None else ():
                if (name := self._of(each)) is not None:
                    self._loads.setdefault(name, []).append((each, world is not self.outcome))

    def _of(self, load: Weights) -> str | None:
        of_path = {name: every for name, every in self.saved.items() if f"{name} (".startswith(f"{load.series} (")}
        candidates = of_path or self.saved
        fitting = [name for name, every in candidates.items() if any(_is_of(load, each) for each in every)]
        similar = [name for name, every in candidates.items() if any(_is_like(load, each) for each in every)]
        return next(iter([*fitting, *similar, *of_path]), None) if load.tensors else None

    def series(self, name: str) -> Series:
        """Return a series as if it had been declared."""
        saved, loads = self.saved[name], self._loads.get(name, [])
        before = [replace(each, kind="saved", step=0, event=0) for each, later in loads
                  if not later and not any(_is_earlier(save, each) for save in saved)]  # fmt: skip
        every = [*before, *saved]
        judged = [(fit, later) for each, later in loads if (fit := self._comparable(each, every)) is not None]
        weights = [*every, *self._acks(name, every), *(each for each, later in judged if not later)]
        recovery = self.outcome.recovery
        if recovery is not None:
            recovery = replace(recovery, weights=tuple(each for each, later in judged if later))
        final = _renamed(self.outcome, saved[0]) if saved else ""
        where = f"{final}, written as {name}" if final else name
        remark = f" (steps count the saves to {where}{'; 0 was there before the run' if before else ''})"
        return Series(replace(self.outcome, weights=tuple(weights), recovery=recovery), remark, name)

    def _comparable(self, load: Weights, saved: Sequence[Weights]) -> Weights | None:
        """Return a load without the tensors that were never saved in such parts; None if nothing can be said of it.

        That is one without a known tensor, and one that fits no save where there was a file before the run.
        """
        known = {name for each in saved for name in each.tensors}
        tensors = {name: each for name, each in load.tensors.items() if name in known or _PART not in name}
        load = replace(load, tensors=tensors)
        is_known = any(_is_of(load, each) for each in saved)
        return load if tensors and (is_known or not was_there(self.outcome, load.checkpoint)) else None

    def _acks(self, name: str, saved: Sequence[Weights]) -> Iterator[Weights]:
        """Yield the acknowledged saves; ranks that save nothing in this series acknowledge each save when it begins."""
        yield from (each for each in self.outcome.weights if each.series == name and each.kind == "acked")
        recovery = self.outcome.recovery
        later = recovery.weights if recovery is not None else ()
        taking_part = {
            each.rank for each in [*self.saved[name], *later] if each.series == name and each.kind == "saved"
        }
        for step in {each.step: each for each in reversed(saved)}.values():
            for rank in range(self.outcome.world.ranks):
                if rank not in taking_part or step.step == 0:
                    yield replace(step, rank=rank, kind="acked", tensors={})


def _is_of(load: Weights, save: Weights) -> bool:
    """Return whether a load has no tensors but saved ones."""
    return bool(load.tensors) and all(save.tensors.get(name) == each for name, each in load.tensors.items())


def _renamed(outcome: Outcome, save: Weights) -> str:
    """Return the path to which a saved file or directory was renamed, with # for numbers; "" if it was not."""
    for index, op in done(outcome):
        if index >= save.event and op.call == "rename" and op.rank == save.rank:
            source, target = (each.path for each in op.places)
            if save.checkpoint == source or save.checkpoint.startswith(f"{source}/"):
                return _NUMBER.sub("#", f"{target}{save.checkpoint[len(source) :]}")
    return ""


def _is_like(load: Weights, save: Weights) -> bool:
    return load.tensors.keys() <= save.tensors.keys()


def _is_earlier(save: Weights, load: Weights) -> bool:
    """Return whether a save began before a load was over."""
    return save.event < load.event or (save.event == load.event and save.rank == load.rank)


def was_there(outcome: Outcome, path: str) -> bool:
    """Return whether a file, or a directory, may have been there before the run: the first op that names it says so."""
    for event in outcome.trace:
        for place in event.places if isinstance(event, Op) else ():
            if place.path == path or place.path.startswith(f"{path}/"):
                return place.inode != 0
    return True
