"""The identity of a defect, without its seed and its schedule: the function of the decisive op, and the error.

A baseline has to know a defect again, however it shows, and must not take another one for it.
"""

from __future__ import annotations

from pathlib import PurePath

from racecheck.invariants.failures import failures
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Op, Outcome, Raised, Violation
from racecheck.report.decisive import Role, decisive

_ORDER: tuple[Role, ...] = ("cause", "victim", "lost", "torn", "pair", "fault", "stale", "shown", "kill", "last")
"""The roles of events, the most telling first."""
_NAMES = frozenset({"mkdir", "rmdir", "unlink", "rename", "link", "symlink"})
_UNREADABLE = frozenset({
    "EOFError", "RuntimeError", "ValueError", "UnicodeDecodeError", "json.decoder.JSONDecodeError", "struct.error",
    "_pickle.UnpicklingError", "pickle.UnpicklingError", "zipfile.BadZipFile", "safetensors_rust.SafetensorError",
})  # fmt: skip
"""Errors that libraries raise for half a file; the type depends on where the file ends."""


def defect(violation: Violation, outcome: Outcome) -> str:
    """Return the function and the file of the decisive op, and the error: "unlink in save (saver.py), EOFError".

    The op is named only if it changes names: among ops on data, the schedule determines which one decides.  Parts that
    a failing run lacks are left out.
    """
    found = decisive(outcome, [violation])
    events = (outcome.trace[index] for index in map(found.first, _ORDER) if index is not None)
    op = next((each for each in events if isinstance(each, Op) and each.stack), None)
    return ", ".join([*([] if op is None else [_where(op)]), *_error(violation, outcome)])


def _where(op: Op) -> str:
    frame = user_frames(op.stack or ())[0]
    what = f"{op.call} in " if op.call in _NAMES else ""
    return f"{what}{frame.function} ({PurePath(frame.file).name})"


def _error(violation: Violation, outcome: Outcome) -> list[str]:
    """Return the type of the error that a violation is about, of the run or of its recovery; none if it names none."""
    for each in filter(None, (outcome, outcome.recovery)):
        for _, failure in failures(each):
            if isinstance(failure, Raised) and failure.type.rpartition(".")[2] in violation.message:
                return [_kind(failure)]
    return []


def _kind(failure: Raised) -> str:
    if failure.type == "OSError":
        return "unreadable" if failure.errno in {"", "EINVAL"} else failure.errno
    return "unreadable" if failure.type in _UNREADABLE else failure.type
