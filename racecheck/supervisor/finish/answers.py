"""Answer a stopped thread: with a result, with a descriptor, or by letting the kernel perform the call.

Nothing else in the supervisor answers: a call is answered exactly once, or its thread is gone.
"""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from typing import Any

from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.files.open_files import OpenFiles
from racecheck.supervisor.state.tasks import Rank, Request, Task


def answer(request: Request, result: Answer, files: OpenFiles) -> Answer:
    """Answer a call, which ends it; returns the result as the rank received it."""
    task = request.task
    if request in (task.request, task.wait):
        task.release()
    task.released = time.monotonic_ns()
    if result.opened >= 0:
        result = _hand_out(request, result, files)
    if result.opened < 0:
        answer_call(task.rank, request.id, result)
    request.close()
    return result


def _hand_out(request: Request, result: Answer, files: OpenFiles) -> Answer:
    """Install an opened file in the rank, which answers its call."""
    process, listener = request.task.process, request.task.rank.wire.listener
    assert listener is not None
    process.rank.wake()
    if result.is_unseen:
        installed = listener.give(request.id, result.opened, close_on_exec=result.close_on_exec)
        os.close(result.opened)
        return replace(result, value=installed) if installed >= 0 else Answer(errno=-installed)
    number = process.descriptors.free_number(request.op.args.get("minimum", 0))
    installed = listener.give(request.id, result.opened, number, close_on_exec=result.close_on_exec)
    if installed < 0:
        os.close(result.opened)
        return Answer(errno=errno.EMFILE if installed == -errno.EBADF else -installed)
    if request.call.family in {"dup", "fcntl"}:
        os.close(result.opened)
        process.descriptors.set(number, request.file)
    else:
        process.descriptors.set(number, files.add(result.opened))
    return replace(result, value=number)


def reply(task: Task, data: Any = None) -> None:
    """Answer a hypercall with JSON data; the thread continues."""
    stop = task.hypercall
    assert stop is not None
    raw = b"" if data is None else json.dumps(data).encode()
    error = 0
    if len(raw) > stop.room:
        raw, error = b"", errno.EOVERFLOW
    try:
        task.process.memory.write(stop.reply, raw)
    except OSError:
        raw, error = b"", errno.EFAULT
    task.release()
    task.released = time.monotonic_ns()
    answer_call(task.rank, stop.id, Answer(value=len(raw), errno=error))


def answer_call(rank: Rank, id_: int, result: Answer = CARRY_ON) -> None:
    """Answer a call by the number of its notification: by letting the kernel perform it, unless there is a result."""
    assert rank.wire.listener is not None
    rank.wake()
    if result.carry_on:
        rank.wire.listener.carry_on(id_)
    else:
        rank.wire.listener.answer(id_, result.value, result.errno)
