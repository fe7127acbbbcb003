"""Digests of runs: a change of one event, result or file shows, and where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from racecheck.model.nouns import Died, Outcome, Raised, RankResult
from racecheck.supervisor.finish.recorder import Recorder

_LENGTH = 4


def digests(outcome: Outcome, recorder: Recorder | None = None, root: str = "") -> tuple[list[str], list[str]]:
    """Return the digest of each part of a run, and each part as text: events first, without their stacks.

    ``root`` is a directory whose name differs from run to run.  Real seconds are left out, and so are texts that name
    ports or files of this machine.
    """
    texts = [_text(each) for each in _parts(outcome, recorder)]
    texts = [each.replace(root, "ROOT") for each in texts] if root else texts
    return [hashlib.sha256(each.encode()).hexdigest()[:_LENGTH] for each in texts], texts


def _parts(outcome: Outcome, recorder: Recorder | None) -> Iterator[object]:
    yield from outcome.trace
    yield from map(_result, outcome.results)
    yield outcome.schedule, outcome.mismatch, outcome.weights
    yield [sorted(outcome.disk.items()), sorted(outcome.outside), sorted(outcome.contents.items())]
    yield [outcome.fired, outcome.looked, outcome.lookers, outcome.times]
    yield [(event, op.label) for event, op in outcome.cut] + [op.label for op in outcome.pending]
    yield replace(outcome.coverage, passed=0)  # the calls of imports, too
    if recorder is not None:
        changes = {event: replace(each, names=_named(each.names)) for event, each in recorder.changes.items()}
        yield [recorder.problem, changes, recorder.published, sorted(recorder.blobs)]
    if outcome.recovery is not None:
        yield from _parts(outcome.recovery, None)


def _result(result: RankResult) -> object:
    """Return a result without its message and its traceback, which name ports and files of this machine."""
    if isinstance(result, Raised):
        return "a peer failed" if result.echo else [result.type, result.errno]
    return replace(result, output="") if isinstance(result, Died) else result


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names without the inode number by which the kernel calls a file of O_TMPFILE."""
    return tuple("#" if each.startswith("#") else each for each in names)


def _text(part: object) -> str:
    return json.dumps(_plain(part), sort_keys=True, default=repr)


def _plain(part: Any) -> Any:
    """Return a part as JSON can write it, without stacks."""
    if is_dataclass(part) and not isinstance(part, type):
        return _plain(asdict(part))
    if isinstance(part, dict):
        return {str(key): _plain(value) for key, value in part.items() if key not in {"stack", "stacks"}}
    return [*map(_plain, part)] if isinstance(part, list | tuple) else part
