"""The knowledge of a search beside the failing run: the order that passes, the source lines, repairs."""

from __future__ import annotations

import hashlib
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from racecheck.model.frames import user_frames
from racecheck.model.nouns import Collective, Frame, Outcome, Raised, Stopped

if TYPE_CHECKING:
    from racecheck.explore.recovery.judge import Crashes
    from racecheck.scheduling.explain import Explanation

_AROUND = 2
"""How many lines before and after each line of the user's code are kept."""
_LONGEST = 200
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of a source file by number, as the run had them; ``digest`` is the SHA-256 of the file."""

    digest: str
    lines: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Before:
    """How large the run was before it was minimised, and how many ``runs`` that and the explanation took."""

    ops: int
    ranks: int
    runs: int


@dataclass(frozen=True, slots=True)
class Repair:
    """A change that was tried on the run: how many of its crash states are still bad under each model.

    ``is_whole`` says that all states were judged.  The first entry is the run as it is.
    """

    name: str
    bad: Mapping[str, int]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """The knowledge of a search about a finding, beside the run itself.

    ``made`` is the time in UTC (ISO 8601) and ``schedules`` how many runs there had been.  ``claim`` is what the search
    showed until then.  ``passing`` is the run with the pair the other way round: every rank returns and every invariant
    holds in it, and the same faults happened.  With the finding's constraints ``failed`` of ``completions`` random
    schedules failed; ``proof`` says if that holds of all interleavings.  ``judged`` counts the crash states by model.
     ``sources`` maps files to the lines around the user's.
    """

    made: str
    schedules: int
    claim: str = ""
    before: Before | None = None
    passing: Outcome | None = None
    failed: int = 0
    completions: int = 0
    proof: str = ""
    judged: Mapping[str, int] = field(default_factory=dict)
    repairs: tuple[Repair, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)


def gather(
    outcome: Outcome,
    schedules: int,
    claim: str = "",
    explanation: Explanation | None = None,
    repaired: Mapping[str, Crashes] | None = None,
) -> Evidence:
    """Return the evidence of a failing run."""
    pair = explanation.pair if explanation is not None else None
    passing = pair.neighbour if pair is not None else None
    orderings = explanation.orderings if explanation is not None else None
    tables = repaired or {}
    return Evidence(
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        schedules=schedules,
        claim=claim,
        before=_before(explanation),
        passing=passing,
        failed=orderings.failed if orderings is not None else 0,
        completions=orderings.completions if orderings is not None else 0,
        proof=orderings.proof if orderings is not None else "",
        judged={model: each.judged for crashes in [*tables.values()][:1] for model, each in crashes.counts.items()},
        repairs=tuple(_repair(name, crashes) for name, crashes in tables.items()),
        sources=sources(each for run in (outcome, passing) if run is not None for each in _stacks(run)),
    )


def _before(explanation: Explanation | None) -> Before | None:
    if explanation is None:
        return None
    return Before(len(explanation.found.ops), explanation.found.world.ranks, explanation.runs)


def _repair(name: str, crashes: Crashes) -> Repair:
    counts = crashes.counts
    is_whole = not any(each.truncated for each in counts.values())
    return Repair(name, {model: each.bad for model, each in counts.items()}, is_whole)


def _stacks(outcome: Outcome) -> Iterator[Sequence[Frame]]:
    for event in outcome.trace:
        if isinstance(event, Collective):
            yield from event.stacks.values()
        elif event.stack is not None:
            yield event.stack
    yield from (each.stack for each in outcome.results if isinstance(each, (Raised, Stopped)))
    if outcome.mismatch is not None:
        yield from outcome.mismatch.stacks.values()
    if outcome.recovery is not None:
        yield from _stacks(outcome.recovery)


def sources(stacks: Iterator[Sequence[Frame]]) -> dict[str, Source]:
    """Return the lines around the user's lines of these stacks, by file; unreadable files are left out."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for stack in stacks:
        for frame in user_frames(stack):
            wanted[frame.file].update(range(frame.line - _AROUND, frame.line + _AROUND + 1))
    read = ((file, _read(file, numbers)) for file, numbers in sorted(wanted.items()))
    return {file: source for file, source in read if source is not None}


def _read(file: str, numbers: set[int]) -> Source | None:
    try:
        path = Path(file)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    kept = {each: lines[each - 1][:_LONGEST] for each in sorted(numbers) if 0 < each <= len(lines)}
    return Source(hashlib.sha256(data).hexdigest(), kept)
