"""Answer a stopped thread: with a result, with a descriptor, or by letting the kernel perform the call."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from typing import Any

from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.files.open_files import OpenFiles
from racecheck.supervisor.threads.tasks import Request, Task


def answer(request: Request, result: Answer, files: OpenFiles) -> Answer:
    """Answer a call, which ends it; returns the result as the rank received it."""
    listener = request.task.rank.listener
    assert listener is not None
    request.task.released = time.monotonic_ns()
    if result.opened >= 0:
        result = _hand_out(request, result, files)
    if result.opened < 0:
        if result.carry_on:
            listener.carry_on(request.id)
        else:
            listener.answer(request.id, result.value, result.errno)
    request.close()
    return result


def _hand_out(request: Request, result: Answer, files: OpenFiles) -> Answer:
    """Install an opened file in the rank, which answers its call."""
    process, listener = request.task.process, request.task.rank.listener
    assert listener is not None
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
    """Answer an announcement with JSON data; the thread continues."""
    announced, listener = task.announcement, task.rank.listener
    assert announced is not None
    assert listener is not None
    raw = b"" if data is None else json.dumps(data).encode()
    error = 0
    if len(raw) > announced.room:
        raw, error = b"", errno.EOVERFLOW
    try:
        task.process.memory.write(announced.reply, raw)
    except OSError:
        raw, error = b"", errno.EFAULT
    task.announcement = None
    task.released = time.monotonic_ns()
    task.rank.running = True
    listener.answer(announced.id, len(raw), error)
