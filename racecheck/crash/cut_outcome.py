"""A run as it was when a crash cut it, for invariants to judge."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from racecheck.crash.log import Disk, Stored
from racecheck.model.nouns import Collective, Crash, DiskEntry, Event, Outcome, Violation, Weights
from racecheck.sessions.file_digests import Digest
from racecheck.supervisor.finish.recorder import Recorder


@dataclass(slots=True)
class Cutting:
    """Cuts one run, in many places."""

    outcome: Outcome
    recorder: Recorder
    _said: list[tuple[Weights, int]] = field(default_factory=list)
    _cuts: dict[tuple[int, ...], tuple[tuple[Event, ...], tuple[Weights, ...]]] = field(default_factory=dict)
    _entries: dict[Stored, DiskEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._said = [(each, last_before(self.outcome, each)) for each in self.outcome.weights]

    @property
    def acks(self) -> tuple[int, ...]:
        """Return the events right after which a rank declared that a save had returned."""
        return tuple(sorted({event for each, event in self._said if each.kind == "acked" and event >= 0}))

    def cut(self, crash: Crash, disks: Mapping[str, Disk]) -> Outcome:
        """Return the outcome that the crash left, without its recovery and without the contents of files.

        Its trace has the events before the crash, and its weights are the declarations before the crash.
        """
        if crash.happened not in self._cuts:
            self._cuts[crash.happened] = self._cut(crash.happened)
        trace, weights = self._cuts[crash.happened]
        show = self.recorder.unstable.show
        entries = {
            show(f"{prefix}{path}"): self._entry(stored)
            for prefix, disk in disks.items()
            for path, stored in disk.paths
        }
        return replace(
            self.outcome, trace=trace, weights=weights, disk=entries, contents={}, recovery=None, pending=(),
            outside={}, mismatch=None, crash=crash.within,
        )  # fmt: skip

    def _cut(self, happened: tuple[int, ...]) -> tuple[tuple[Event, ...], tuple[Weights, ...]]:
        there = frozenset(happened)
        said = [
            replace(each, event=bisect_left(happened, each.event))
            for each, event in self._said
            if event < 0 or event in there
        ]
        return tuple(self.outcome.trace[index] for index in happened), tuple(said)

    def _entry(self, stored: Stored) -> DiskEntry:
        if stored not in self._entries:
            digest = self._digest(stored) if stored.kind == "file" else ""
            self._entries[stored] = DiskEntry(stored.kind, stored.size, digest, stored.target)
        return self._entries[stored]

    def _digest(self, stored: Stored) -> str:
        """Return the files' digests (`racecheck.sessions.file_digests`), which are the same in every session."""
        whole = Digest()
        blobs = [(length, (data.digest, data.offset) if data else None) for _, length, data in stored.extents]
        whole.update(self.recorder.read(blobs))
        return whole.hexdigest()


def uncut(violation: Violation, crash: Crash) -> Violation:
    """Return a violation of a cut run, with the event numbers of the whole run."""
    whole = crash.happened
    return replace(violation, events=tuple(whole[event] for event in violation.events if 0 <= event < len(whole)))


def last_before(outcome: Outcome, said: Weights) -> int:
    """Return the last event of a rank before it declared something, or -1: once that event had happened, it could."""
    for index in range(min(said.event, len(outcome.trace)) - 1, -1, -1):
        event = outcome.trace[index]
        if said.rank in (event.ranks if isinstance(event, Collective) else (event.rank,)):
            return index
    return -1
