"""Names in reports: of an op, its result, a collective, a line of code.

All of it is text that can be printed on one line and whose width on a terminal is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePath

from rich.cells import cell_len, set_cell_size

from racecheck.model.frames import user_frames
from racecheck.model.nouns import Collective, Event, Frame, Op
from racecheck.model.ops import op_kinds
from racecheck.model.ops.lock_ops import begins_to_wait
from racecheck.model.ops.part_ops import FIRST, SECOND, part_of

_KINDS = {"": "none", "directory": "dir", "file": "file", "symlink": "link", "other": "other"}
_PARTS = {FIRST: "first ", SECOND: "last "}
"""The half of a call in two parts."""
_CUT = "..."
_ARROW = " -> "
_MINUTES = 100
"""Seconds from which on minutes are said."""


def escape(text: str) -> str:
    r"""Return ``text`` as one line of printable characters, with the rest escaped as in a string literal.

    Bytes of a name that are not UTF-8 (``os.fsdecode`` makes surrogates of them) become ``\xff``.  Marks stay
    on the letter they belong to; elsewhere they would change the width of the text before them.
    """
    return "".join(char if _is_plain(char, before) else _escaped(char) for before, char in pairwise(f" {text}"))


def _is_plain(char: str, before: str) -> bool:
    if not char.isprintable() or "\ufe00" <= char <= "\ufe0f":
        return False
    return cell_len(char) > 0 or before.isalnum() or cell_len(before) == 0


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def fit(text: str, width: int) -> str:
    """Return ``text``, cut on the right if it is wider than ``width`` cells."""
    if cell_len(text) <= width:
        return text
    mark = _CUT[: max(0, width)]
    return set_cell_size(text, max(0, width) - len(mark)) + mark


def fit_path(text: str, width: int, others: Collection[str] = ()) -> str:
    """Return ``text``, cut in its middle if it is wider than ``width`` cells.

    The cut is not where it differs from the ``others``, as far as that is possible.
    """
    if cell_len(text) <= width:
        return text
    if width <= len(_CUT) + 1:
        return _CUT[: max(0, width)]
    cuts = [*_cuts(text, width - len(_CUT))]
    unlike = (cut for cut in cuts if not any(_could_be(each, *cut) for each in others if each != text))
    head, tail = next(unlike, cuts[0])
    return head + _CUT + tail


def _cuts(text: str, room: int) -> Iterator[tuple[str, str]]:
    """Yield how a text can keep ``room`` cells of its two ends, first with a third of them at its start.

    It is less if the last name would not fit otherwise.
    """
    name = cell_len(text) - cell_len(text.rpartition("/")[0])
    best = min(room // 3, room - name if name <= room else room)
    for start in sorted(range(room + 1), key=lambda start: abs(start - best)):
        head = _start(text, start)
        yield head, _start(text[::-1], room - cell_len(head))[::-1]


def _start(text: str, width: int) -> str:
    end = 0
    while end < len(text) and (width := width - cell_len(text[end])) >= 0:
        end += 1
    return text[:end]


def _could_be(text: str, head: str, tail: str) -> bool:
    """Return whether a cut text could be this one."""
    return len(text) >= len(head) + len(tail) and text.startswith(head) and text.endswith(tail)


def fit_subject(text: str, width: int, others: Collection[str] = ()) -> str:
    """Return the text of `subject`, with each of its paths cut if necessary, and unlike the ``others``."""
    source, arrow, target = text.rpartition(_ARROW)
    if not arrow or width < 4 * len(_ARROW):
        return fit_path(text, width, others)
    room = width - len(arrow)
    source = fit_path(source, max(room // 2, room - cell_len(target)), others)
    return source + arrow + fit_path(target, room - cell_len(source), others)


def paths(subject: str) -> list[str]:
    """Return the paths in the text of `subject`."""
    return subject.split(_ARROW)


def pad(text: str, width: int) -> str:
    """Return ``text`` with blanks up to ``width`` cells."""
    return text + " " * (width - cell_len(text))


def count(number: int, singular: str, plural: str = "") -> str:
    """Return ``1 op``, ``2 ops``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Return ``50 s``, ``4 min``: a time of which nobody needs to know more."""
    return f"{max(1, round(seconds))} s" if seconds < _MINUTES else f"{round(seconds / 60)} min"


def ranks(numbers: Sequence[int]) -> str:
    """Return ``rank 3``, ``ranks 0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"rank{'s' if len(set(numbers)) != 1 else ''} {', '.join(shown)}"


def call(op: Op) -> str:
    """Return the call; with its thread where that is not the rank's main thread.  A kill says at which call it came."""
    thread = "" if op.thread == str(op.rank) else f"[{op.thread}] "
    return escape(thread) + call_name(op)


def call_name(op: Op) -> str:
    """Return the call without its thread."""
    if op.call == "kill":
        return escape(" ".join((op.syscall, *op.flags)))
    return escape(op.syscall if op.call == "store" else op.call)


def subject(op: Op) -> str:
    """Return the subject of an op: its paths, where a link leads that it follows, or how long it sleeps."""
    if op.call == "sleep":
        return f"{op.args.get('nanoseconds', 0) / 1e9:g} s"
    if op.call == "walk" and op.result is not None and op.result.text:
        return escape(op.path) + _ARROW + escape(op.result.text)
    return _ARROW.join(escape(place.path) for place in op.places)


def result(op: Op) -> str:
    """Return how the op ended, in a word, or its fault; "" if that is not known."""
    if op.call == "kill":
        return ""
    if op.fault.startswith("stale"):
        return f"{_result(op)} (stale)"
    return escape(f"{op.fault}, injected") if op.fault else _result(op)


def _result(op: Op) -> str:
    done = op.result
    if done is None or not done.known:
        return ""
    if op.call == "stat" and done.errno in {"", "ENOENT"}:
        return "none" if done.errno or not op.places else _KINDS[op.places[-1].kind]
    return escape(done.errno) or _success(op, done.size)


def _success(op: Op, size: int) -> str:
    if op.call in op_kinds.MOVES:
        return f"{_PARTS.get(part_of(op), '')}{size} B"
    if op.call == "list":
        return count(size, "entry", "entries") if size else "end"
    if op.call == "open":
        return _opened(op)
    if begins_to_wait(op):
        return "waits"
    return "unlocked" if "LOCK_UN" in op.flags else "ok"


def _opened(op: Op) -> str:
    if op_kinds.creates(op):
        return "new"
    return "emptied" if op_kinds.truncates(op) else "ok"


def collective(event: Collective, *, group: bool) -> str:
    """Return ``broadcast #3, root 1``; with its group where there are several."""
    name = escape(f"{event.kind} #{event.number}" + (f" of group {event.group}" if group else ""))
    if event.kind == "send/recv":
        return f"{name}, {_ARROW.join(map(str, event.ranks))}"
    return f"{name}, root {event.root}" if event.root >= 0 else name


def where(event: Event, root: Path) -> str:
    """Return the line of the user's code that made the event, "" if it is not known."""
    if isinstance(event, Op):
        return line_of(event.stack or (), root)
    lines = sorted({line_of(stack, root) for stack in event.stacks.values()} - {""})
    return lines[0] + (f" and {len(lines) - 1} more" if len(lines) > 1 else "") if lines else ""


def line_of(stack: Sequence[Frame], root: Path) -> str:
    """Return the innermost line of the user's code, "" for an empty stack."""
    found = user_frames(stack)
    return frame_line(found[0], root) if found else ""


def replay_command(finding: str, target: str) -> str:
    """Return the command that runs a finding again; a scenario outside the current directory needs permission."""
    return f"racecheck replay {finding}{' --trust' if PurePath(target.partition('::')[0]).is_absolute() else ''}"


def here() -> Path:
    """Return the current directory; the root if it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def frame_line(frame: Frame, root: Path) -> str:
    """Return ``file:line function``; the file relative to ``root`` if below it, else its last two parts."""
    path = PurePath(frame.file)
    if path.is_absolute():
        parts = path.relative_to(root).parts if path.is_relative_to(root) else path.parts[-2:]
        path = PurePath(*parts)
    return escape(f"{path}:{frame.line or '?'} {frame.function}")


def fit_line(line: str, width: int) -> str:
    """Return a line of `frame_line` in ``width`` cells: it loses its directory, then its function, never its number."""
    place, _, function = line.partition(" ")
    name, _, number = place.rpartition("/")[2].rpartition(":")
    for shorter in (line, f"{name}:{number} {function}".rstrip(), f"{name}:{number}"):
        if cell_len(shorter) <= width:
            return shorter
    room = width - len(number) - 1
    return f"{fit_path(name, room)}:{number}" if number and room > 0 else fit(number or line, width)
