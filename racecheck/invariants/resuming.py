"""A resumed job is the job that it continues: its saves and its steps are those of a job that nobody interrupted.

The job that was not interrupted writes a save and goes on; a job that resumes from that save has to go on alike, bit
for bit.  The clock of the comparison are the steps of training; where none were observed, the saves of the series that
the job resumed from.  A scenario declares its steps (`racecheck.invariants.declared_steps`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from racecheck.invariants import declared_steps
from racecheck.invariants.disk import listed
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.series import series_of
from racecheck.invariants.weights import steps_of_loads
from racecheck.model.nouns import Outcome, TrainingStep, Violation, Weights
from racecheck.model.training_parts import BATCH, PARAMETERS, RANDOM, SETTING, STATE

_OF_RANDOM = re.compile("rng|random|seed|generator")
"""Is in the names of saved states of generators: like these, they are no flaw unless something else differs."""
_SEVERAL = -1
"""Stands for the number of a save that may be one of several."""
_EntryName = tuple[str, str]
"""The series of a save, and the name of an entry in it."""


@dataclass(frozen=True, slots=True)
class Uninterrupted:
    """The undisturbed run, and the entries of saves that ``vary`` between two of these; nothing else may.

    ``why`` says why nothing can be compared with it, "" if it can.
    """

    outcome: Outcome
    vary: frozenset[_EntryName] = frozenset()
    why: str = ""


@judges_crashes
def resume_equals(outcome: Outcome, reference: Uninterrupted | None = None) -> Iterator[Violation]:
    """A resumed job takes the same steps and writes the same saves as one that nobody interrupted.

    Optimizer, learning rate, random numbers, the order of the data and each counter have to come back with the weights;
    a job that lacks one of them trains on without an error, as another job.  The violation names the first difference.

    ``reference`` is the undisturbed run.  Judged is a recovery of as many ranks, if the run before it did up to its end
    the same as the undisturbed one.  The steps of scenarios are judged after a crash of the disk, too.
    """
    if reference is None:
        raise LookupError("only a recovery is compared with an undisturbed run")
    if reference.why:
        raise LookupError(reference.why)
    if declared_steps.declares(reference.outcome):
        yield from declared_steps.differing(outcome, reference.outcome)
        return
    if outcome.crash is not None:
        return
    found = [each for each in _compared(outcome, reference) if each.flaw]
    if found:
        first = min(found, key=lambda each: (each.at, each.rank))
        ranks = tuple(sorted({each.rank for each in found}))
        yield Violation("resume-equals", f"{_resumed_from(outcome)}, rank {first.rank} {first.flaw}", ranks)


def cause(message: str) -> str:
    """Return the first words of a violation on the resumed job, without numbers: a cause shows at many steps."""
    first = re.split("[,;]", message.partition(", rank ")[2], maxsplit=1)[0]
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", first).removeprefix("# ")


def continues(outcome: Outcome, reference: Uninterrupted) -> bool:
    """Return whether a recovery did anything that could be compared."""
    if declared_steps.declares(reference.outcome):
        return declared_steps.continues(outcome, reference.outcome)
    return any(True for _ in _compared(outcome, reference))


def varying(one: Outcome, other: Outcome) -> tuple[frozenset[_EntryName], str]:
    """Compare two undisturbed runs; returns the entries of saves that vary, and the other difference, "" for none.

    If weights vary, or the runs saved or trained something else, nothing can be said of a resumed job.
    """
    vary: set[_EntryName] = set()
    for rank in range(one.world.ranks):
        ones, others = _RankHistory.of(one, rank), _RankHistory.of(other, rank)
        if [each.series for each in ones.saves] != [each.series for each in others.saves]:
            return frozenset(), f"the saves of rank {rank}"
        for number, steps in enumerate(zip(ones.steps, others.steps, strict=False), 1):
            if apart := _effects(*steps):
                return frozenset(), f"{listed(apart)} of rank {rank} at training step {number}"
        if len(ones.steps) != len(others.steps):
            return frozenset(), f"the number of training steps of rank {rank}"
        for mine, theirs in zip(ones.saves, others.saves, strict=True):
            names = _entries_apart(mine, theirs, frozenset())
            if not ones.steps and (rows := [each for each in names if ":" in mine.tensors.get(each, "")]):
                return frozenset(), f"{listed(rows)} of save {mine.step} of {mine.series}"
            vary |= {(mine.series, name) for name in names}
    return frozenset(vary), ""


@dataclass(frozen=True, slots=True)
class _RankHistory:
    """The saves and the steps of a rank, in order; of step i, ``saves_before[i]`` saves had begun."""

    saves: Sequence[Weights] = ()
    steps: Sequence[TrainingStep] = ()

    @staticmethod
    def of(outcome: Outcome, rank: int) -> _RankHistory:
        saves = [each for each in outcome.weights if each.rank == rank and each.kind == "saved" and each.series]
        return _RankHistory(saves, [each for each in outcome.steps if each.rank == rank])

    def steps_before(self, index: int) -> int:
        """Return how many steps came before a save."""
        return sum(step.saves <= index for step in self.steps)

    def by_step(self) -> dict[tuple[str, int, int], Weights]:
        """Return the saves by series, the number of steps before, and how many of these there were already."""
        found: dict[tuple[str, int, int], Weights] = {}
        for index, save in enumerate(self.saves):
            at, number = self.steps_before(index), 0
            while (save.series, at, number) in found:
                number += 1
            found[save.series, at, number] = save
        return found


@dataclass(frozen=True, slots=True)
class _Compared:
    """A step or save of a rank of the recovery beside the undisturbed one.  ``at`` is when: steps first, then saves."""

    rank: int
    at: tuple[int, int] = (0, 0)
    flaw: str = ""


def _compared(outcome: Outcome, reference: Uninterrupted) -> Iterator[_Compared]:
    """Yield the deeds of a recovery beside the undisturbed run, of each rank up to its first difference."""
    recovery, whole = outcome.recovery, reference.outcome
    if recovery is None or {outcome.world.ranks, recovery.world.ranks} != {whole.world.ranks}:
        return
    if not _begins_alike(outcome, reference):
        return
    loads = _loads(outcome)
    if loads is None:
        return
    yield from (_by_steps if whole.steps else _by_saves)(recovery, reference, loads)


def _begins_alike(outcome: Outcome, reference: Uninterrupted) -> bool:
    """Return whether a run did what the undisturbed run did, as far as it came.

    Where steps were observed, it may have saved more often: on a signal.
    """
    for rank in range(outcome.world.ranks):
        run, whole = _RankHistory.of(outcome, rank), _RankHistory.of(reference.outcome, rank)
        if len(run.steps) > len(whole.steps):
            return False
        if any(_effects(step, theirs) for step, theirs in zip(run.steps, whole.steps, strict=False)):
            return False
        if not whole.steps and not _saves_alike(run, whole, reference.vary):
            return False
    return True


def _saves_alike(run: _RankHistory, whole: _RankHistory, vary: frozenset[_EntryName]) -> bool:
    pairs = zip(run.saves, whole.saves, strict=False)
    return len(run.saves) <= len(whole.saves) and not any(
        save.series != theirs.series or _entries_apart(save, theirs, vary) for save, theirs in pairs
    )


def _loads(outcome: Outcome) -> dict[str, tuple[int, int]] | None:
    """Return of each series the newest save that the recovery loaded, with a rank that loaded it.

    The save is `_SEVERAL` if a load may be of several.  None if one is of no save, or if ranks loaded different saves:
    then the save from which the job resumed is not known.
    """
    found: dict[str, tuple[int, int]] = {}
    for series in series_of(outcome):
        newest: dict[int, int] = {}
        for load, steps in steps_of_loads(series.outcome):
            if not steps:
                return None
            newest[load.rank] = max(newest.get(load.rank, _SEVERAL), steps[0] if len({*steps}) == 1 else _SEVERAL)
        if len({*newest.values()}) > 1:
            return None
        for rank, step in newest.items():
            found.setdefault(series.name, (step, rank))
    return found


def _resumed_from(outcome: Outcome) -> str:
    loads = (_loads(outcome) or {}).items()
    said = [f"save {step} of {name}" if step > _SEVERAL else name for name, (step, _) in loads]
    return f"resumed from {' and '.join(said[:2])}" if said else "begun again"


def _by_steps(recovery: Outcome, reference: Uninterrupted, loads: Mapping[str, tuple[int, int]]) -> Iterator[_Compared]:
    """Compare the steps after the resumption, and the saves between them."""
    everyone = [_RankHistory.of(reference.outcome, rank) for rank in range(recovery.world.ranks)]
    begins = _resumed_at(recovery, everyone)
    if begins is None:
        known = [_steps_of(everyone, name, *load) for name, load in loads.items() if load[0] > _SEVERAL]
        if loads and not known:
            return
        begins = max(known, default=0)
    for rank, ours in enumerate(everyone):
        saved = _saves_before(ours, loads) or {}
        yield from _Beside(rank, everyone, begins, saved, reference.vary).compared(_RankHistory.of(recovery, rank))


@dataclass(frozen=True, slots=True)
class _Beside:
    """A rank of the undisturbed run, from the ``begins``-th of its steps on; it had ``saved`` so often by then."""

    rank: int
    everyone: Sequence[_RankHistory]
    begins: int
    saved: Mapping[str, int]
    vary: frozenset[_EntryName]

    @property
    def ours(self) -> _RankHistory:
        return self.everyone[self.rank]

    def compared(self, resumed: _RankHistory) -> Iterator[_Compared]:
        """Yield the steps and saves of a resumed rank, up to the first that differs."""
        written, random = resumed.by_step(), list[str]()
        for number, step in enumerate(resumed.steps[: len(self.ours.steps) - self.begins], 1):
            flaw = self._step_flaw(step, self.begins + number, random)
            yield _Compared(self.rank, (number, 0), flaw)
            for key, save in written.items() if not flaw else ():
                if key[1] == number and not flaw:
                    flaw = self._save_flaw(save, key, random)
                    yield _Compared(self.rank, (number, 1), flaw)
            if flaw:
                return

    def _step_flaw(self, step: TrainingStep, number: int, random: list[str]) -> str:
        """Return the flaw of a step, "" if it has none; ``random`` gets the generators that differed so far."""
        whole = self.ours.steps[number - 1]
        for name in (each for each in step.parts if each.startswith(RANDOM)):
            generator = name.removeprefix(RANDOM)
            if step.parts[name] != whole.parts.get(name) and not any(each.startswith(generator) for each in random):
                random.append(f"{generator} (from step {number} on)")
        apart = _effects(step, whole)
        if not apart:
            return ""
        said = [self._said(name, step, whole) for name in apart if not name.startswith(STATE)]
        states = [each for each in apart if each.startswith(STATE)]
        lost = [each.removeprefix(STATE) for each in states if each not in step.parts]
        other = [each.removeprefix(STATE) for each in states if each in step.parts]
        said += [f"without the optimizer's {' and '.join(lost)}"] if lost else []
        said += [f"with another {' and '.join(other)} of the optimizer"] if other else []
        return f"takes training step {number} {', '.join(said)}{_because(random)}"

    def _said(self, name: str, step: TrainingStep, whole: TrainingStep) -> str:
        """Return how a part of a step differs, in words that follow "takes training step 5"."""
        if name == BATCH:
            return self._batch_said(step.parts[BATCH])
        if name == PARAMETERS:
            return "with other parameters"
        given = step.parts.get(name, "nothing")
        same = next((at for at, each in enumerate(self.ours.steps, 1) if each.parts.get(name) == given), 0)
        that = f", that of step {same}," if same else ""
        return f"with {name.removeprefix(SETTING)} {given}{that} instead of {whole.parts.get(name, 'nothing')}"

    def _batch_said(self, batch: str) -> str:
        for rank in (self.rank, *range(len(self.everyone))):
            for number, step in enumerate(self.everyone[rank].steps, 1):
                if step.parts.get(BATCH) == batch:
                    return f"on {f'the batch of rank {rank}' if rank != self.rank else 'the batch'} of step {number}"
        return "on a batch that no step has had"

    def _save_flaw(self, save: Weights, key: tuple[str, int, int], random: Sequence[str]) -> str:
        """Return how a save differs from that of the same step, "" if it does not, or is the next one of its series.

        A save by another thread may begin at another step.
        """
        name, step, time = key
        whole = self.ours.by_step().get((name, self.begins + step, time))
        if whole is None:
            return ""
        flaw = _save_flaw(save, whole, self.ours, self.vary)
        next_ = self.saved.get(name, 0) + save.step
        if any((each.series, each.step) == (name, next_) and not _entries_apart(save, each, self.vary)
               for each in self.ours.saves):  # fmt: skip
            return ""
        return flaw and f"{flaw}{_because(random)}"


def _resumed_at(recovery: Outcome, everyone: Sequence[_RankHistory]) -> int | None:
    """Return how many steps came before the first step of the recovery, by its parameters; None if these are unknown.

    An asynchronous save begins when its thread does, so its place among the steps says less.
    """
    for rank, ours in enumerate(everyone):
        first = next(iter(_RankHistory.of(recovery, rank).steps), None)
        known = [each.parts.get(PARAMETERS) for each in ours.steps]
        if first is not None and known.count(first.parts[PARAMETERS]) == 1:
            return known.index(first.parts[PARAMETERS])
    return None


def _steps_of(everyone: Sequence[_RankHistory], name: str, step: int, rank: int) -> int:
    """Return how many steps came before a save: of the rank that loaded it, if that saved it, too."""
    for each in (everyone[rank], *everyone):
        for index, save in enumerate(each.saves):
            if (save.series, save.step) == (name, step):
                return each.steps_before(index)
    return 0


def _because(random: Sequence[str]) -> str:
    return f"; other random numbers: {', '.join(random)}" if random else ""


def _effects(step: TrainingStep, whole: TrainingStep) -> list[str]:
    """Return the parts of two steps that differ, causes first; random numbers that were not used have no effect.

    A batch that could not be digested is not compared, nor are tensors if those of one step were not looked at.
    """
    names = {*step.parts, *whole.parts}
    apart = [each for each in names if step.parts.get(each) != whole.parts.get(each) and not each.startswith(RANDOM)]
    if BATCH in apart and not (BATCH in step.parts and BATCH in whole.parts):
        apart.remove(BATCH)
    if not (PARAMETERS in step.parts and PARAMETERS in whole.parts):
        apart = [each for each in apart if each != PARAMETERS and not each.startswith(STATE)]
    order = (BATCH, SETTING, STATE, PARAMETERS)
    return sorted(apart, key=lambda name: (next(i for i, each in enumerate(order) if name.startswith(each)), name))


def _by_saves(recovery: Outcome, reference: Uninterrupted, loads: Mapping[str, tuple[int, int]]) -> Iterator[_Compared]:
    """Compare the saves after the resumption, counted by series."""
    for rank in range(recovery.world.ranks):
        ours, resumed = _RankHistory.of(reference.outcome, rank), _RankHistory.of(recovery, rank)
        done = _saves_before(ours, loads)
        if done is None:
            continue
        for number, save in enumerate(resumed.saves, 1):
            step = done.get(save.series, 0) + save.step
            theirs = next((each for each in ours.saves if (each.series, each.step) == (save.series, step)), None)
            if theirs is None:
                continue
            flaw = _save_flaw(save, theirs, ours, reference.vary)
            yield _Compared(rank, (number, 1), flaw)
            if flaw:
                break


def _saves_before(ours: _RankHistory, loads: Mapping[str, tuple[int, int]]) -> dict[str, int] | None:
    """Return how many saves of each series a rank had begun when it would have begun the one after those loaded.

    None if it saves none of the series that were loaded: then it is not known how far it was.
    """
    saved = {each.series for each in ours.saves}
    own = [(name, step) for name, (step, _) in loads.items() if step > _SEVERAL and name in saved]
    if loads and not own:
        return None
    later = [i for i, each in enumerate(ours.saves) for name, step in own if each.series == name and each.step > step]
    done: dict[str, int] = {}
    for save in ours.saves[: min(later, default=len(ours.saves) if own else 0)]:
        done[save.series] = save.step
    return done


def _save_flaw(save: Weights, whole: Weights, ours: _RankHistory, vary: frozenset[_EntryName]) -> str:
    """Return how a save differs from the undisturbed run's, "" if it does not."""
    names = _entries_apart(save, whole, vary)
    if all(_OF_RANDOM.search(f"{whole.series} {name}".lower()) for name in names):
        return ""
    old = {name: at for name in names if (at := _save_with(ours, save, name)) is not None}
    said = [f"{name} is that of save {at}" for name, at in old.items()][:2]
    rest = [name for name in names if name not in old]
    said += [f"{listed(rest)} differ{'s' * (len(rest) == 1)}"] if rest else []
    return f"writes save {whole.step} of {whole.series} with other contents: {'; '.join(said)}"


def _save_with(ours: _RankHistory, save: Weights, name: str) -> int | None:
    """Return a save of the undisturbed run that has the same value, if it is no tensor."""
    digest = save.tensors.get(name, "")
    if not digest or ":" in digest:
        return None
    return next(
        (each.step for each in ours.saves if each.series == save.series and each.tensors.get(name) == digest), None
    )


def _entries_apart(save: Weights, whole: Weights, vary: frozenset[_EntryName]) -> list[str]:
    """Return the names of entries that differ, plain values first."""
    names = sorted({*save.tensors, *whole.tensors})
    apart = [each for each in names if save.tensors.get(each) != whole.tensors.get(each)]
    apart = [each for each in apart if (whole.series, each) not in vary]
    return sorted(apart, key=lambda name: ":" in whole.tensors.get(name, ""))
