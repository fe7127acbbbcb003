"""Findings to show and the files that show them: reading, names of source files, writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from racecheck.crash.damage import KINDS
from racecheck.crash.states import MODELS
from racecheck.explore import findings
from racecheck.explore.findings import Finding
from racecheck.kernel.real_files import real
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Event, Op, Outcome


def load(path: Path) -> Finding:
    """Return a finding that can be shown.  Raises `UsageError` for one that contradicts itself, or is none."""
    found = findings.load(path)
    passing = found.evidence.passing if found.evidence is not None else None
    for outcome in (found.outcome, found.outcome.recovery, passing, passing.recovery if passing is not None else None):
        wrong = _contradiction(outcome) if outcome is not None else ""
        if wrong:
            raise UsageError(f"{path}: damaged finding: {wrong}; create it again with racecheck run")
    return found


def _contradiction(outcome: Outcome) -> str:
    """Return the error of a world and its trace, "" for nothing: a finding may come from anywhere."""
    world, ranks, size = outcome.world, range(outcome.world.ranks), len(outcome.trace)
    if world.ranks != len(outcome.results) or not ranks:
        return f"it has results of {len(outcome.results)} of {world.ranks} ranks"
    if not 0 < world.nodes <= world.ranks or world.ranks % world.nodes:
        return f"{world.ranks} ranks cannot share {world.nodes} nodes"
    taking = {rank for each in outcome.trace for rank in _ranks(each)}
    mismatched = outcome.mismatch.calls if outcome.mismatch is not None else ()
    strange = next((each for each in (*taking, *mismatched) if each not in ranks), None)
    if strange is not None:
        return f"its trace has rank {strange} of {world.ranks}"
    crash = outcome.crash
    if crash is not None and crash.damage and crash.model not in KINDS:
        return f"there is no damage of kind {crash.model!r}"
    if crash is not None and not crash.damage and crash.model not in MODELS:
        return f"there is no crash model {crash.model!r}"
    if crash is not None and crash.whole and not len(crash.whole) == len(crash.happened) == size:
        return f"its crash has {len(crash.whole)} events of the whole run for {size}"
    beyond = (*crash.happened, *crash.lost, *crash.torn) if crash is not None else ()
    return next((f"its crash has event {each} of {size}" for each in beyond if not 0 <= each < size), "")


def _ranks(event: Event) -> Sequence[int]:
    return (event.rank,) if isinstance(event, Op) else event.ranks


def short(file: str) -> str:
    """Return a file as it is shown: below the installed packages, else its last two parts, never a home directory."""
    for mark in ("site-packages/", "dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    return "/".join(PurePosixPath(file).parts[-2:]).removeprefix("/")


def write_text(text: str, path: Path, finding: Path | None = None) -> None:
    """Write a file about findings; the ``finding`` itself it must not replace.  Raises `UsageError`."""
    if finding is not None and path.absolute() == finding.absolute():
        raise UsageError(f"{path} is the finding: name another file with -o")
    try:
        there = real(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another file with -o") from None
