"""How each rank ended, and the coverage of the run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len

from racecheck.invariants.failures import is_echo
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Coverage, Died, Frame, Mismatch, Op, Outcome, Raised, RankResult, Returned, Stopped
from racecheck.report import words
from racecheck.report.layout import NARROWEST

_SMALL = 60
_MESSAGE = 240
_FRAMES = 6
_READS = frozenset({"mmap", "open", "read"})
_INDENT = "    "


def summary(outcome: Outcome, *, width: int = 120, root: Path | None = None) -> str:
    """Return a line for every rank: its value, exception or wait; a mismatch of collectives after them.

    Longer lines are wrapped at ``width`` cells (at 40, if less is asked for).  Below a stopped rank
    stands its stack, below a dead one the end of its output.  The ranks of the recovery come last.
    """
    width, root = max(width, NARROWEST), root or words.here()
    lines = list(_ranks(outcome, "rank", width, root))
    if outcome.recovery is not None:
        lines += _ranks(outcome.recovery, "recovery, rank", width, root)
    return "\n".join(lines)


def _ranks(outcome: Outcome, name: str, width: int, root: Path) -> Iterator[str]:
    for rank, result in enumerate(outcome.results):
        label = words.pad(f"{name} {rank}", len(f"{name} {len(outcome.results) - 1}"))
        yield from _wrap(f"{label}  {_how(result, root)}{_read(rank, outcome)}{_echo(rank, outcome)}", width)
        yield from (words.fit(2 * _INDENT + line, width) for line in _below(rank, outcome, root))
    if outcome.mismatch is not None:
        yield from _mismatch(outcome.mismatch, width, root)


def _how(result: RankResult, root: Path) -> str:
    if isinstance(result, Returned):
        value = words.escape(repr(result.value))
        return "returned" if result.value is None or cell_len(value) > _SMALL else f"returned {value}"
    if isinstance(result, Raised):
        thread = f", in thread {words.escape(result.thread)}; the rank returned" if result.thread else ""
        return f"raised {_raised(result, root)}{thread}"
    if isinstance(result, Died):
        return f"died by {words.escape(result.signal)}" if result.signal else f"exit status {result.status}"
    return f"did not end: {words.escape(result.why)}"


def _raised(result: Raised, root: Path) -> str:
    """Return ``Type: first line of the message (file:line function)``."""
    first = next((line for line in result.message.splitlines() if line.strip() and not result.echo), "")
    message = words.fit(words.escape(first), _MESSAGE)
    line = words.line_of(result.stack, root)
    return words.escape(result.type) + (f": {message}" if message else "") + (f" ({line})" if line else "")


def _read(rank: int, outcome: Outcome) -> str:
    """Return which file a rank had read last that failed for what it read, with the file's size, if it is there."""
    result = outcome.results[rank]
    if not isinstance(result, Raised) or result.errno or result.echo:
        return ""
    own = [each for each in outcome.trace if isinstance(each, Op) and each.rank == rank and each.places]
    last = next((each for each in reversed(own) if each.call in _READS), None)
    path = last.path if last is not None else ""
    entry = outcome.disk.get(path)
    if entry is None or entry.kind != "file" or any(each.call == "write" and each.path == path for each in own):
        return ""
    return f", after it had read {words.escape(path)} ({words.count(entry.size, 'byte')})"


def _echo(rank: int, outcome: Outcome) -> str:
    """Return whose failure the rank's own is an echo of."""
    if not is_echo(outcome, rank):
        return ""
    failed = [number for number, each in enumerate(outcome.results) if isinstance(each, (Raised, Died))]
    causes = [number for number in failed if not is_echo(outcome, number)]
    return f", caused by {words.ranks(causes)}" if causes else ""


def _below(rank: int, outcome: Outcome, root: Path) -> list[str]:
    """Return the stack of a rank that was stopped, the last output of one that died, unless racecheck killed it.

    The stacks of a mismatch stand there.
    """
    result, mismatch = outcome.results[rank], outcome.mismatch
    if isinstance(result, Stopped):
        return _stack(result.stack, root) if mismatch is None or rank not in mismatch.stacks else []
    if isinstance(result, Died) and not any(isinstance(each, Op) and each.call == "kill" for each in outcome.trace):
        return [f"| {words.escape(line)}" for line in result.output.splitlines() if line.strip()][-_FRAMES:]
    return []


def _stack(stack: Sequence[Frame], root: Path) -> list[str]:
    return [words.frame_line(frame, root) for frame in user_frames(stack)[:_FRAMES]]


def _mismatch(mismatch: Mismatch, width: int, root: Path) -> Iterator[str]:
    """Return the calls that differ, each with the ranks that made it from the same place."""
    group = words.escape(mismatch.group)
    yield from _wrap(f"collective #{mismatch.number} of group {group} differs between ranks:", width)
    for (call, stack), ranks in _same(mismatch.calls, mismatch.stacks).items():
        yield from _wrap(f"{words.ranks(ranks)}  {words.escape(call)}", width, _INDENT)
        yield from (words.fit(2 * _INDENT + line, width) for line in _stack(stack, root))


def _same(
    calls: Mapping[int, str], stacks: Mapping[int, tuple[Frame, ...]]
) -> dict[tuple[str, tuple[Frame, ...]], list[int]]:
    found: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
    for rank in sorted(calls):
        found.setdefault((calls[rank], stacks.get(rank, ())), []).append(rank)
    return found


def _wrap(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Return lines of at most ``width`` cells, broken at blanks if possible; all but the first are indented further."""
    further = 2 * _INDENT
    line = indent
    for word in re.findall(r"\S+ *", text):
        for piece in _chop(word, width - len(further)):
            if cell_len(line + piece.rstrip()) > width:
                yield line.rstrip()
                line = further
            line += piece
    yield line.rstrip()


def _chop(word: str, width: int) -> Iterator[str]:
    piece = ""
    for char in word:
        if cell_len(piece + char) > width:
            yield piece
            piece = ""
        piece += char
    yield piece


def coverage_text(coverage: Coverage) -> str:
    """Return the coverage statement, in one line; in two if there are notes."""
    parts = [
        f"coverage: {words.count(coverage.ops, 'op')} controlled",
        f"{words.count(coverage.passed, 'call')} outside the watched directory",
        f"not controlled: {_counted(coverage.holes) or 'nothing'}",
        *([f"not tried: {_counted(coverage.untried)}"] if coverage.untried else []),
    ]
    notes = _counted(coverage.notes)
    return "; ".join(parts) + (f"\nnotes: {notes}" if notes else "")


def _counted(what: Mapping[str, int]) -> str:
    return ", ".join(f"{words.escape(each)} ({number})" for each, number in what.items())
