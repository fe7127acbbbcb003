"""The training steps that the ranks of a scenario declare (`racecheck.Rank.trained`), after an interruption or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from racecheck.invariants.disk import listed
from racecheck.model.nouns import Outcome, Violation
from racecheck.model.training_parts import OPAQUE

_Declared = Mapping[tuple[int, int], Mapping[str, str]]
"""The digests of a state by rank and step."""


def declares(outcome: Outcome) -> bool:
    """Return whether the ranks of a run declare steps."""
    return any(each.kind == "trained" for each in outcome.weights)


def differing(outcome: Outcome, whole: Outcome) -> Iterator[Violation]:
    """Yield how the recovery of a run differs from the ``whole`` run first: with the ranks of which a state does.

    Judged is a recovery of as many ranks, if the run before it came to the states of the whole run, as far as it came.
    """
    recovery = outcome.recovery
    if recovery is None or not continues(outcome, whole):
        return
    apart = _apart(recovery, whole)
    if not apart:
        return
    step, rank = min((step, rank) for rank, step in apart)
    loaded = max((each.step for each in recovery.weights if each.kind == "loaded"), default=0)
    begun = f"resumed from step {loaded}" if loaded else "after the restart"
    when = "from the start" if step == loaded else f"after step {step}"
    ranks = tuple(sorted({each for each, _ in apart}))
    yield Violation("resume-equals", f"{begun}, rank {rank} {apart[rank, step]} {when}", ranks)


def continues(outcome: Outcome, whole: Outcome) -> bool:
    """Return whether a recovery came to a state that can be compared with the whole run's."""
    recovery = outcome.recovery
    if recovery is None or recovery.world.ranks != whole.world.ranks or _apart(outcome, whole):
        return False
    return not _declared(recovery).keys().isdisjoint(_declared(whole))


def why_not(whole: Outcome, other: Outcome) -> str:
    """Return why nothing can be compared with a ``whole`` run; ``other`` is one more under other circumstances."""
    recovery = whole.recovery
    if recovery is None or not declares(recovery):
        return "the recovery declares no state with `trained`, so it is not compared with an uninterrupted run"
    if recovery.world.ranks != whole.world.ranks:
        return "the recovery has another number of ranks, so it is not compared with an uninterrupted run"
    for state in (*_declared(whole).values(), *_declared(recovery).values()):
        if not state:
            return "a state has no entry, so it is not compared with an uninterrupted run"
        opaque = [f"{name} ({each.removeprefix(OPAQUE)})" for name, each in state.items() if each.startswith(OPAQUE)]
        if opaque:
            return f"a state has {listed(opaque)}, which cannot be compared: give tensors, arrays, numbers or texts"
    apart = _apart(other, whole)
    if not apart:
        return ""
    step, rank = min((step, rank) for rank, step in apart)
    said = f"rank {rank} {apart[rank, step]} after step {step}"
    return f"a second run that nobody interrupted differs: {said}; leave out of a state what may differ"


def _apart(one: Outcome, whole: Outcome) -> dict[tuple[int, int], str]:
    """Return how the states of a run differ from those of the same rank and step in the whole run."""
    due = _declared(whole)
    found = {key: _flaw(state, due[key]) for key, state in _declared(one).items() if key in due}
    return {key: flaw for key, flaw in found.items() if flaw}


def _declared(outcome: Outcome) -> _Declared:
    """Return the declared states; of a step that was declared twice, the last."""
    return {(each.rank, each.step): each.tensors for each in outcome.weights if each.kind == "trained"}


def _flaw(state: Mapping[str, str], due: Mapping[str, str]) -> str:
    """Return how a state differs, as the end of a sentence about a rank."""
    lost = [name for name in due if name not in state]
    other = [name for name in state if state[name] != due.get(name)]
    said = [f"lacks {listed(lost)}"] if lost else []
    said += [f"has another {listed(other)}"] if other else []
    return " and ".join(said)
