"""Hypercalls that are ops: a thread stops there because another one may go first.

Two kinds depend on other ranks: a question (is a collective complete?) and an operation on the store.  The others
depend on the other threads of the rank (`racecheck.model.hypercalls.AmongThreads`).  They are ops in a rank that has,
or has had, several threads or processes; in any other they are answered at once.
"""

from __future__ import annotations

from dataclasses import replace

from racecheck.model.hypercalls import AmongThreads, AskComplete, BeginItem, Issue, Poll, UseStore
from racecheck.model.nouns import Op, Place
from racecheck.model.vector_clock import join
from racecheck.sessions.stacks import frames
from racecheck.supervisor.state.store import keys_of
from racecheck.supervisor.state.tasks import Task

CONDITION = (
    "threads and processes of a rank are switched only at their ops: in-memory locks and the GIL are as observed"
)


def op_of(task: Task, *, stacks: bool) -> Op | None:
    """Return the op of the hypercall that a thread is stopped in, with its stack if ``stacks``; None if it is none."""
    op = _found(task)
    return op if op is None or stacks else replace(op, stack=None)


def _found(task: Task) -> Op | None:
    match task.call:
        case AskComplete():
            return _op(task, "test", "is_completed")
        case UseStore(do=do, arguments=arguments, settled=False):
            keys = keys_of(do, arguments) or ["*"]
            return _op(task, "store", do, *(Place(f"store:{key}", 0, str(key), 0, "") for key in keys))
        case Issue(kind=kind, group=group) if task.rank.past.shared:
            return _op(task, "issue", kind, Place(f"{kind} of group {group}", 0, group, 0, ""))
        case AmongThreads() as call if task.rank.past.shared:
            if isinstance(call, BeginItem):
                task.name = call.item or task.name
                join(task.clock, task.rank.items.get(task.name, {}))
            return _op(task, call.family, call.at if isinstance(call, Poll) else call.name)
    return None


def _op(task: Task, family: str, name: str, *places: Place) -> Op:
    assert task.call is not None
    return Op(
        task.rank.number,
        task.name,
        family,
        name,
        places,
        stack=frames(task.call.stack),
        alone=not task.rank.past.shared,
    )
