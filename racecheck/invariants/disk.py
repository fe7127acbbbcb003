"""Invariants of the files that a run leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from racecheck.invariants.excuses import faults
from racecheck.model.nouns import Op, Outcome, Returned, Violation

PATTERNS = ("*.tmp", "tmp*", ".tmp*", "*.lock", "*.partial", "*.part")
"""Names that look temporary, or like locks."""

_SHOWN = 5
_FALLBACKS = ("/tmp/", "/var/tmp/", "/usr/tmp/")  # noqa: S108 - what a run wrote is looked up here; nothing is made there
"""Where Python's ``tempfile`` writes when it cannot write to TMPDIR."""


def nothing_left_over(outcome: Outcome, patterns: Sequence[str] = PATTERNS) -> Iterator[Violation]:
    """Once all ranks have returned, no temporary file and no lock remains.

    Left-overs fill the disk, are taken for checkpoints by code that lists the directory, and a stale lock stops
    the next job.  ``patterns`` are shell patterns for names (the last part of a path).  Says nothing of a run
    in which a rank failed: it had no chance to clean up.
    """
    returned = [isinstance(result, Returned) for result in outcome.results]
    left = [path for path in sorted(outcome.disk) if matches(path, patterns)]
    if left and returned and all(returned):
        events = tuple(sorted(index for path in left for index in _made(outcome, path)))
        made = [outcome.trace[index] for index in events]
        ranks = tuple(sorted({op.rank for op in made if isinstance(op, Op)}))
        yield Violation("nothing-left-over", f"left over: {listed(left)}", ranks, events)


def nothing_outside(outcome: Outcome) -> Iterator[Violation]:
    """No rank changes a file outside the watched directory and its node's TMPDIR.

    Such a file is shared by all ranks of a node, is seen by no other node, and its races are not under
    control here.  A program that a fault keeps from writing to TMPDIR may turn to ``/tmp``, as ``tempfile`` does.
    """
    kept = {f"rank {op.rank}" for _, op in faults(outcome) if op.call != "kill" and op.path.startswith("TMPDIR/")}
    written = [
        f"{path} ({who})"
        for path, who in sorted(outcome.outside.items())
        if not (path.startswith(_FALLBACKS) and kept.issuperset(re.findall(r"rank \d+", who)))
    ]
    if written:
        yield Violation("nothing-outside", f"written outside the watched directory: {listed(written)}")


def is_temporary(path: str) -> bool:
    """Return whether any part of a path looks temporary, or like a lock."""
    return any(matches(part, PATTERNS) for part in path.split("/"))


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Return whether the name at the end of a path has one of these forms."""
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in patterns)


def _made(outcome: Outcome, path: str) -> list[int]:
    """Return the trace index of the last op that gave a new file this path."""
    found = [
        index
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Op) and event.path == path and event.places[-1].inode == 0
        if event.result is not None and not event.result.errno
    ]
    return found[-1:]


def listed(names: Sequence[str]) -> str:
    """Return the first few of some names, and how many more there are."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
