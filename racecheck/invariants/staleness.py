"""Invariants of successive looks of one node: time does not run backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from racecheck.invariants.events import is_before, on_disk
from racecheck.invariants.excuses import is_cut
from racecheck.invariants.publishing import PublishedPointer, followed
from racecheck.model.nouns import Op, Outcome, Violation, Weights

_LOOKS = frozenset({"access", "open", "read", "readlink", "stat"})


def monotonic_step(outcome: Outcome) -> Iterator[Violation]:
    """Of two loads on one node, the later one does not load an older step.

    An evaluation or a restart of a part that finds itself behind what it has seen goes wrong silently.  The run is
    judged, and its recovery, each for itself: after a crash one may go back.  Loads that may have overlapped are not
    compared; ranks name the step with `Rank.loaded`.
    """
    if not any(each.kind == "loaded" for world in (outcome, outcome.recovery) if world for each in world.weights):
        if is_cut(outcome):
            return
        raise LookupError("no rank declared a load (Rank.loaded)")
    for world, where in ((outcome, ""), (outcome.recovery, " (in the recovery)")):
        if world is not None:
            yield from _back(world, where)


def _back(outcome: Outcome, where: str) -> Iterator[Violation]:
    newest: dict[int, list[Weights]] = {}
    for load in (each for each in outcome.weights if each.kind == "loaded" and each.step >= 0):
        begun = begins(outcome, load)
        there = newest.setdefault(outcome.world.node(load.rank), [])
        before = [each for each in there if each.rank == load.rank or each.event <= begun]
        last = max(before, key=lambda each: each.step, default=None)
        if last is not None and last.step > load.step:
            ranks = tuple(sorted({last.rank, load.rank}))
            text = (
                f"rank {load.rank} loaded step {load.step} after {_who(last, load)} had loaded step {last.step}{where}"
            )
            events = () if where else tuple(each.event - 1 for each in (last, load) if each.event)
            yield Violation("monotonic-step", text, ranks, events)
        there.append(load)


def begins(outcome: Outcome, load: Weights) -> int:
    """Return a lower bound of the events before a load: its rank's first op since its last declaration (-1: none)."""
    earlier = [each.event for each in outcome.weights if each.rank == load.rank and each is not load]
    since = max((event for event in earlier if event <= load.event), default=0)
    own = (
        index
        for index, event in enumerate(outcome.trace[: load.event])
        if index >= since and isinstance(event, Op) and event.rank == load.rank
    )
    return next(own, -1)


def _who(last: Weights, load: Weights) -> str:
    return "it" if last.rank == load.rank else f"rank {last.rank}"


def latest_consistency(outcome: Outcome, pointer: str = "latest") -> Iterator[Violation]:
    """No node reads a ``latest`` older than one that it has read or that was published before its turn.

    Before its turn: in the same thread, or with collectives in between.  A node that continues from what its cache says
    starts from an older checkpoint than its peers, or from none, although there was a barrier.  ``pointer`` is as in
    `atomic_publish`.
    """
    walk = _PointerVersions(outcome)
    for index, op, pointers in followed(outcome, pointer):
        yield from walk.step(index, op, pointers)
    if not walk.versions and not is_cut(outcome):
        raise LookupError(f"no rank published {pointer}")


@dataclass(slots=True)
class _PointerVersions:
    """The contents of pointers that ranks have seen so far.

    ``versions`` are all that was published, in order, by path, with the op; ``seen`` is after which event that was
    published which a node has seen last.
    """

    outcome: Outcome
    versions: dict[str, list[tuple[PublishedPointer, Op]]] = field(default_factory=dict)
    seen: dict[tuple[int, str], int] = field(default_factory=dict)
    reported: set[tuple[int, str, int]] = field(default_factory=set)

    def step(self, index: int, op: Op, pointers: Mapping[str, PublishedPointer]) -> Iterator[Violation]:
        for path, now in pointers.items():
            known = self.versions.setdefault(path, [])
            if not known or known[-1][0] is not now:
                known.append((now, op))
        path = on_disk(self.outcome, op, op.path)
        if op.call in _LOOKS and path in pointers:
            yield from self._look(index, op, path, pointers[path])

    def _look(self, index: int, op: Op, path: str, now: PublishedPointer) -> Iterator[Violation]:
        text = _seen(op)
        if text is None:
            return
        node = self.outcome.world.node(op.rank)
        fitting = [each.index for each, _ in self.versions[path] if each.text == text]
        version = now.index if text == now.text else max(fitting, default=-1)
        before = self.seen.get((node, path), -1)
        self.seen[node, path] = max(before, version)
        if text == now.text or (node, path, now.index) in self.reported:
            return
        due = [each for each, made in self.versions[path] if each.index > version and is_before(made, op)]
        what = f"rank {op.rank} saw {f'{path} name {text}' if text else f'no {path}'}"
        if due:
            text_ = f"{what}, although rank {due[-1].rank} had already made it name {due[-1].text}"
        elif before > version:
            text_ = f"{what}, although its node had already seen a newer one"
        else:
            return
        self.reported.add((node, path, now.index))
        events = (due[-1].index if due else before, index)
        yield Violation(
            "latest-consistency", text_, tuple(sorted({op.rank, *(each.rank for each in due[-1:])})), events
        )


def _seen(op: Op) -> str | None:
    """Return the result of a look at a pointer: its content, "" for no such file, None for no information."""
    if op.result is None:
        return None
    if op.result.errno == "ENOENT":
        return ""
    return op.result.text.strip() or None if op.call in {"read", "readlink"} else None
