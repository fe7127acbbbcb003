"""The hypercalls that are answered at once, whatever other threads do."""

from __future__ import annotations

from racecheck.model.errors import UsageError
from racecheck.model.hypercalls import (
    UNTRIED_LOOKS,
    AtOnce,
    BecomeParent,
    Limit,
    Looks,
    LooksAtClock,
    LooksAtTime,
    MakesGroup,
    Note,
    ObservedStep,
    ObservedWeights,
    Sleeps,
    StartsChild,
    Submit,
    ThreadFailed,
    Usage,
)
from racecheck.model.nouns import TrainingStep, Weights
from racecheck.supervisor.run.ending import result_of
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Task

CLOCKS = "the program reads clocks: other readings were not tried"


def answer_at_once(state: RunState, task: Task, call: AtOnce) -> str | None:
    """Note a hypercall of a thread; returns the answer, which most do not have.

    Raises `UsageError` if the program does something that cannot be controlled.
    """
    match call:
        case Submit():
            return _submit(task)
        case StartsChild():
            task.rank.past.shared = True
        case MakesGroup(group=group, begins=begins):
            task.makes_group = begins
            state.collectives.shut.pop(
                (task.rank.number, group), None
            )  # a group that is made again, after its end, has the same name
        case Limit(nanoseconds=nanoseconds):
            task.limit = nanoseconds
        case _:
            _note(state, task, call)
    return None


def _submit(task: Task) -> str:
    """Note that a thread gives work to a pool; returns the name of the work."""
    name = task.next_child()
    task.rank.items[name] = dict(task.clock)
    task.hiring = True
    return name


def _note(state: RunState, task: Task, call: AtOnce) -> None:
    """Note a hypercall that concerns the run, not how its thread goes on."""
    rank = task.rank
    match call:
        case Sleeps(state=digest):
            state.livelock.look(task.name, digest)
        case Looks(at=at):
            state.ledger.untried(UNTRIED_LOOKS[at])
        case LooksAtTime(nanoseconds=nanoseconds):
            state.told.look(nanoseconds)
        case LooksAtClock(of_day=of_day):
            _look_at_clock(state, rank.number, of_day=of_day)
        case Note(text=text):
            state.ledger.note(text)
        case Usage(text=text):
            raise UsageError(text)
        case ThreadFailed(result=result):
            rank.end.lost = rank.end.lost or result_of(result)
        case ObservedWeights() | ObservedStep():
            _observe(state, rank.number, call)
        case BecomeParent():
            state.crew.parent = rank


def _observe(state: RunState, rank: int, call: ObservedWeights | ObservedStep) -> None:
    """Keep what a program was observed to do."""
    if isinstance(call, ObservedStep):
        state.told.steps.append(TrainingStep(rank, **call.said))
    else:
        state.told.weights.append(Weights(rank, event=len(state.trace), **call.said))


def _look_at_clock(state: RunState, rank: int, *, of_day: bool) -> None:
    state.ledger.note(CLOCKS)
    state.livelock.reset()
    if of_day:
        state.told.times.setdefault(rank, state.time.now + state.time.ahead[rank])
