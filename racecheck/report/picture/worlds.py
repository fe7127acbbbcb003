"""One world of a run as data of the page: its lanes, its events, the trees between them, and how its ranks ended.

Texts and stacks recur in many events: `Tables` holds each once, and events refer to them by number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from racecheck.explore.evidence import Source
from racecheck.invariants.failures import is_echo
from racecheck.model.frames import distance
from racecheck.model.nouns import Collective, Crash, Died, Frame, Op, Outcome, Raised, RankResult, Returned, Stopped
from racecheck.report import words
from racecheck.report.changes import changes
from racecheck.report.crash import NAMES
from racecheck.report.decisive import Decisive
from racecheck.report.files import short
from racecheck.report.folding import unfolded
from racecheck.report.picture.trees import PathTree, TreeChange, TreeEntry, recorded, trees

_MESSAGE = 200

PageData = dict[str, Any]


@dataclass(slots=True)
class Tables:
    """Strings and stacks by number, each once; ``sources`` are the source lines that the finding has."""

    sources: Mapping[str, Source]
    strings: list[str] = field(default_factory=list)
    stacks: list[Any] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _stacks: dict[str, int] = field(default_factory=dict)

    def string(self, text: str) -> int:
        """Return the number of a text, which is escaped."""
        if text not in self._numbers:
            self._numbers[text] = len(self.strings)
            self.strings.append(words.escape(text))
        return self._numbers[text]

    def stack(self, frames: Sequence[Frame] | None) -> int:
        """Return the number of a stack: the index of the user's innermost frame (-1: none), and its frames."""
        found = [*(frames or ())]
        distances = [distance(each) for each in found]
        nearest = min(distances, default=0)
        data = [distances.index(nearest) if found else -1, [self._frame(each, nearest) for each in found]]
        key = json.dumps(data)
        if key not in self._stacks:
            self._stacks[key] = len(self.stacks)
            self.stacks.append(data)
        return self._stacks[key]

    def _frame(self, frame: Frame, nearest: int) -> list[Any]:
        """Return file, line, function, whether it is the user's, and the lines around it, with the first's number."""
        is_user = distance(frame) == nearest
        source = self.sources.get(frame.file) if is_user else None
        lines = {} if source is None else source.lines
        near = [number for number in range(frame.line - 2, frame.line + 3) if number in lines]
        text = [words.escape(lines[number]) for number in near]
        place = [words.escape(short(frame.file)), frame.line, words.escape(frame.function), int(is_user)]
        return [*place, near[0] if near else 0, text]


def world(outcome: Outcome, found: Decisive, tables: Tables, start: PathTree | None = None) -> PageData:
    """Return one world; ``start`` is the tree before it, None if that is not known."""
    derived = trees(outcome, start)
    lanes = _lanes(outcome)
    data = _Encoder(outcome, found, tables, {lane: number for number, lane in enumerate(lanes)})
    events = [data.event(index, derived.changes[index]) for index in range(len(outcome.trace))]
    crash = outcome.crash
    return {
        "lanes": [[rank, words.escape(thread), outcome.world.node(rank)] for rank, thread in lanes],
        "events": events,
        "ends": data.ends(),
        "marks": [
            [each.event, each.rank, each.kind, each.step, words.escape(each.checkpoint)] for each in outcome.weights
        ],
        "story": [*found.roles],
        "arrow": sorted(found.arrow),
        "nodes": outcome.world.nodes,
        "storage": words.escape(outcome.world.storage),
        "agrees": derived.agrees,
        "tree": [data.entry(path, each) for path, each in derived.first.items()],
        "disk": [data.entry(path, each) for path, each in _left(outcome, derived.last, start).items()],
        "crash": crash and _crash(outcome, crash),
    }


def _lanes(outcome: Outcome) -> list[tuple[int, str]]:
    """Return rank and name of each thread that a lane is for, the main thread of each rank first."""
    found = {(rank, str(rank)) for rank in range(outcome.world.ranks)}
    found |= {(event.rank, event.thread) for event in outcome.trace if isinstance(event, Op)}
    return sorted(found, key=lambda lane: (lane[0], lane[1].count("."), len(lane[1]), lane[1]))


def _crash(outcome: Outcome, crash: Crash) -> PageData:
    """Return what a crash is called, the events that it took, and the files that have only a part of theirs."""
    model = words.escape(NAMES.get(crash.model, crash.model))
    name = "Killed processes" if crash.model == "kill" else f"Power loss on {model}"
    name = words.escape(f"Damage: {crash.damage}") if crash.damage else name
    torn = {place.inode for index in crash.torn if isinstance(op := outcome.trace[index], Op) for place in op.places}
    gone, paths = {*range(len(outcome.trace))} - {*crash.happened} | {*crash.lost}, dict[int, str]()
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.places and index not in gone:
            paths[event.places[0].inode] = event.path
    files = [crash.file] if crash.damage else [paths[each] for each in torn - {0} if each in paths]
    return {
        "name": name,
        "damaged": bool(crash.damage),
        "lost": crash.lost,
        "torn": crash.torn,
        "files": [*map(words.escape, files)],
    }


def _left(outcome: Outcome, last: PathTree, start: PathTree | None) -> PathTree:
    """Return the recorded disk, with the event that changed each entry last: of those that a crash did not take."""
    crash = outcome.crash
    if crash is not None:
        gone = {*range(len(outcome.trace))} - {*crash.happened} | {*crash.lost}
        last = trees(outcome, start, without=frozenset(gone)).last
    found = recorded(outcome.disk)
    for path, entry in found.items():
        if path in last and last[path].kind == entry.kind:
            found[path] = TreeEntry(entry.kind, entry.size, entry.text or last[path].text, last[path].by)
    return found


@dataclass(slots=True)
class _Encoder:
    outcome: Outcome
    found: Decisive
    tables: Tables
    numbers: Mapping[tuple[int, str], int]
    kept: frozenset[int] = frozenset()
    several: bool = False
    lost: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        trace, crash = self.outcome.trace, self.outcome.crash
        self.kept = unfolded(trace, self.found.roles)
        self.several = len({each.group for each in trace if isinstance(each, Collective)}) > 1
        self.lost = frozenset() if crash is None else frozenset(range(len(trace))) - frozenset(crash.happened)

    def event(self, index: int, changed: Sequence[TreeChange]) -> PageData:
        event = self.outcome.trace[index]
        data = self._op(event) if isinstance(event, Op) else self._collective(event)
        if index in self.found.roles:
            data["role"] = self.found.roles[index]
        if index in self.kept:
            data["keep"] = 1
        if index in self.lost:
            data["never"] = 1
        if changed:
            data["tree"] = [
                [self.tables.string(path)] if entry is None else self.entry(path, entry) for path, entry in changed
            ]
        return data

    def _op(self, op: Op) -> PageData:
        string = self.tables.string
        data: PageData = {
            "lane": self.numbers[op.rank, op.thread],
            "call": string(words.call_name(op)),
            "what": string(words.subject(op)),
            "how": string(words.result(op)),
            "stack": self.tables.stack(op.stack),
            "time": op.time,
        }
        more = {
            "paths": [string(each.path) for each in op.places] if op.places else None,
            "errno": string(op.result.errno) if op.result is not None and op.result.errno else None,
            "fault": string(op.fault) if op.fault else None,
            "text": string(op.result.text) if op.result is not None and op.result.text else None,
            "flags": string(" ".join(op.flags)) if op.flags and op.call != "kill" else None,
            "args": string(", ".join(f"{name} {value}" for name, value in op.args.items())) if op.args else None,
            "syscall": string(op.syscall) if op.syscall != op.call else None,
            "changes": 1 if changes(op) else None,
        }
        return data | {name: each for name, each in more.items() if each is not None}

    def _collective(self, event: Collective) -> PageData:
        stacks = {rank: self.tables.stack(frames) for rank, frames in event.stacks.items()}
        lanes = [self.numbers[rank, str(rank)] for rank in event.ranks if (rank, str(rank)) in self.numbers]
        text = words.collective(event, group=self.several)
        return {
            "lanes": sorted(lanes),
            "call": self.tables.string(text),
            "stack": next(iter(stacks.values()), self.tables.stack(())),
        }

    def entry(self, path: str, entry: TreeEntry) -> list[Any]:
        """Return path, kind (its first letter), size, text, and the event that changed it last."""
        string = self.tables.string
        return [string(path), entry.kind[:1], entry.size, string(entry.text) if entry.text else -1, entry.by]

    def ends(self) -> list[PageData]:
        return [self._end(rank, each) for rank, each in enumerate(self.outcome.results)]

    def _end(self, rank: int, result: RankResult) -> PageData:
        mismatch = self.outcome.mismatch
        stack = result.stack if isinstance(result, (Raised, Stopped)) else ()
        text, is_good = ending(result), isinstance(result, Returned)
        if mismatch is not None and rank in mismatch.calls:
            text, is_good, stack = f"waits in {mismatch.calls[rank]}", False, mismatch.stacks.get(rank, stack)
        return {
            "rank": rank, "good": int(is_good), "text": words.escape(text), "stack": self.tables.stack(stack),
            "echo": int(is_echo(self.outcome, rank) and (mismatch is None or rank not in mismatch.calls)),
        }  # fmt: skip


def ending(result: RankResult) -> str:
    """Say how a rank ended, in one line."""
    if isinstance(result, Returned):
        return "returned"
    if isinstance(result, Raised):
        first = next(iter(result.message.strip().splitlines()), "")[:_MESSAGE]
        return f"raised {result.type}: {first}".removesuffix(": ")
    if isinstance(result, Died):
        return f"died by {result.signal}" if result.signal else f"exit status {result.status}"
    return f"did not end: {result.why}"
