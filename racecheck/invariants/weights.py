"""Invariants of the weights that ranks declared as saved and loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from operator import itemgetter
from types import MappingProxyType

from racecheck.invariants.disk import listed
from racecheck.invariants.excuses import is_cut
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.series import Series, loads_of, series_of
from racecheck.model.nouns import Died, Outcome, Raised, Returned, Violation, Weights


@judges_crashes
def consistent_weights(
    outcome: Outcome, restored: Mapping[str, Collection[int]] = MappingProxyType({})
) -> Iterator[Violation]:
    """Every rank loads, bit for bit, weights that were saved, all of one step.

    A checkpoint that mixes two steps, or two ranks' states, loads without an error and trains on to something else.
    What a rank saved itself must come back to it (in a recovery of another size: what any rank saved); a tensor that it
    has not saved must be what another rank saved.  Ranks that load in one world must end up with the same step, so that
    replicas are equal.  One violation for each load.

    ``restored`` says which ranks of the recovery load each series of a program if nothing goes wrong: then either all
    of them load something of it, or none; and ranks that each load a series of their own load the same save of it.
    """
    every = series_of(outcome)
    for each in every:
        for violation in _inconsistent(each):
            yield replace(violation, message=f"{violation.message}{each.remark}")
    if outcome.recovery is not None and restored:
        yield from _partial(outcome.recovery, every, restored)


def restored_by_ranks(undisturbed: Outcome) -> dict[str, tuple[int, ...]]:
    """Return which ranks of the recovery load each series."""
    found = {each.name: tuple(sorted(_newest_loads(each))) for each in series_of(undisturbed) if each.is_observed}
    return {name: ranks for name, ranks in found.items() if ranks}


def _newest_loads(series: Series) -> dict[int, int]:
    """Return of each rank of the recovery that loads something of a series the newest save that it may be, or -1."""
    newest: dict[int, int] = {}
    for load, steps in steps_of_loads(series.outcome):
        newest[load.rank] = max(newest.get(load.rank, -1), max(steps, default=-1))
    return newest


def _partial(
    recovery: Outcome, every: Sequence[Series], restored: Mapping[str, Collection[int]]
) -> Iterator[Violation]:
    """Yield a violation for each series that some ranks of a recovery did not load, or loaded from another save."""
    gone = {rank for rank, each in enumerate(recovery.results) if not isinstance(each, Returned)}
    loads = {each.name: _newest_loads(each) for each in every if each.name in restored}
    for name, newest in loads.items():
        missing = {*restored[name]} - newest.keys() - gone
        others = sorted(newest.keys() & {*restored[name]})
        if missing and others:
            who = f"rank{'s' * (len(missing) > 1)} {_joined([*missing])}"
            text = f"{who} loaded nothing of {name}, but rank {others[0]} did (in the recovery)"
            yield Violation("consistent-weights", text, tuple(sorted(missing)))
    for one, other in combinations(loads, 2):
        if not {*restored[one]} & {*restored[other]}:
            yield from _of_two_steps(one, loads[one], other, loads[other])


def _of_two_steps(one: str, ones: Mapping[int, int], other: str, others: Mapping[int, int]) -> Iterator[Violation]:
    """Return whether two groups of ranks, each with a series of its own, have loaded different saves of these."""
    for rank, step in sorted(ones.items())[:1]:
        for peer, theirs in sorted(others.items())[:1]:
            if min(step, theirs) >= 0 and step != theirs:
                text = f"rank {rank} loaded save {step} of {one}, but rank {peer} save {theirs} of {other}"
                yield Violation("consistent-weights", f"{text} (in the recovery)", (rank, peer))


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
def snapshot_isolation(outcome: Outcome, *, observed: bool = False) -> Iterator[Violation]:
    """A save holds the weights as they were when it started, not as training changed them meanwhile.

    An asynchronous save that reads live tensors writes some of them as they are a step later, or torn between two.  One
    violation for each way in which loads show that, with the ranks that loaded it; of ``observed`` saves one for each
    state that was another one when its save returned.
    """
    if observed:
        yield from _changed(outcome)
        return
    saved, loads = _records(outcome)
    shown: dict[str, list[_Load]] = {}
    for load in loads:
        for text in () if saved.matching(load) else _leaks(saved, load):
            shown.setdefault(text + load.where, []).append(load)
    for text, who in shown.items():
        ranks = tuple(sorted({load.weights.rank for load in who}))
        events = tuple(sorted({event for load in who for event in load.events}))
        yield Violation("snapshot-isolation", text, ranks, events)


def _changed(outcome: Outcome) -> Iterator[Violation]:
    """Return the observed saves during which the state changed."""
    saved = {(each.rank, each.series, each.step): each for each in outcome.weights if each.kind == "saved"}
    for after in outcome.weights:
        before = saved.get((after.rank, after.series, after.step))
        if after.kind == "changed" and before is not None:
            names = [name for name, each in after.tensors.items() if before.tensors.get(name) != each]
            text = f"rank {after.rank}'s {listed(sorted(names))} changed during save {after.step} of {after.series}"
            events = tuple(sorted({each.event - 1 for each in (before, after) if each.event}))
            yield Violation("snapshot-isolation", text, (after.rank,), events)


def same_checkpoint(outcome: Outcome, observed: Mapping[str, bool] = MappingProxyType({})) -> Iterator[Violation]:
    """All ranks save a step to the same checkpoint.

    Ranks that make its name up for themselves (from a clock, from a listing) spread one checkpoint over two
    directories, neither of which is whole.

    ``observed`` are the series of a program (`series_of`) of which all ranks have the same path, or the same directory
    (True), as far as nothing goes wrong.  A rank that a fault has hit may save once more, so these are then left out.
    """
    named = [each for each in outcome.weights if each.kind == "saved" and each.checkpoint]
    if not named and not observed:
        raise LookupError("no rank declared where it saved (Rank.saved with at=...)")
    if observed and any(outcome.fired):
        return
    for (series, step), saves in _by_save(named).items():
        if observed and series not in observed:
            continue
        ranks: dict[str, list[int]] = {}
        for each in saves:
            of = ranks.setdefault(_directory(each) if observed.get(series) else each.checkpoint, [])
            of.extend([each.rank] if each.rank not in of else [])
        if len(ranks) > 1:
            parts = "; ".join(f"rank{'s' * (len(who) > 1)} {_joined(who)} {path}" for path, who in ranks.items())
            everyone = tuple(sorted({rank for who in ranks.values() for rank in who}))
            events = tuple(sorted({each.event - 1 for each in saves if each.event > 0}))
            what = f"save {step} of {series}" if observed else f"step {step}"
            text = f"{what} was saved to different {'directories' if observed.get(series) else 'checkpoints'}: {parts}"
            yield Violation("same-checkpoint", text, everyone, events)


def shared_by_ranks(undisturbed: Outcome) -> dict[str, bool]:
    """Return the series of which all ranks that save have the same path, or at least the same directory (True)."""
    found: dict[str, bool] = {}
    saves = _by_save([each for each in undisturbed.weights if each.kind == "saved" and each.series])
    for series in dict.fromkeys(name for name, _ in saves):
        every = [each for (name, _), each in saves.items() if name == series]
        if any(len({save.rank for save in each}) > 1 for each in every):
            if all(len({save.checkpoint for save in each}) == 1 for each in every):
                found[series] = False
            elif all(len({_directory(save) for save in each}) == 1 for each in every):
                found[series] = True
    return found


def _by_save(weights: Sequence[Weights]) -> dict[tuple[str, int], list[Weights]]:
    """Return saves by series and step, in ascending order of these."""
    found: dict[tuple[str, int], list[Weights]] = {}
    for each in sorted(weights, key=lambda each: (each.series, each.step)):
        found.setdefault((each.series, each.step), []).append(each)
    return found


def _directory(weights: Weights) -> str:
    return weights.checkpoint.rpartition("/")[0] or "."


def steps_of_loads(outcome: Outcome) -> list[tuple[Weights, list[int]]]:
    """Return the loads of the recovery, each with the steps that it may be of."""
    saved, loads = _spoken(outcome)
    return [(load.weights, saved.matching(load)) for load in loads if load.in_recovery]


def saves_of_load(outcome: Outcome, load: Weights, ranks: int) -> list[int]:
    """Return which saves of its step in a run a load in a world of that many ranks may be: 0 is the first."""
    saved, _ = _spoken(outcome)
    given = _Load(load, in_recovery=False, is_own=ranks == outcome.world.ranks)
    return [number for number in range(saved.saves(load.step)) if saved.is_of_save(load.step, number, given)]


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


ORDINALS = ("first", "second", "third", "later")


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
    """All that was saved: by the run, and ``later`` by its recovery."""

    records: tuple[Weights, ...]
    later: tuple[Weights, ...] = ()

    @property
    def steps(self) -> list[int]:
        return sorted({each.step for each in self.records})

    def saves(self, step: int) -> int:
        """Return how many times a step was saved: by the rank that did so most often."""
        ranks = [each.rank for each in self.records if each.step == step]
        return max(map(ranks.count, {*ranks}), default=0)

    def of_save(self, step: int, number: int, load: _Load, name: str) -> list[str]:
        """Return the digests of a tensor in a save of a step, 0 being the first: the rank's own, if there is one.

        Else those of all ranks.  A rank that has saved it less often counts with the last time.
        """
        found: dict[int, list[str]] = {}
        for each in self.records:
            if each.step == step and name in each.tensors:
                found.setdefault(each.rank, []).append(each.tensors[name])
        own = {load.weights.rank: found[load.weights.rank]} if load.is_own and load.weights.rank in found else found
        return [digests[min(number, len(digests) - 1)] for digests in own.values()]

    def is_of_save(self, step: int, number: int, load: _Load) -> bool:
        """Return whether all tensors of a load are those of one save of a step."""
        tensors = load.weights.tensors.items()
        return all(digest in self.of_save(step, number, load, name) for name, digest in tensors)

    def mixed(self, step: int, load: _Load) -> dict[int, list[str]]:
        """Return the tensors of a load by the last save of a step that has them."""
        found: dict[int, list[str]] = {}
        for name, digest in sorted(load.weights.tensors.items()):
            numbers = [each for each in range(self.saves(step)) if digest in self.of_save(step, each, load, name)]
            if numbers:
                found.setdefault(numbers[-1], []).append(name)
        return found

    def of(self, step: int, load: _Load) -> list[Weights]:
        """Return the tensors saved in a step: by the rank that loads, if it saved anything, else by all."""
        every = [each for each in self.records if each.step == step]
        own = [each for each in every if load.is_own and each.rank == load.weights.rank]
        return own or every

    def has(self, step: int, load: _Load, name: str) -> bool:
        """Return whether a loaded tensor is that of a step: the rank's own, if it saved one of this name."""
        every = [each for each in self.records if each.step == step and name in each.tensors]
        own = [each for each in every if load.is_own and each.rank == load.weights.rank]
        return any(each.tensors[name] == load.weights.tensors[name] for each in own or every)

    def missing(self, step: int, load: _Load) -> list[str]:
        """Return the tensors that every save of the step had and the load lacks; a program may load a part."""
        if load.weights.series:
            return []
        names = set.intersection(*(set(each.tensors) for each in self.of(step, load)))
        return sorted(names - set(load.weights.tensors))

    def matching(self, load: _Load) -> list[int]:
        """Return the steps that a load may be of: all its tensors are of one save of that, and none is missing."""
        steps = self.steps if load.weights.step < 0 else [each for each in self.steps if each == load.weights.step]
        return [
            step
            for step in steps
            if any(self.is_of_save(step, number, load) for number in range(self.saves(step)))
            and not self.missing(step, load)
        ]

    def steps_of(self, load: _Load, name: str) -> list[int]:
        return [step for step in self.steps if self.has(step, load, name)]

    def owner(self, load: _Load, name: str) -> int:
        """Return a rank that saved exactly this tensor, -1 for none."""
        digest = load.weights.tensors[name]
        return next((each.rank for each in self.records if each.tensors.get(name) == digest), -1)


def _records(outcome: Outcome) -> tuple[_Saved, list[_Load]]:
    """Return the saves, and each load.

    Raises `LookupError` if no rank declared either, unless a fault or a crash came before that.
    """
    saved, loads = _spoken(outcome)
    for records, word in ((saved.records, "saved"), (loads, "loaded")):
        if not records and not (is_cut(outcome) and not loads):
            raise LookupError(f"no rank declared what it {word} (Rank.{word})")
    return saved, loads


def _spoken(outcome: Outcome) -> tuple[_Saved, list[_Load]]:
    worlds = [outcome, outcome.recovery] if outcome.recovery is not None else [outcome]
    saved = tuple(each for each in outcome.weights if each.kind == "saved")
    later = tuple(each for world in worlds[1:] for each in world.weights if each.kind == "saved")
    loads = [
        _Load(each, world is not outcome, not each.series and world.world.ranks == outcome.world.ranks)
        for world in worlds
        for each in loads_of(outcome, world)
    ]
    return _Saved(saved, later), loads


def _flaw(saved: _Saved, load: _Load) -> str:
    """Return the flaw of a load, "" if it has none."""
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
    elif parts and len(saves := saved.mixed(next(iter(parts)), load)) > 1:
        mix = " and ".join(f"{ORDINALS[min(number, 3)]} ({listed(names)})" for number, names in sorted(saves.items()))
        texts.append(f"loaded step {next(iter(parts))} as a mix of its {mix} save")
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
    tensors = load.weights.tensors
    again = [name for name in torn if any(each.tensors.get(name) == tensors[name] for each in saved.later)]
    if again and load.in_recovery:
        yield f"loaded {listed(again)} as the restarted job had saved it, and the rest as the job before it had"
    rest = [name for name in torn if name not in mixed and name not in again]
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
