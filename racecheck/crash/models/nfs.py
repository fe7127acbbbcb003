"""NFS: the server's state when the machines of the job lose power, and when the server does.

From nfs(5) ("Close-to-open cache consistency") and exports(5): calls on names and sizes are answered by the server,
bytes wait on the client until a close, an fsync or a change of the size sends them.  A server answers when what it was
sent is on its disk, unless it exports with ``async``.

``tests/peers/nfs_sent.py`` compares the model of the clients with a live server.
"""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.crash.bitsets import mask_of
from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.models.common import ModelRules, contents_of, written_by
from racecheck.crash.models.ext4 import Ext4

_SENDS = frozenset({"fsync", "truncate"})


class NfsClients:
    """All machines of the job lose power at once, and the server continues: names last, unsent bytes may not.

    In a log of NFS an fsync stands for whatever sends the bytes of a file (`racecheck.storage.nfs.writeback`).  A page
    is sent as it is then, so with it all that was written to it before.
    """

    split = False
    page = PAGE
    sizes = False
    tails = False
    keeps_all = False

    def rules(self, changes: Changes) -> ModelRules:
        return ModelRules([*_in_pages(changes)], {index: _sent(changes, index) for index in _calls(changes)})


class NfsServer(Ext4):
    """A server that exports with ``async`` loses power: its disk is an ext4 on which no fsync ever came."""

    def rules(self, changes: Changes) -> ModelRules:
        rules = super().rules(changes)
        return ModelRules(rules.requires, journals=rules.journals)


def _in_pages(changes: Changes) -> Iterator[int]:
    """For each write those to the same pages that came before: in a page that is sent they all are."""
    seen: dict[int, list[tuple[int, int, int]]] = {}
    for number, change in enumerate(changes.every):
        entry, found = changes.log.entries[change.entry], 0
        if change.kind == "data" and entry.length:
            first, last = entry.offset // PAGE, (entry.offset + entry.length - 1) // PAGE
            own = seen.setdefault(change.inode, [])
            found = mask_of(other for other, begin, end in own if begin <= last and first <= end)
            own.append((number, first, last))
        yield found


def _calls(changes: Changes) -> list[int]:
    """Return the entries that the server has seen once they have returned."""
    return [index for index, entry in enumerate(changes.log.entries) if entry.kind != "write"]


def _sent(changes: Changes, index: int) -> int:
    """Return the changes at the server then: the call's own, and the bytes that it sends."""
    entry = changes.log.entries[index]
    if entry.kind not in _SENDS:
        return changes.of_entry[index]
    before = changes.before(index)
    is_size = entry.kind == "truncate"
    sends = contents_of(changes, entry.inode, before) if is_size else written_by(changes, index, before)
    return changes.of_entry[index] | sends
