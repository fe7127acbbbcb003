"""Invariants of the weights that ranks declared as saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from racecheck.invariants.disk import listed
from racecheck.invariants.excuses import is_cut
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.series import Series, loads_of, series_of
from racecheck.model.nouns import Died, Outcome, Raised, Violation, Weights


@judges_crashes
def consistent_weights(outcome: Outcome) -> Iterator[Violation]:
    """Every rank loads, bit for bit, weights that were saved, all of one step.

    A checkpoint that mixes two steps, or two ranks' states, loads without an error and trains on to something else.
    What a rank saved itself must come back to it (in a recovery of another size: what any rank saved); a tensor that it
    has not saved must be what another rank saved.  Ranks that load in one world must end up with the same step, so that
    replicas are equal.  One violation for each load.
    """
    for each in series_of(outcome):
        for violation in _inconsistent(each):
            yield replace(violation, message=f"{violation.message}{each.remark}")


def _inconsistent(series: Series) -> Iterator[Violation]:
    outcome = series.outcome
    saved, loads = _spoken(outcome) if series.is_observed else _records(outcome)
    for load in loads:
        flaw = _flaw(saved, load)
        if flaw:
            text = f"rank {load.weights.rank} {flaw}{load.where}"
            yield Violation("consistent-weights", text, (load.weights.rank,), load.events)
    for world in (False, True):
        ended = outcome.recovery if world else outcome
        gone = {rank for rank, each in enumerate(ended.results if ended else ()) if isinstance(each, (Raised, Died))}
        own = [load for load in loads if load.in_recovery is world and load.weights.rank not in gone]
        yield from _apart(saved, own)


@judges_crashes
def snapshot_isolation(outcome: Outcome) -> Iterator[Violation]:
    """A save holds the weights as they were when it started, not as training changed them meanwhile.

    An asynchronous save that reads live tensors writes some of them as they are a step later, or torn between two.  One
    violation for each way in which loads show that, with the ranks that loaded it.
    """
    saved, loads = _records(outcome)
    shown: dict[str, list[_Load]] = {}
    for load in loads:
        for text in () if saved.matching(load) else _leaks(saved, load):
            shown.setdefault(text + load.where, []).append(load)
    for text, who in shown.items():
        ranks = tuple(sorted({load.weights.rank for load in who}))
        events = tuple(sorted({event for load in who for event in load.events}))
        yield Violation("snapshot-isolation", text, ranks, events)


def same_checkpoint(outcome: Outcome) -> Iterator[Violation]:
    """All ranks save a step to the same checkpoint.

    Ranks that make its name up for themselves (from a clock, from a listing) spread one checkpoint over two
    directories, neither of which is whole.
    """
    named = [each for each in outcome.weights if each.kind == "saved" and each.checkpoint]
    if not named:
        raise LookupError("no rank declared where it saved (Rank.saved with at=...)")
    for step in sorted({each.step for each in named}):
        ranks: dict[str, list[int]] = {}
        for each in named:
            if each.step == step and each.rank not in ranks.setdefault(each.checkpoint, []):
                ranks[each.checkpoint].append(each.rank)
        if len(ranks) > 1:
            parts = "; ".join(f"rank{'s' * (len(who) > 1)} {_joined(who)} {path}" for path, who in ranks.items())
            everyone = tuple(sorted({rank for who in ranks.values() for rank in who}))
            events = tuple(sorted({each.event - 1 for each in named if each.step == step and each.event > 0}))
            yield Violation(
                "same-checkpoint", f"step {step} was saved to different checkpoints: {parts}", everyone, events
            )


def steps_of_loads(outcome: Outcome) -> list[tuple[Weights, list[int]]]:
    """Return what the recovery has loaded, each with the steps that it may be of."""
    saved, loads = _spoken(outcome)
    return [(load.weights, saved.matching(load)) for load in loads if load.in_recovery]


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


@dataclass(frozen=True, slots=True)
class _Load:
    """A load; ``is_own``: there are as many ranks as saved, so that each loads its own part again."""

    weights: Weights
    in_recovery: bool
    is_own: bool

    @property
    def where(self) -> str:
        return " (in the recovery)" if self.in_recovery else ""

    @property
    def events(self) -> tuple[int, ...]:
        """Return the last event before it, as far as the outcome's own trace goes."""
        return () if self.in_recovery or not self.weights.event else (self.weights.event - 1,)


@dataclass(frozen=True, slots=True)
class _Saved:
    """All that was saved."""

    records: tuple[Weights, ...]

    @property
    def steps(self) -> list[int]:
        return sorted({each.step for each in self.records})

    def of(self, step: int, load: _Load) -> list[Weights]:
        """Return what was saved in a step: by the rank that loads, if it saved anything, else by all."""
        every = [each for each in self.records if each.step == step]
        own = [each for each in every if load.is_own and each.rank == load.weights.rank]
        return own or every

    def has(self, step: int, load: _Load, name: str) -> bool:
        """Return whether a loaded tensor is that of a step: the rank's own, if it saved one of this name."""
        every = [each for each in self.records if each.step == step and name in each.tensors]
        own = [each for each in every if load.is_own and each.rank == load.weights.rank]
        return any(each.tensors[name] == load.weights.tensors[name] for each in own or every)

    def missing(self, step: int, load: _Load) -> list[str]:
        """Return what every save of the step had and the load does not have; a program may load a part."""
        if load.weights.series:
            return []
        names = set.intersection(*(set(each.tensors) for each in self.of(step, load)))
        return sorted(names - set(load.weights.tensors))

    def matching(self, load: _Load) -> list[int]:
        """Return the steps that a load may be of: all its tensors are that step's, and none is missing."""
        steps = self.steps if load.weights.step < 0 else [each for each in self.steps if each == load.weights.step]
        return [
            step
            for step in steps
            if all(self.has(step, load, name) for name in load.weights.tensors) and not self.missing(step, load)
        ]

    def steps_of(self, load: _Load, name: str) -> list[int]:
        return [step for step in self.steps if self.has(step, load, name)]

    def owner(self, load: _Load, name: str) -> int:
        """Return a rank that saved exactly this tensor, -1 for none."""
        digest = load.weights.tensors[name]
        return next((each.rank for each in self.records if each.tensors.get(name) == digest), -1)


def _records(outcome: Outcome) -> tuple[_Saved, list[_Load]]:
    """Return what was saved, and each load.

    Raises `LookupError` where no rank declared either, unless a fault or a crash came before that.
    """
    saved, loads = _spoken(outcome)
    for records, word in ((saved.records, "saved"), (loads, "loaded")):
        if not records and not (is_cut(outcome) and not loads):
            raise LookupError(f"no rank declared what it {word} (Rank.{word})")
    return saved, loads


def _spoken(outcome: Outcome) -> tuple[_Saved, list[_Load]]:
    worlds = [outcome, outcome.recovery] if outcome.recovery is not None else [outcome]
    saved = tuple(each for each in outcome.weights if each.kind == "saved")
    loads = [
        _Load(each, world is not outcome, not each.series and world.world.ranks == outcome.world.ranks)
        for world in worlds
        for each in loads_of(outcome, world)
    ]
    return _Saved(saved), loads


def _flaw(saved: _Saved, load: _Load) -> str:
    """Return what is wrong with a load, "" if nothing is."""
    if saved.matching(load):
        return ""
    said = load.weights.step
    if said >= 0 and said not in saved.steps:
        return f"loaded step {said}, which no rank declared as saved"
    parts = _by_step(saved, load)
    texts = []
    if len(parts) > 1:
        mix = " and ".join(f"step {step} ({listed(names)})" for step, names in sorted(parts.items()))
        texts.append(f"loaded a mix of {mix}")
    elif parts and 0 <= said != next(iter(parts)):
        texts.append(f"declared step {said} but loaded step {next(iter(parts))}")
    base = said if said >= 0 else next(iter(parts), saved.steps[0])
    texts += _strays(saved, load)
    if len(parts) <= 1 and saved.missing(base, load):
        texts.append(f"loaded step {base} without {listed(saved.missing(base, load))}")
    return "; ".join(texts)


def _by_step(saved: _Saved, load: _Load) -> dict[int, list[str]]:
    """Return the tensor names of each step that a load is made of: few steps, those with most tensors first."""
    steps = {name: saved.steps_of(load, name) for name in sorted(load.weights.tensors)}
    order = sorted(
        saved.steps, key=lambda step: (step != load.weights.step, -sum(step in each for each in steps.values()), step)
    )
    parts: dict[int, list[str]] = {}
    for step in order:
        names = [name for name, of in steps.items() if step in of and not any(name in part for part in parts.values())]
        if names:
            parts[step] = names
    return parts


def _strays(saved: _Saved, load: _Load) -> Iterator[str]:
    """Return tensors that are of no step."""
    strays = [name for name in sorted(load.weights.tensors) if not saved.steps_of(load, name)]
    known = {name for each in saved.records for name in each.tensors}
    never = [name for name in strays if name not in known]
    others = {name: saved.owner(load, name) for name in strays if name in known}
    torn = [name for name, owner in others.items() if owner < 0]
    if never:
        yield f"loaded {listed(never)}, which was never saved"
    for owner in sorted(set(others.values()) - {-1}):
        names = [name for name, each in others.items() if each == owner]
        yield f"loaded rank {owner}'s {listed(names)} instead of its own"
    mixed = {name: text for name in torn if (text := _rows(saved, load, name))}
    for name, text in mixed.items():
        yield f"loaded {name} with {text}"
    rest = [name for name in torn if name not in mixed]
    if rest:
        yield f"loaded {listed(rest)} with values of no saved step"


def _rows(saved: _Saved, load: _Load, name: str) -> str:
    """Return "rows 0-95 of step 2, 96-127 of step 1" for a tensor that mixes steps, "" if no row is of any."""
    rows, blocks = _blocks(load.weights.tensors[name])
    size, of = -(-rows // max(1, len(blocks))), list[str]()
    every = [(each.step, *_blocks(each.tensors.get(name, ""))) for each in saved.records]
    for number, block in enumerate(blocks):
        known = [step for step, count, theirs in every if count == rows and theirs[number : number + 1] == [block]]
        of.append(f"of step {max(known)}" if known else "of no saved step")
    if not any("no saved" not in each for each in of):
        return ""
    runs = [(text, [number for number, _ in each]) for text, each in groupby(enumerate(of), key=itemgetter(1))]
    said = (f"{each[0] * size}-{min(rows, (each[-1] + 1) * size) - 1} {text}" for text, each in runs)
    return f"rows {', '.join(said)}"


def _blocks(digest: str) -> tuple[int, list[str]]:
    """Return the number of rows of a tensor and the digests of their blocks, from its digest."""
    _, _, rest = digest.partition(":")
    rows, _, blocks = rest.partition(":")
    digits = range(0, len(blocks), 6)
    return (int(rows), [blocks[start : start + 6] for start in digits]) if rows.isdecimal() else (0, [])


def _apart(saved: _Saved, loads: Sequence[_Load]) -> Iterator[Violation]:
    """Return ranks that end up with different steps: the last load of each is of one step, but no step is common."""
    last = {load.weights.rank: load for load in loads}
    steps = {rank: set(saved.matching(load)) for rank, load in sorted(last.items())}
    if len(steps) > 1 and all(steps.values()) and not set.intersection(*steps.values()):
        text = "; ".join(f"rank {rank} loaded step {min(of)}" for rank, of in steps.items())
        where = next(iter(last.values())).where
        events = tuple(sorted({index for load in last.values() for index in load.events}))
        yield Violation(
            "consistent-weights", f"the ranks continue from different steps: {text}{where}", tuple(steps), events
        )


def _leaks(saved: _Saved, load: _Load) -> Iterator[str]:
    """Return which tensors of a load changed after its step was saved."""
    parts = {name: saved.steps_of(load, name) for name in sorted(load.weights.tensors)}
    told = load.weights.step
    base = told if told in saved.steps else min((min(of) for of in parts.values() if of), default=saved.steps[0])
    late: dict[int, list[str]] = {}
    for name, of in parts.items():
        if of and base not in of and max(of) > base:
            late.setdefault(min(step for step in of if step > base), []).append(name)
    for step, names in sorted(late.items()):
        was = "they were" if len(names) > 1 else "it was"
        yield (
            f"step {base} was loaded with {listed(names)} as {was} at step {step}: "
            "the save read weights that training had already changed"
        )
    known = {name for each in saved.records for name in each.tensors}
    torn = [name for name, of in parts.items() if not of and name in known and saved.owner(load, name) < 0]
    if torn:
        yield f"{listed(torn)} {'are' if len(torn) > 1 else 'is'} of no step that was saved"
