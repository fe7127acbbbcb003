"""The view of each node in one run on NFS: where a client's cache differs from the truth, either may be seen."""

from __future__ import annotations

from collections.abc import Sequence

from racecheck.model.nouns import Op, Place, World
from racecheck.model.ops import op_kinds
from racecheck.storage.footprints import names
from racecheck.storage.nfs.caches import Caches
from racecheck.storage.nfs.clients import CachedName, Client, Dirty, Pages
from racecheck.storage.nfs.mount_options import MountSettings
from racecheck.storage.nfs.writeback import SETS, SHOWS, sends
from racecheck.storage.views import FRESH, Seen, Truth, ago, is_watched

_LOOKS = frozenset({
    "access", "chdir", "chmod", "chown", "exec", "getxattr", "link", "listxattr", "open", "readlink", "removexattr",
    "rename", "rmdir", "setxattr", "stat", "statfs", "truncate", "unlink", "utime",
})  # fmt: skip
"""Families that look up their path (of two, the first) in the cache."""
_MAKES = op_kinds.MAKES | {"link"}
_NO_POINT = frozenset({"close", "dup", "fsync", "stat"})
"""Families that no other node could notice if they did not send written bytes."""
KEPT = "SILLY_RENAME"
"""The flag of an op that has renamed a file instead of removing it."""
_USES = frozenset({"fsync", "list", "read", "stat", "truncate"})
"""Families that get ESTALE of an open file that is gone."""


class NFSView:
    """See `racecheck.storage.nfs`; `racecheck.storage.views.View` says when each method is called.

    A removed file that is still open on the remover's own node keeps a name there: ``renames_open``.
    """

    renames_open = True

    def __init__(self, world: World, settings: MountSettings) -> None:
        self._world, self._settings = world, settings
        self._caches = Caches(world.nodes, settings)
        self._clients, self._server = self._caches.clients, self._caches.server

    def before(self, op: Op, now: int, truth: Truth) -> Sequence[Seen]:
        if op.call == "rename" and is_watched(op.path) and _needs_flags(op):
            return (Seen(errno="EINVAL"),)
        if self._world.nodes == 1 or not op.places or not is_watched(op.path):
            return (FRESH,)
        self._caches.send_old(now)
        self._keep(op, now, truth)
        stale = self._stale(op, now)
        return (FRESH,) if stale is None else (FRESH, stale)

    def after(self, op: Op, seen: Seen, now: int, truth: Truth) -> None:
        if op.call == "sync":
            self._caches.send_all(self._node(op))
        if self._world.nodes == 1 or not op.places or not is_watched(op.path) or seen.fault or seen.errno:
            return
        assert op.result is not None
        self._meet_dirty(op, failed=bool(op.result.errno))
        if op.result.errno:
            self._failed(op, now)
        elif op.places[-1].open_file:
            self._used(op, now, truth)
        else:
            self._went(op, now, truth)

    def flushes(self, op: Op) -> bool:
        if op.call == "sync":
            return any(self._node(op) in each.nodes for each in self._server.dirty.values())
        return op.call in _NO_POINT and self._sends(op)

    def ended(self, rank: int) -> None:
        for inode, dirty in [*self._server.dirty.items()]:
            dirty.ranks.discard(rank)
            if not dirty.ranks:
                self._caches.send(inode)

    def _node(self, op: Op) -> int:
        return self._world.node(op.rank)

    # Stale reads.

    def _stale(self, op: Op, now: int) -> Seen | None:
        client, place = self._clients[self._node(op)], _looked_up(op)
        if place.open_file:
            return self._stale_file(client, op, place, now)
        if op.call not in _LOOKS or op_kinds.may_create(op):
            return None
        if place.inode:
            for path in names(place.path):
                name = client.names.get(path)
                if name is not None and not name.inode and self._caches.trusts_nothing(client, name, place, path, now):
                    return Seen(f"stale: no entry (cached {ago(now, name.since)})", errno="ENOENT")
        return self._old_attributes(client, op, place, now) if op.call in {"access", "stat"} else None

    def _old_attributes(self, client: Client, op: Op, place: Place, now: int) -> Seen | None:
        inode = place.inode
        if not place.open_file:
            name = client.names.get(place.path)
            if name is not None and name.inode and self._caches.trusts_name(client, name, place, now):
                inode = name.inode
        known = client.attributes.get(inode)
        differs = inode != place.inode or (known is not None and known.version != self._server.versions[inode])
        if known is not None and known.shown is not None and differs and self._caches.is_valid(client, inode, now):
            if op.call == "stat" or inode != place.inode:
                return Seen(f"stale: cached {ago(now, known.fetched)}", shown=known.shown)
            return None
        dirty = self._server.dirty.get(place.inode)
        if dirty is not None and self._node(op) not in dirty.nodes and op.call == "stat":
            return Seen(f"stale: without the write of {ago(now, dirty.since)}", shown=dirty.attributes)
        return None

    def _stale_file(self, client: Client, op: Op, place: Place, now: int) -> Seen | None:
        remover = self._server.removed.get(place.inode)
        if remover is not None:
            is_kept = op.call == "read" and self._settings.vers == 4
            gone = remover != self._node(op) and op.call in _USES and not is_kept
            return Seen("stale: ESTALE", errno="ESTALE") if gone else None
        if op.call == "stat":
            return self._old_attributes(client, op, place, now)
        if op.call in op_kinds.READS:
            return self._old_content(client, op, place, now)
        if op.call == "list" and not self._settings.cto:
            return self._old_pages(client, place, now)
        return None

    def _old_content(self, client: Client, op: Op, place: Place, now: int) -> Seen | None:
        dirty = self._server.dirty.get(place.inode)
        if dirty is not None and self._node(op) in dirty.nodes:
            return None
        found = self._old_pages(client, place, now)
        if found is None and dirty is not None and dirty.content is not None and dirty.nodes:
            return Seen(f"stale: without the write of {ago(now, dirty.since)}", shown=dirty.content)
        return found

    def _old_pages(self, client: Client, place: Place, now: int) -> Seen | None:
        pages = client.pages.get(place.inode)
        if pages is None or pages.shown is None or not self._caches.is_valid(client, place.inode, now):
            return None
        if pages.version == self._server.versions[place.inode]:
            return None
        return Seen(f"stale: as it was {ago(now, pages.since)}", shown=pages.shown)

    # Copies of files that are about to change.

    def _keep(self, op: Op, now: int, truth: Truth) -> None:
        place = op.places[-1]
        if not place.inode or not (op.call in op_kinds.FILLS or op.call == "truncate" or op_kinds.truncates(op)):
            return
        server, inode = self._server, place.inode
        if op.call in op_kinds.FILLS and inode not in server.dirty:
            server.dirty[inode] = Dirty(now, truth.attributes(), truth.content())
        for client in self._clients:
            pages = client.pages.get(inode)
            if pages is not None and pages.shown is None and pages.version == server.versions[inode]:
                dirty = server.dirty.get(inode)
                pages.shown = dirty.content if dirty is not None else truth.content()

    # Bytes that are sent.

    def _meet_dirty(self, op: Op, *, failed: bool) -> None:
        """Note a write, which makes a file dirty, or a read, which may show that another client's write was sent."""
        place = op.places[-1]
        dirty = self._server.dirty.get(place.inode)
        if dirty is None:
            return
        if op.call in op_kinds.FILLS and not failed:
            dirty.nodes.add(self._node(op))
            dirty.ranks.add(op.rank)
            dirty.open_files.add(place.open_file)
        elif not dirty.nodes:
            del self._server.dirty[place.inode]
        source = self._server.dirty.get(_looked_up(op).inode)
        if source is not None and op.call in SHOWS and self._node(op) not in source.nodes:
            self._caches.send(_looked_up(op).inode)
        if self._settings.sync and place.inode in self._server.dirty:
            self._caches.send(place.inode)

    def _sends(self, op: Op) -> bool:
        """Return whether an op sends the bytes that its node has written to the file."""
        dirty = self._server.dirty.get(op.places[-1].inode) if op.places else None
        return dirty is not None and self._node(op) in dirty.nodes and sends(op, dirty.open_files)

    # News for a node.

    def _failed(self, op: Op, now: int) -> None:
        assert op.result is not None
        client, place = self._clients[self._node(op)], _looked_up(op)
        if op.result.errno == "EEXIST":
            client.forget_path(op.path)
        elif op.result.errno == "ENOENT" and op.call in _LOOKS and not place.open_file and not place.inode:
            self._caches.look(client, place, now)

    def _used(self, op: Op, now: int, truth: Truth) -> None:
        """Note a successful call on an open file."""
        node, place = self._node(op), op.places[-1]
        client, inode = self._clients[node], place.inode
        if self._sends(op):
            self._caches.send(inode)
        if op.call == "flock":
            client.forget_object(inode)
        elif op.call in {"read", "list"}:
            shown = truth.content() if op.call == "list" and not self._settings.cto else None
            client.pages[inode] = Pages(self._server.versions[inode], now, shown)
            self._caches.fetch(client, place, now, None)
        elif op.call == "stat":
            self._caches.fetch(client, place, now, truth)
        elif op.call in SETS:
            self._set(op, node)

    def _went(self, op: Op, now: int, truth: Truth) -> None:
        """Note a successful call on a path."""
        node, place = self._node(op), op.places[-1]
        client = self._clients[node]
        if op.call in _MAKES or (op.call == "open" and not place.inode):
            self._made(client, op, now)
        elif op.call in op_kinds.REMOVES:
            self._removed(op, place)
            self._caches.change_directory(client, place, now)
            client.names[place.path] = CachedName(0, place.directory, now)
        elif op.call == "rename":
            self._removed(op, place)
            for each in op.places:
                self._caches.change_directory(client, each, now)
        elif op.call == "open":
            self._opened(client, op, now, truth)
        elif op.call in SETS:
            self._set(op, node)
        elif op.call in _LOOKS:
            if self._sends(op):
                self._caches.send(place.inode)
            self._caches.look(client, place, now)
            self._caches.fetch(client, place, now, truth)

    def _made(self, client: Client, op: Op, now: int) -> None:
        if op.call == "link":
            self._server.linked.add(op.places[0].inode)
        self._caches.change_directory(client, op.places[-1], now)

    def _removed(self, op: Op, place: Place) -> None:
        """Forget the object that had the name.

        It stays if it has another name, or had it before, or is kept for the process that has it open.
        """
        is_itself = op.call == "rename" and op.places[0].inode == place.inode
        if place.inode and not is_itself and place.inode not in self._server.linked and KEPT not in op.flags:
            self._server.removed[place.inode] = self._node(op)
            self._server.dirty.pop(place.inode, None)

    def _opened(self, client: Client, op: Op, now: int, truth: Truth) -> None:
        node, place = self._node(op), op.places[-1]
        self._caches.look(client, place, now)
        if op_kinds.truncates(op) and place.size:
            self._server.dirty.pop(place.inode, None)
            self._caches.change(place.inode, {node})
        dirty = self._server.dirty.get(place.inode)
        if not self._settings.cto and self._caches.is_valid(client, place.inode, now):
            return
        if dirty is None or node in dirty.nodes:
            self._caches.fetch(client, place, now, truth, fresh=self._settings.cto)
        else:
            self._caches.fetch(client, place, now, None, fresh=self._settings.cto)
            client.attributes[place.inode].shown = dirty.attributes

    def _set(self, op: Op, node: int) -> None:
        """Set attributes on the server, after the written bytes."""
        place = op.places[-1]
        self._server.dirty.pop(place.inode, None)
        self._caches.change(place.inode, {node})


def _needs_flags(op: Op) -> bool:
    """Return whether a rename reaches the server with flags of renameat2(2), which the server refuses."""
    source, target = op.places[0], op.places[-1]
    if "RENAME_NOREPLACE" in op.flags and target.inode:
        return False
    if "RENAME_EXCHANGE" in op.flags and not target.inode:
        return False
    return bool(op.flags) and bool(source.inode and target.directory)


def _looked_up(op: Op) -> Place:
    """Return the place that a call looks up, or reads from: the first of two."""
    return op.places[0] if op.call in op_kinds.LINKS | {"copy"} else op.places[-1]
