"""When the bytes that a node has written reach the NFS server: a crash of the node cannot take them any more.

From nfs(5) ("Close-to-open cache consistency") and the client in the kernel (fs/nfs/file.c, inode.c, write.c): a close
of a descriptor that was written to, an fsync, a lock, a change of size or attributes, and a ``stat`` of the same node
send waiting bytes; so does the end of a process.  Bytes that another node sees have been sent.  Bytes of which an fsync
has said that they could not be sent are dropped, and a later close says nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.model.nouns import Event, Op, World
from racecheck.model.ops import op_kinds
from racecheck.storage.nfs.mount_options import MountSettings

SETS = op_kinds.SETS | {"truncate"}
"""Families that set something of a file on the server, after the written bytes."""
_SENDS = frozenset({"flock", "fsync", "stat"}) | SETS
SHOWS = op_kinds.READS | {"stat"}
"""Families that show the bytes of a file, or how many there are."""


@dataclass(slots=True)
class _Unsent:
    """Bytes of a file that wait on a node: which threads have written them, and through which descriptors."""

    node: int
    threads: set[str] = field(default_factory=set)
    open_files: set[int] = field(default_factory=set)


def sent(trace: Sequence[Event], world: World, settings: MountSettings) -> Mapping[int, Sequence[int]]:
    """Return, for each event of a run, the files whose bytes are at the server when it is over, by identity.

    A child of a rank may be a process: with its last op it may have ended, and sent its bytes.

    Raises `LookupError` if two nodes have unsent bytes of one file: then the order in which these come to the server
    decides about its content, and that order is not known.
    """
    unsent: dict[int, _Unsent] = {}
    found: dict[int, list[int]] = {}
    last = {op.thread: event for event, op in enumerate(trace) if isinstance(op, Op)}
    for event, op in enumerate(trace):
        if isinstance(op, Op) and op.result is not None:
            found[event] = [*_sent(op, world.node(op.rank), unsent, settings)]
            if last[op.thread] == event and op.thread != str(op.rank):
                found[event] += [inode for inode, each in unsent.items() if op.thread in each.threads]
            found[event] = [*dict.fromkeys(found[event])]
            for inode in found[event]:
                unsent.pop(inode, None)
    return found


def _sent(op: Op, node: int, unsent: dict[int, _Unsent], settings: MountSettings) -> Iterator[int]:
    assert op.result is not None
    if op.call == "sync":
        yield from [inode for inode, each in unsent.items() if each.node == node]
    if not op.places or op.syscall == "sync_file_range":  # it may send bytes, and it promises nothing
        return
    place, source = op.places[-1], op.places[0]
    waits = unsent.get(place.inode)
    if op.result.errno and op.call not in op_kinds.FILLS:  # a part of a failed write may be there
        if op.call == "fsync" and waits is not None and waits.node == node:
            del unsent[place.inode]
        return
    if op.call in SHOWS and not op.fault and source.inode in unsent and unsent[source.inode].node != node:
        yield source.inode
    if waits is not None and waits.node != node and (op.call in op_kinds.RESIZES or op_kinds.truncates(op)):
        raise LookupError(f"{op.label}: another node has unsent writes to it")
    if op.call in op_kinds.FILLS:
        waits = unsent.setdefault(place.inode, _Unsent(node))
        waits.threads.add(op.thread)
        waits.open_files.add(place.open_file)
        if settings.sync:
            yield place.inode
    elif op.call == "fsync" or (waits is not None and waits.node == node and sends(op, waits.open_files)):
        yield place.inode


def sends(op: Op, written: Collection[int]) -> bool:
    """Return whether an op on a file sends the bytes that its node wrote through the open files ``written``."""
    closes = op.call in op_kinds.CLOSES and op.places[-1].open_file in written
    return closes or op.call in _SENDS or op_kinds.truncates(op)
