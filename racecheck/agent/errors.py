"""Exceptions that end a rank, as data."""

from __future__ import annotations

import errno as errno_module
import os
import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from racecheck.agent.hypercalling import ECHO, OURS
from racecheck.agent.job import Job
from racecheck.kernel import libc
from racecheck.model.nouns import Frame, Raised

_LOST = re.compile(r"gloo/transport/.*(closed by peer|reset by peer|Broken pipe|Timed out)", re.DOTALL)
"""gloo's messages about a peer that is gone."""


def raised(error: BaseException, rank: int, job: Job) -> Raised:
    """Return an exception as data, with paths as they are shown: the watched directory differs between sessions.

    One that only reports other ranks' failures (torch's ``CheckpointException`` has them by rank in
    ``failures``) stands for this rank's own failure, and is an echo where there is none.
    """
    cause, echo = _cause(error, rank)
    number = cause.errno if isinstance(cause, OSError) else None
    return Raised(
        type=_name(type(cause)),
        message=_shown(str(cause), job)[:2000],
        bases=tuple(_name(each) for each in type(cause).__mro__[1:-1]),
        errno=libc.errno_name(number or 0),
        path=_path(cause, job) if isinstance(cause, OSError) else "",
        stack=frames_of(cause.__traceback__),
        echo=echo,
        causes=tuple(_causes(cause)),
    )


def _cause(error: BaseException, rank: int) -> tuple[BaseException, bool]:
    failures = getattr(error, "failures", None)
    if hasattr(error, "error_index"):  # torch.multiprocessing reports a process that has failed
        return error, True
    if isinstance(failures, dict) and failures:
        own = failures.get(rank)
        found = own[0] if isinstance(own, tuple) else own
        return (found, False) if isinstance(found, BaseException) else (error, True)
    return error, _from_collective(error)


def _causes(error: BaseException) -> Iterator[str]:
    """Yield the errnos, by name, of the exceptions behind one."""
    seen = {id(error)}
    while (behind := error.__cause__ or error.__context__) is not None and id(behind) not in seen:
        if isinstance(behind, OSError) and behind.errno:
            yield libc.errno_name(behind.errno)
        seen.add(id(behind))
        error = behind


def _from_collective(error: BaseException | None) -> bool:
    """Return whether an exception comes from a collective's failure.

    `process_group` marks failures of collectives that Python calls; those of C++ (in DDP's backward) show in the text.
    If the code that handles such a failure gets an error of a system call, that is a failure of its own.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if ECHO in vars(error):
            return bool(vars(error)[ECHO])
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
            return False
        if type(error) is RuntimeError and _LOST.search(str(error)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(message: str, job: Job) -> str:
    for root, name in ((job.watched, "."), (job.scratch, "TMPDIR")):
        message = message.replace(f"{root}/", f"{name}/".removeprefix("./")).replace(root, name)
    return message


def _name_of(error: OSError) -> Any:
    """Return the name that the error is about: of two, the new one if that is taken."""
    taken = error.errno in {errno_module.EEXIST, errno_module.ENOTEMPTY}
    return error.filename2 if taken and error.filename2 is not None else error.filename


def _path(error: OSError, job: Job) -> str:
    """Return the path of an error, as places show it."""
    name = _name_of(error)
    text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
    for root, shown in ((job.watched, "."), (job.scratch, "TMPDIR")):
        if f"{text}/".startswith(f"{root}/"):
            return os.path.normpath(f"{shown}/{os.path.relpath(text, root)}")
    return text


def frames_of(trace: TracebackType | None) -> tuple[Frame, ...]:
    """Return a stack, innermost frame first; the module ``traceback`` would read the source files."""
    found: list[Frame] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(OURS):
            found.insert(0, Frame(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return tuple(found)
