"""Announcements that are ops: where a thread stops because another one may go first.

Two kinds of announcement depend on other ranks: a question (is a collective complete?) and an operation on the store.
The others depend on the other threads of the rank: that a thread begins, that it has left a collective, that it asks
whether another one is alive, that its interpreter ends.  They are ops in a rank that has, or has had, several threads
or processes; in any other they are answered at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from racecheck.model.nouns import Op, Place
from racecheck.model.vector_clock import join
from racecheck.processes.stacks import frames
from racecheck.supervisor.threads.store import keys_of
from racecheck.supervisor.threads.tasks import Task

AMONG_THREADS: Mapping[str, str] = {
    "thread": "begin",
    "item": "begin",
    "begun": "begin",
    "started": "start",
    "submitted": "start",
    "poll": "poll",
    "end of item": "end",
    "end of thread": "end",
    "left": "leave",
    "weights": "tell",
    "shutdown": "shutdown",
    "finalise": "finalise",
}
"""The family of each announcement that is an op because of the other threads of its rank."""

CONDITION = (
    "threads and processes of a rank are switched only at their ops: in-memory locks and the GIL are as observed"
)


def announced_op(task: Task, *, stacks: bool) -> Op | None:
    """Return the op of a thread's announcement, with its stack if ``stacks``; None if it needs no choice."""
    op = _found(task)
    return op if op is None or stacks else replace(op, stack=None)


def _found(task: Task) -> Op | None:
    assert task.announcement is not None
    message = task.announcement.message
    kind = message["is"]
    if kind == "test":
        return _op(task, "test", "is_completed")
    if kind == "store" and not message["settled"]:
        keys = keys_of(message["do"], message["arguments"]) or ["*"]
        return _op(task, "store", message["do"], *(Place(f"store:{key}", 0, str(key), 0, "") for key in keys))
    if not task.rank.shared:
        return None
    if kind == "issue":
        group = message["group"]
        return _op(task, "issue", message["kind"], Place(f"{message['kind']} of group {group}", 0, group, 0, ""))
    if kind == "item":
        task.name = message["name"]
        join(task.clock, task.rank.items.get(task.name, {}))
    return _op(task, AMONG_THREADS[kind], message.get("at", kind)) if kind in AMONG_THREADS else None


def _op(task: Task, family: str, name: str, *places: Place) -> Op:
    assert task.announcement is not None
    stack = frames(task.announcement.message.get("stack"))
    return Op(task.rank.number, task.name, family, name, places, stack=stack, alone=not task.rank.shared)
