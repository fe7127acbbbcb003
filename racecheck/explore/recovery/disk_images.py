"""Crash states as items to put on real files (`racecheck.agent.disk_writer`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from racecheck.agent.disk_writer import DiskItem
from racecheck.crash.log import Disk, Log, Stored
from racecheck.model.epoch import EPOCH
from racecheck.model.nouns import Outcome
from racecheck.supervisor.finish.recorder import Recorder

LIMIT = 1 << 30
"""Bytes that the files of one crash state may have, zeros included."""

_MAKES = frozenset({"create", "mkdir", "symlink", "link", "rename"})


class TooLarge(Exception):
    """A crash state has more bytes than are allowed."""


@dataclass(slots=True)
class Ages:
    """Return how long before the end of a run things were changed, as far as a disk shows it.

    A file is as old as its youngest bytes, without the bytes of damage.  An empty file and a directory are as old as
    their names.  (A recovery mostly asks which of several checkpoints is the newest.)
    """

    end: int
    bytes: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, outcome: Outcome, recorder: Recorder, log: Log) -> Ages:
        """Return the ages of all that existed at the start or was made in the run."""
        ages = cls(EPOCH + max((op.time for op in outcome.ops), default=0))
        for thing in recorder.things.values():
            for span in thing.spans:
                ages.bytes[span.digest] = thing.time
        for (_, name), number in recorder.names.items():
            ages.names[name] = recorder.things[number].time
        times = {index: EPOCH + getattr(event, "time", 0) for index, event in enumerate(outcome.trace)}
        for entry in (each for each in log.entries if each.event >= 0):
            if entry.data is not None:
                ages.bytes[entry.data.digest] = times[entry.event]
            if entry.kind in _MAKES:
                ages.names[entry.to_name or entry.name] = times[entry.event]
        return ages

    def age(self, path: str, stored: Stored) -> int:
        found = [
            self.bytes[data.digest] for _, _, data in stored.extents if data is not None and data.digest in self.bytes
        ]
        when = max(found) if found else self.names.get(path.rpartition("/")[2], self.end)
        return max(0, self.end - when)


def items(disk: Disk, recorder: Recorder, ages: Ages, limit: int = LIMIT) -> list[DiskItem]:
    """Return the items to put on the disk for a crash state; raises `TooLarge`."""
    total = sum(stored.size for _, stored in disk.paths)
    if total > limit:
        raise TooLarge(f"a crash state has {total} bytes, more than the limit of {limit}")
    return [
        DiskItem(path, stored.kind, stored.target, stored.size, ages.age(path, stored), _spans(stored, recorder))
        for path, stored in disk.paths
    ]


def _spans(stored: Stored, recorder: Recorder) -> list[tuple[int, int, int]]:
    return [
        (offset, length, recorder.blobs[data.digest] + data.offset)
        for offset, length, data in stored.extents
        if data is not None
    ]
