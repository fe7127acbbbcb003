"""Invariants of the checkpoints that a run leaves: they are whole, and a fresh world can load them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from racecheck.invariants.disk import is_temporary, listed, matches
from racecheck.invariants.events import done, has_own_disks, is_below, on_disk, touched
from racecheck.invariants.excuses import is_cut
from racecheck.invariants.failures import describe, failures
from racecheck.invariants.judging import judges_crashes, reads_contents
from racecheck.invariants.saves import newest_acked, saves
from racecheck.invariants.series import was_there
from racecheck.model.nouns import Op, Outcome, Returned, Stopped, Violation

FOREIGN = "not weights"
TOO_LARGE = "too large to read"
UNSUPPORTED = "unsupported format"
"""A problem with one of these words says nothing about the file, only about its reader."""

SHARDS = ("*.distcp", "*.pt", "*.pth", "*.bin", "*.safetensors")
"""Names of files that hold a rank's part of a checkpoint."""

_METADATA = re.compile(r"(__\d+)?\.metadata")
_SHOWN_EVENTS = 5


@dataclass(frozen=True, slots=True)
class _Flaw:
    """The defect of ``file``, a path as on disk, of the checkpoint in ``directory`` (without its node)."""

    directory: str
    file: str
    text: str

    @property
    def is_certain(self) -> bool:
        return not any(each in self.text for each in (FOREIGN, TOO_LARGE, UNSUPPORTED))


@judges_crashes
@reads_contents
def all_shards_present(outcome: Outcome) -> Iterator[Violation]:
    """Every checkpoint is whole: all that its metadata names exists, is complete, readable, and makes up the tensors.

    A checkpoint that lacks a shard is noticed only when it is needed, at the restart after a crash.  Where nodes have
    disks of their own, each node's part is judged for itself: a rank can read only its own node's disk.  What has a
    temporary name is no checkpoint yet, unless ranks name it.  One violation for each checkpoint directory.

    A file that holds other things than weights, or in a form that cannot be read here, leaves it open.  After a crash
    or a failed save, only the checkpoint of the last step whose save has returned on all ranks has to be whole: others
    may have been half written, or half deleted.
    """
    every = [
        *_content_flaws(outcome, _lasting(outcome, outcome.contents)),
        *_orphans(outcome, _lasting(outcome, outcome.disk)),
    ]
    flaws = [flaw for flaw in every if _is_due(outcome, flaw)]
    certain = [flaw for flaw in flaws if flaw.is_certain]
    for directory in sorted({flaw.directory for flaw in certain}):
        of_it = [flaw for flaw in certain if flaw.directory == directory]
        events = tuple(sorted({index for flaw in of_it for index in _last_touch(outcome, flaw.file)})[:_SHOWN_EVENTS])
        ops = [event for index in events if isinstance(event := outcome.trace[index], Op)]
        text = f"{directory or '.'}: {listed([flaw.text for flaw in of_it])}"
        yield Violation("all-shards-present", text, tuple(sorted({op.rank for op in ops})), events)
    _check_judged(outcome, [flaw for flaw in flaws if not flaw.is_certain])


@judges_crashes
def recovers(outcome: Outcome) -> Iterator[Violation]:
    """Every rank of the recovery returns.

    Says nothing where the scenario has no recovery.  One violation for each rank that failed.
    """
    if outcome.recovery is None:
        return
    for rank, failure in failures(outcome.recovery):
        if not (isinstance(failure, Stopped) and failure.kind == "running"):
            yield Violation("recovers", f"the recovery failed: {describe(rank, failure)}", (rank,))
    if outcome.recovery.mismatch is not None:
        ranks = tuple(sorted(outcome.recovery.mismatch.calls))
        yield Violation("recovers", "the recovery failed: its ranks called different collectives", ranks)


def no_stale_shards(outcome: Outcome, patterns: Sequence[str] = SHARDS) -> Iterator[Violation]:
    """A checkpoint has no shards that its save did not write, such as those of a larger world.

    Code that loads all that lies in the directory, or counts files to learn of how many ranks it is, takes them for a
    part of it.  ``patterns`` are shell patterns for the names of shards.  Ranks tell of their saves with
    `Rank.saved`; files that are there under another name are not judged.
    """
    named = [save for save in saves(outcome) if save.checkpoints]
    if not named and not is_cut(outcome):
        raise LookupError("no rank declared where it saved (Rank.saved with at=...)")
    whole_run = all(isinstance(result, Returned) for result in outcome.results) and not is_cut(outcome)
    newest = {path: save for save in named if save.is_acked or whole_run for path in save.checkpoints}
    for directory, save in sorted(newest.items(), key=lambda each: each[0]):
        shards = [
            path
            for path in sorted(outcome.disk)
            if is_below(_split(outcome, path)[1], directory) and matches(path, patterns)
        ]
        begun = min(save.begun.values(), default=0)
        stale = [path for path in shards if not any(index >= begun for index in _last_touch(outcome, path))]
        if len(stale) < len(shards) and stale:
            text = f"{directory}: the save of step {save.step} did not write {listed(stale)}"
            yield Violation("no-stale-shards", text)


def _is_due(outcome: Outcome, flaw: _Flaw) -> bool:
    """Return whether a checkpoint has to be whole.

    A program's has to be if nothing has cut its run, unless it was there before; else the recovery shows the losses.
    """
    directory = flaw.directory
    saved = {each.checkpoint for each in outcome.weights if each.series and each.kind == "saved"}
    if saved:
        of_run = any(is_below(directory or ".", path) for path in saved) or not was_there(
            outcome, _split(outcome, flaw.file)[1]
        )
        return of_run and not is_cut(outcome)
    if not is_cut(outcome):
        return True
    newest = newest_acked(outcome)
    paths = newest.checkpoints if newest is not None else ()
    return any(is_below(directory or ".", path) or is_below(path, directory or ".") for path in paths)


def _check_judged(outcome: Outcome, open_: list[_Flaw]) -> None:
    """Raise `LookupError` where something could not be judged."""
    if is_cut(outcome) and not open_:
        return
    if open_:
        raise LookupError(f"not judged: {_listed(open_)}")
    lasting = _lasting(outcome, outcome.disk)
    if not outcome.contents and any(_METADATA.fullmatch(_name(path)) for path in lasting):
        raise LookupError("the checkpoint's files were not read")
    if _lasting(outcome, outcome.contents) or any(path.endswith(".distcp") for path in lasting):
        return
    if not outcome.contents:
        raise LookupError("no checkpoint to judge: no DCP metadata and no torch.save file")
    if staged := [*_content_flaws(outcome, outcome.contents), *_orphans(outcome, outcome.disk)]:
        raise LookupError(f"not judged, since its name looks temporary: {_listed(staged)}")


def _listed(flaws: list[_Flaw]) -> str:
    return listed([f"{flaw.directory}: {flaw.text}".lstrip(": ") for flaw in flaws])


def _lasting(outcome: Outcome, paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie in a temporary place, in order; a checkpoint that ranks name is none."""
    worlds = [outcome, *([outcome.recovery] if outcome.recovery else [])]
    named = {each.checkpoint for world in worlds for each in world.weights} - {""}

    def is_lasting(path: str) -> bool:
        inner = _split(outcome, path)[1]
        owner = max((each for each in named if is_below(inner, each)), key=len, default="")
        return not is_temporary(inner[len(owner) :])

    return sorted(filter(is_lasting, paths))


def _content_flaws(outcome: Outcome, paths: Iterable[str]) -> Iterator[_Flaw]:
    for path in sorted(paths):
        content = outcome.contents[path]
        node, inner = _split(outcome, path)
        directory, prefix = inner.rpartition("/")[0], f"on node {node} " if node else ""
        if content.problem:
            yield _Flaw(directory, path, f"{prefix}{_name(path)}: {content.problem}".replace(": is ", " is "))
        broken: dict[tuple[str, str], list[str]] = {}
        for piece in content.pieces:
            if piece.problem:
                broken.setdefault((piece.file, piece.problem), []).append(piece.name)
        for (file, problem), names in broken.items():
            yield _Flaw(directory, file, f"{prefix}{problem} ({listed(names)})")


def _orphans(outcome: Outcome, paths: Iterable[str]) -> Iterator[_Flaw]:
    """Return directories with shards of DCP and without metadata."""
    shards: dict[str, list[str]] = {}
    for path in sorted(paths):
        if path.endswith(".distcp"):
            shards.setdefault(path.rpartition("/")[0], []).append(path)
    described = {path.rpartition("/")[0] for path in outcome.disk if _METADATA.fullmatch(_name(path))}
    for where, found in shards.items():
        if where not in described:
            node, inner = _split(outcome, found[0])
            names = ", ".join(map(_name, found[:_SHOWN_EVENTS]))
            text = f"{f'node {node}' if node else 'it'} has {names} but no .metadata"
            yield _Flaw(inner.rpartition("/")[0], found[0], text)


def _split(outcome: Outcome, path: str) -> tuple[str, str]:
    """Return the node ("" where all share one disk) and the path on its disk."""
    if not has_own_disks(outcome):
        return "", path
    node, _, inner = path.partition("/")
    return node.removeprefix("node"), inner


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _last_touch(outcome: Outcome, path: str) -> list[int]:
    """Return the trace index of the last op that changed, moved or removed a file, or a directory above it."""
    found = [
        index
        for index, op in done(outcome)
        for each in touched(op)
        if on_disk(outcome, op, each) == path
        or (op.call in {"rename", "rmdir"} and is_below(path, on_disk(outcome, op, each)))
    ]
    return found[-1:]
