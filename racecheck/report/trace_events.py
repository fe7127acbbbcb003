"""A finding in the Trace Event Format, which Perfetto and chrome://tracing open.

Each rank is a process, and each of its threads a thread; the user's functions and their ops are nested slices.  Time
is virtual, so two equal runs have equal traces: an event begins at its virtual time in microseconds, but at least one
after the event before it, and lasts one.  Process ids begin at 1, because 0 is the kernel's (google/perfetto#394).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from racecheck.explore.findings import Finding
from racecheck.model.frames import distance, user_frames
from racecheck.model.nouns import Collective, Frame, Op, Outcome
from racecheck.report import words
from racecheck.report.decisive import Decisive, decisive, failing
from racecheck.report.files import short
from racecheck.report.sentence import plain, sentence

Json = dict[str, Any]


def trace_json(finding: Finding) -> str:
    """Return a finding as the text of a JSON file: one event a line."""
    outcome, violations = finding.outcome, finding.judgement.violations
    found = decisive(outcome, violations, finding.pair)
    events = [*_events(outcome, found)]
    about = {
        "target": words.escape(finding.subject),
        "verdict": finding.judgement.verdict.name,
        "sentence": plain(sentence(outcome, violations, found)),
        "racecheck": words.escape(finding.versions.racecheck),
        "time": "virtual",
    }
    lines = ",\n".join(json.dumps(each) for each in events)
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n{lines}\n]}}\n'


def _events(outcome: Outcome, found: Decisive) -> Iterator[Json]:
    """Yield the events of a run, and then those of its recovery."""
    world = _RunLanes(outcome, found, "", 0, 0, 0)
    yield from world.events()
    if outcome.recovery is not None:
        after = outcome.recovery
        yield from _RunLanes(
            after, failing(after), "recovery, ", outcome.world.ranks, world.lanes, world.end + 1
        ).events()  # fmt: skip


@dataclass(slots=True)
class _RunLanes:
    """One run: its processes come after ``past`` others, its threads after ``past_lanes``, its time at ``start``."""

    outcome: Outcome
    found: Decisive
    name: str
    past: int
    past_lanes: int
    start: int
    threads: dict[tuple[int, str], int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ranks = [(rank, str(rank)) for rank in range(self.outcome.world.ranks)]
        others = {(event.rank, event.thread) for event in self.outcome.trace if isinstance(event, Op)}
        keys = sorted({*ranks, *others}, key=lambda key: (key[0], len(key[1]), key[1]))
        self.threads = {key: self.past_lanes + number for number, key in enumerate(keys, 1)}
        time = self.start
        for event in self.outcome.trace:
            virtual = self.start + event.time // 1000 if isinstance(event, Op) else 0
            time = max(time + 1, virtual)
            self.times.append(time)

    @property
    def lanes(self) -> int:
        return self.past_lanes + len(self.threads)

    @property
    def end(self) -> int:
        """Return the time after the last event."""
        return (self.times[-1] if self.times else self.start) + 1

    def events(self) -> Iterator[Json]:
        yield from self._names()
        yield from self._slices()
        yield from self._groups()
        yield from self._arrow()
        yield from self._marks()

    def _at(self, rank: int, thread: str) -> Json:
        return {"pid": self.past + rank + 1, "tid": self.threads[rank, thread]}

    def _names(self) -> Iterator[Json]:
        world = self.outcome.world
        for rank in range(world.ranks):
            node = f" (node {world.node(rank)})" if world.nodes > 1 else ""
            at = self._at(rank, str(rank))
            yield {"ph": "M", "name": "process_name", **at, "args": {"name": f"{self.name}rank {rank}{node}"}}
            yield {"ph": "M", "name": "process_sort_index", **at, "args": {"sort_index": self.past + rank}}
        for rank, thread in self.threads:
            name = "main" if thread == str(rank) else f"thread {thread}"
            yield {"ph": "M", "name": "thread_name", **self._at(rank, thread), "args": {"name": words.escape(name)}}

    def _slices(self) -> Iterator[Json]:
        """Yield the ops of each thread, within the user's functions that made them."""
        for rank, thread in self.threads:
            at = self._at(rank, thread)
            yield from self._functions([*self._stacks(rank, thread)], at)
            for index, op in enumerate(self.outcome.trace):
                if isinstance(op, Op) and (op.rank, op.thread) == (rank, thread):
                    name = f"{words.call_name(op)} {words.subject(op)}".strip()
                    slice_ = {"ph": "X", "cat": "op", "name": name, "ts": self.times[index], "dur": 1}
                    yield {**slice_, **at, "args": self._args(index, op)}

    def _stacks(self, rank: int, thread: str) -> Iterator[tuple[int, Sequence[Frame]]]:
        """Yield the stack of each event of a thread, with the event's index."""
        for index, event in enumerate(self.outcome.trace):
            if isinstance(event, Op):
                if (event.rank, event.thread) == (rank, thread):
                    yield index, event.stack or ()
            elif thread == str(rank) and rank in event.stacks:
                yield index, event.stacks[rank]

    def _functions(self, stacks: Sequence[tuple[int, Sequence[Frame]]], at: Json) -> Iterator[Json]:
        """Yield a slice for each call of a user's function: as long as the events of a thread come from it."""
        begun: list[tuple[tuple[str, str], int]] = []
        last = 0
        for index, stack in stacks:
            frames = [(frame.file, frame.function) for frame in reversed(_user(stack))]
            same = 0
            while same < min(len(frames), len(begun)) and frames[same] == begun[same][0]:
                same += 1
            yield from (self._function(*each, last, at) for each in begun[same:])
            begun[same:] = [(frame, self.times[index]) for frame in frames[same:]]
            last = self.times[index] + 1
        yield from (self._function(*each, last, at) for each in begun)

    def _function(self, frame: tuple[str, str], begun: int, end: int, at: Json) -> Json:
        file, function = frame
        args = {"file": words.escape(short(file))}
        name = words.escape(function)
        return {"ph": "X", "cat": "function", "name": name, "ts": begun, "dur": end - begun, **at, "args": args}

    def _args(self, index: int, op: Op) -> Json:
        stack = [words.escape(f"{short(each.file)}:{each.line} {each.function}") for each in op.stack or ()]
        args = {
            "step": index + 1, "path": words.escape(op.path), "result": words.result(op), "syscall": op.syscall,
            "fault": op.fault, "role": self.found.roles.get(index, ""), "virtual_ns": op.time, "stack": stack,
        }  # fmt: skip
        return {
            name: words.escape(each) if isinstance(each, str) else each for name, each in args.items() if each != ""
        }

    def _groups(self) -> Iterator[Json]:
        """Yield a slice of each collective on each of its ranks, and the flow that joins them."""
        for index, event in enumerate(self.outcome.trace):
            if not isinstance(event, Collective):
                continue
            name, time = words.collective(event, group=True), self.times[index]
            ranks = [rank for rank in event.ranks if (rank, str(rank)) in self.threads]
            for place, rank in enumerate(ranks):
                at, stack = self._at(rank, str(rank)), event.stacks.get(rank, ())
                where = [words.escape(f"{short(each.file)}:{each.line} {each.function}") for each in stack]
                args = {"step": index + 1, "ranks": list(event.ranks), "stack": where}
                yield {"ph": "X", "cat": "collective", "name": name, "ts": time, "dur": 1, **at, "args": args}
                if len(ranks) > 1:
                    yield self._flow("collective", f"{self.name}{index}", place, len(ranks), time, at)

    def _flow(self, name: str, id_: str, place: int, of: int, time: int, at: Json) -> Json:
        kind = "s" if place == 0 else "f" if place == of - 1 else "t"
        ends = {"bp": "e"} if kind == "f" else {}
        return {"ph": kind, "cat": name, "name": name, "id": id_, "ts": time, **at, **ends}

    def _arrow(self) -> Iterator[Json]:
        """Yield the flow between the two ops that decide."""
        ops = [(index, self.outcome.trace[index]) for index in sorted(self.found.arrow)]
        for place, (index, op) in enumerate(ops):
            if isinstance(op, Op):
                at = self._at(op.rank, op.thread)
                yield self._flow("decides", f"{self.name}decides", place, len(ops), self.times[index], at)

    def _marks(self) -> Iterator[Json]:
        """Yield the declarations of ranks, and a crash."""
        for each in self.outcome.weights:
            if 0 <= each.rank < self.outcome.world.ranks:
                time = self.times[each.event - 1] + 1 if 0 < each.event <= len(self.times) else self.start
                name = f"{each.kind} step {each.step}"
                yield {"ph": "i", "cat": "declared", "name": name, "ts": time, "s": "t",
                       **self._at(each.rank, str(each.rank))}  # fmt: skip
        if self.outcome.crash is not None:
            crash = self.outcome.crash
            args: Mapping[str, Any] = {"lost": [*crash.lost], "torn": [*crash.torn]}
            name = words.escape(f"crash: {crash.model}")
            yield {"ph": "i", "cat": "crash", "name": name, "ts": self.end, "s": "g", **self._at(0, "0"), "args": args}


def _user(stack: Sequence[Frame]) -> list[Frame]:
    """Return the frames of the user's own code, none if there is none."""
    return [each for each in user_frames(stack) if distance(each) == 0]
