"""Logs made by hand: what checkpoint code does to its disk, call by call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from racecheck.crash.changes import settled
from racecheck.crash.log import ROOT, Data, Disk, Entry, Log, Moment, Tree


@dataclass
class Calls:
    """Calls of ranks on paths, each an event of a trace; ``text`` of a write is its bytes and its blob at once."""

    ranks: int = 1
    names: dict[str, int] = field(default_factory=lambda: {"": ROOT})
    entries: list[Entry] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    start: Tree = field(default_factory=Tree)
    sizes: dict[int, int] = field(default_factory=dict)
    rank: int = 0
    _inodes: int = ROOT
    _clocks: dict[str, dict[str, int]] = field(default_factory=dict)

    def settle(self) -> None:
        """What was done so far is the start, all of it durable."""
        self.start = settled(self.log())
        self.entries, self.moments = [], []

    def log(self) -> Log:
        return Log(self.start, tuple(self.entries), tuple(self.moments))

    def at(self, rank: int) -> Calls:
        """From here on it is this rank that calls."""
        self.rank = rank
        return self

    @property
    def last(self) -> int:
        """The index of the last event."""
        return len(self.moments) - 1

    def mkdir(self, path: str) -> None:
        self._add("mkdir", inode=self._new(path), **self._named(path))

    def create(self, path: str) -> None:
        inode = self._new(path)
        self.sizes[inode] = 0
        self._add("create", inode=inode, **self._named(path))

    def write(self, path: str, text: str, offset: int | None = None, *, of: int | None = None) -> None:
        """``of``: the length, if that is not as long as the text."""
        inode, length = self.names[path], len(text) if of is None else of
        place = self.sizes[inode] if offset is None else offset
        self.sizes[inode] = max(self.sizes[inode], place + length)
        self._add("write", inode=inode, offset=place, length=length, data=Data(text, 0, length))

    def open_w(self, path: str) -> None:
        """open(path, "w")."""
        if path not in self.names:
            self.create(path)
        elif self.sizes[self.names[path]]:
            self.truncate(path, 0)

    def truncate(self, path: str, size: int) -> None:
        self.sizes[self.names[path]] = size
        self._add("truncate", inode=self.names[path], length=size)

    def rename(self, path: str, to: str) -> None:
        inode, replaced = self.names.pop(path), self.names.get(to, 0)
        self.names[to] = inode
        directory, name = self._place(to)
        places = {"to_directory": directory, "to_name": name, "replaced": replaced}
        self._add("rename", inode=inode, **self._named(path), **places)

    def link(self, path: str, to: str) -> None:
        self.names[to] = self.names[path]
        self._add("link", inode=self.names[to], **self._named(to))

    def unlink(self, path: str) -> None:
        named = self._named(path)
        self._add("unlink", inode=self.names.pop(path), **named)

    def rmdir(self, path: str) -> None:
        named = self._named(path)
        self._add("rmdir", inode=self.names.pop(path), **named)

    def fsync(self, path: str) -> None:
        self._add("fsync", inode=self.names[path])

    def fdatasync(self, path: str) -> None:
        self._add("fsync", inode=self.names[path], datasync=True)

    def write_now(self, path: str, text: str, offset: int, *, datasync: bool = False) -> None:
        """A write through a descriptor with O_SYNC, or with O_DSYNC."""
        self.write(path, text, offset)
        own = {"offset": offset, "length": len(text), "datasync": datasync}
        self.entries.append(replace(self.entries[-1], kind="fsync", data=None, **own))

    def sync(self) -> None:
        self._add("sync")

    def barrier(self) -> None:
        """All ranks wait for each other."""
        clock = {thread: count for each in self._clocks.values() for thread, count in each.items()}
        for own in self._clocks.values():
            for thread, count in own.items():
                clock[thread] = max(clock[thread], count)
        for rank in range(self.ranks):
            self._clocks[f"{rank}.0"] = dict(clock)
        self.moments.append(Moment(tuple(range(self.ranks)), "", clock))

    def nothing(self) -> None:
        """A call that changes nothing."""
        self._moment()

    def _add(self, kind: Any, **fields: Any) -> None:
        clock = self._moment()
        self.entries.append(Entry(len(self.moments) - 1, kind, rank=self.rank, clock=clock, **fields))

    def _moment(self) -> dict[str, int]:
        thread = f"{self.rank}.0"
        clock = self._clocks.setdefault(thread, {})
        clock[thread] = clock.get(thread, 0) + 1
        self.moments.append(Moment((self.rank,), thread, dict(clock)))
        return dict(clock)

    def _new(self, path: str) -> int:
        self._inodes += 1
        self.names[path] = self._inodes
        return self._inodes

    def _place(self, path: str) -> tuple[int, str]:
        directory, _, name = path.rpartition("/")
        return self.names[directory], name

    def _named(self, path: str) -> dict[str, Any]:
        directory, name = self._place(path)
        return {"directory": directory, "name": name}


def shown(disk: Disk) -> dict[str, str]:
    """A disk as people write it: {"ckpt/": "", "ckpt/a": "text"}; "0" for each byte that is zero."""
    found = {}
    for path, stored in disk.paths:
        parts = ("0" * size if data is None else data.digest[data.offset :][:size] for _, size, data in stored.extents)
        found[path + "/" * (stored.kind == "directory")] = "".join(parts)
    return found


def dcp_save(calls: Calls, directory: str, step: str, *, flush: bool = False, sync: bool = False) -> None:
    """What torch.distributed.checkpoint.save does to a directory, on two ranks, and the last event of it.

    ``flush``: the buffer of the metadata is flushed before its fsync; ``sync``: the directory is fsynced in the end.
    """
    for rank in (0, 1):
        calls.at(rank)
        shard = f"{directory}/__{rank}_0.distcp"
        calls.open_w(shard)
        calls.write(shard, f"shard{rank}-{step}", 0)
        calls.fsync(shard)
    calls.barrier()
    calls.at(0)
    metadata = f"{directory}/.metadata"
    calls.open_w(f"{metadata}.tmp")
    if flush:
        calls.write(f"{metadata}.tmp", f"metadata-{step}", 0)
    calls.fsync(f"{metadata}.tmp")
    if not flush:
        calls.write(f"{metadata}.tmp", f"metadata-{step}", 0)
    if metadata in calls.names:
        calls.unlink(metadata)
    calls.rename(f"{metadata}.tmp", metadata)
    if sync:
        calls.fsync(directory)
    calls.barrier()


def deepspeed_save(calls: Calls, step: str) -> None:
    """The shape of a DeepSpeed save: a file for each rank, and "latest" names it before the last barrier."""
    calls.at(0).mkdir(step)
    calls.barrier()
    for rank in (0, 1):
        calls.at(rank)
        for part in ("model", "optim"):
            calls.create(f"{step}/{part}{rank}")
            calls.write(f"{step}/{part}{rank}", f"{part}{rank}-{step}a", 0)
            calls.write(f"{step}/{part}{rank}", f"{part}{rank}-{step}b")
    calls.at(0).open_w("latest")
    calls.write("latest", step, 0)
    calls.barrier()
