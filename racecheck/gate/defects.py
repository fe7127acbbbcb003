"""The identity of a defect, without its seed and its schedule: the function of the decisive op, and the error.

A baseline has to know a defect again, however it shows, and must not take another one for it.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from racecheck.invariants.failures import failures
from racecheck.invariants.resuming import cause
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Event, Frame, Op, Outcome, Raised, Stopped, Violation
from racecheck.model.ops import op_kinds
from racecheck.report.changes import changes
from racecheck.report.decisive import Decisive, EventRole, decisive
from racecheck.report.sentence import plain, sentence

_ORDER: tuple[EventRole, ...] = ("cause", "victim", "lost", "torn", "pair", "fault", "stale", "shown", "kill", "last")
"""The roles of events, the most telling first."""
_NUMBER = re.compile(r"\d+")
_RESUMES, _DAMAGE = "resume-equals", "damage-refused"
_WAITING = frozenset({"no-deadlock", "equal-collectives"})
_NAMES = frozenset({"mkdir", "rmdir", "unlink", "rename", "link", "symlink"})
_UNREADABLE = frozenset({
    "EOFError", "RuntimeError", "ValueError", "UnicodeDecodeError", "json.decoder.JSONDecodeError", "struct.error",
    "_pickle.UnpicklingError", "pickle.UnpicklingError", "zipfile.BadZipFile", "safetensors_rust.SafetensorError",
})  # fmt: skip
"""Errors that libraries raise for half a file; the type depends on where the file ends."""


def defect(violation: Violation, outcome: Outcome) -> str:
    """Return the function and the file of the decisive op, and the error: "unlink in save (saver.py), EOFError".

    The op is named only if it changes names: among ops on data, the schedule determines which one decides.  Parts that
    a failing run lacks are left out.  If ranks wait for each other it is the function in which the first of them waits.
    A resumed job that is another one is identified by the first part that it lacks: the place of the interruption has
    nothing to do with that.  A damaged file that is taken for whole is identified by its name and the kind of damage.
    """
    if violation.invariant == _RESUMES:
        return cause(violation.message)
    if violation.invariant == _DAMAGE:
        return _NUMBER.sub("#", violation.message)
    waits = _waits(violation, outcome)
    if waits is not None:
        return _function(waits)
    op = _decides(outcome, decisive(outcome, [violation]))
    return ", ".join([*([] if op is None else [_where(op)]), *_error(violation, outcome)])


def place_and_sentence(violation: Violation, outcome: Outcome) -> tuple[str, str]:
    """Return the line of code of the decisive op ("save (saver.py:12)"), and the sentence about the run."""
    found = decisive(outcome, [violation])
    if violation.invariant in {_RESUMES, _DAMAGE}:
        return "", plain(sentence(outcome, [violation], found))
    frame, op = _waits(violation, outcome), _decides(outcome, found)
    if frame is None and op is not None:
        frame = user_frames(op.stack or ())[0]
    place = f"{frame.function} ({PurePath(frame.file).name}:{frame.line})" if frame is not None else ""
    return place, plain(sentence(outcome, [violation], found))


def _waits(violation: Violation, outcome: Outcome) -> Frame | None:
    """Return where a rank stands that waits for others in vain; None for a violation of another kind.

    Which fault or order keeps the others away has nothing to do with it: they never come.
    """
    if violation.invariant not in _WAITING:
        return None
    mismatched = outcome.mismatch.stacks if outcome.mismatch is not None else {}
    ended = [each.stack for each in outcome.results if isinstance(each, Stopped) and each.kind != "echo"]
    return next((user_frames(stack)[0] for stack in (*ended, *mismatched.values()) if stack), None)


def _decides(outcome: Outcome, found: Decisive) -> Op | None:
    """Return the op that decides; if a crash has taken nothing, the last change before it."""
    told = [index for index in map(found.first, _ORDER) if index is not None]
    happened = [*reversed(outcome.crash.happened)] if outcome.crash is not None else []
    trace = outcome.trace
    before = [each for each in happened if each < len(trace) and _is_change(trace[each])]
    events = [trace[index] for index in (*told, *before) if index < len(trace)]
    return next((each for each in events if isinstance(each, Op) and each.stack), None)


def _is_change(event: Event) -> bool:
    return isinstance(event, Op) and (changes(event) or event.call in op_kinds.WRITES)


def _where(op: Op) -> str:
    what = f"{op.call} in " if op.call in _NAMES else ""
    return f"{what}{_function(user_frames(op.stack or ())[0])}"


def _function(frame: Frame) -> str:
    return f"{frame.function} ({PurePath(frame.file).name})"


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
