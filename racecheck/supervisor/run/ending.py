"""The end of a run: each rank's result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from racecheck.agent.spawning import ENDED
from racecheck.model.errors import UsageError
from racecheck.model.hypercalls import Wait
from racecheck.model.nouns import Died, Frame, Raised, RankResult, Returned, Stopped, Weights
from racecheck.sessions import stacks
from racecheck.sessions.stacks import frames
from racecheck.supervisor.calls import locks
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.collectives import Instance
from racecheck.supervisor.state.tasks import Rank


def hear(rank: Rank) -> None:
    """Take in the result that a rank has sent; raises `UsageError` if it is not one."""
    for line in rank.wire.lines():
        message = json.loads(line)
        if "usage" in message:
            raise UsageError(message["usage"])
        if "weights" in message:
            rank.end.weights.append(Weights(rank=rank.number, **message["weights"]))
            continue
        rank.end.modules = message["modules"]
        rank.end.result = result_of(message["result"])


def tell_parent(state: RunState) -> None:
    """Let the rank that starts the others know which of them have ended since, in the order of ranks.

    When it has ended itself, those that it has not started end, too.
    """
    if state.crew.parent is None:
        return
    store = state.crew.store
    for rank in state.ranks:
        if state.crew.parent.gone and f"process {rank.number}" not in store:
            store.do("set", [f"process {rank.number}", b"never".hex()], state.crew.parent.end.clock)
        if rank.gone and rank.number not in state.crew.told_ends and rank is not state.crew.parent:
            state.crew.told_ends.add(rank.number)
            value = json.dumps([rank.number, rank.end.status]).encode().hex()
            store.do("set", [f"{ENDED}{len(state.crew.told_ends)}", value], rank.end.clock)


def result_of(sent: Mapping[str, Any]) -> RankResult:
    """Return a rank's result, as the agent sends it."""
    raw = dict(sent)
    kind = raw.pop("type_name")
    if kind == "Returned":
        return Returned(raw["value"])
    if kind == "Died":
        return Died(**raw)
    raw["stack"] = tuple(Frame(**each) for each in raw["stack"])
    raw["bases"] = tuple(raw["bases"])
    return Raised(**raw)


def conclude(state: RunState, why: str) -> tuple[RankResult, ...]:
    """Return the result of every rank, or where it was; ``why`` the run was cut short, or ""."""
    for rank in state.ranks:
        hear(rank)
    if state.collectives.ambiguous:
        state.ledger.hole("a receive from any source: other senders")
    failed = any(isinstance(rank.end.result, (Raised, Died)) for rank in state.ranks)
    results = [
        _stop(state, rank, why, failed=failed) if rank.end.result is None or rank.phase.is_awaited else rank.end.result
        for rank in state.ranks
    ]
    if all(isinstance(each, Raised) and each.echo for each in results if isinstance(each, (Raised, Died))):
        results = [
            _without_cause(state, rank, each) if isinstance(each, Raised) else each for rank, each in enumerate(results)
        ]
    return tuple(
        rank.end.lost if rank.end.lost is not None and isinstance(result, Returned) else result
        for rank, result in zip(state.ranks, results, strict=True)
    )


def _without_cause(state: RunState, rank: int, echo: Raised) -> Raised:
    """Return a rank whose connection was closed, though none has failed: its peer has ended, and will not come.

    If the code that handles that error has raised another one, that is a failure of its own.
    """
    instance = state.collectives.unfinished(rank)
    if instance is None or "RuntimeError" not in {echo.type, *echo.bases}:
        return replace(echo, echo=False)
    missing = ", ".join(_missing(state.ranks[each]) for each in instance.missing)
    return replace(echo, echo=False, lacks=f"{instance} lacks {missing}")


def _stop(state: RunState, rank: Rank, why: str, *, failed: bool) -> Stopped:
    """Return why a rank cannot continue: it is in a deadlock, another rank failed, or the time is over."""
    if why and rank.phase.is_awaited:
        return Stopped("running", why, stack_now(rank))
    locked = [task for task in rank.stopped_tasks() if task.request is not None]
    instance = _waits_for(state, rank)
    if instance is not None:
        missing = ", ".join(_missing(state.ranks[each]) for each in instance.missing) or "its data"
        return Stopped("echo" if failed else "collective", f"waits in {instance} for {missing}", stack_now(rank))
    for task in locked:
        if task.request is not None and not locks.is_enabled(task.request, state.locks):
            return Stopped("lock", f"waits for the lock on {task.request.op.path}", stack_now(rank))
    if state.is_livelocked and not why:
        said = state.livelock.said(rank.number)
        does = f"repeats {said}" if said else "sleeps again and again"
        return Stopped("echo" if failed else "asleep", f"{does}, and nothing can change that", stack_now(rank))
    if why or state.told.mismatch:
        return Stopped("running" if why else "echo", why or "the run was stopped", stack_now(rank))
    return Stopped("echo" if failed else "asleep", "sleeps and nothing can wake it", stack_now(rank))


def _waits_for(state: RunState, rank: Rank) -> Instance | None:
    """Return the collective that a thread of a rank is held before, or was let into and has not left."""
    for task in rank.tasks.values():
        if isinstance(task.call, Wait):
            return state.collectives.instance(task.call.ticket)
        if task.inside is not None:
            return task.inside
    return None


def _missing(rank: Rank) -> str:
    if rank.end.result is None:
        return f"rank {rank.number}"
    return f"rank {rank.number}, which has {'returned' if isinstance(rank.end.result, Returned) else 'failed'}"


def stack_now(rank: Rank) -> tuple[Frame, ...]:
    """Return where a rank is: at the thread that is stopped, or else at the main one."""
    for task in rank.stopped_tasks():
        if task.call is not None:
            return frames(task.call.stack)
        if task.request is not None:
            return task.request.op.stack or ()
    if not rank.gone and rank.main.wait is not None:
        return rank.main.wait.op.stack or ()
    return () if rank.gone or rank.past.replaced else stacks.capture(rank.pid, rank.pid, rank.wire.stack_pipe) or ()
