"""The caches of an NFS server's clients: how long they are trusted, and how clients learn of changes."""

from __future__ import annotations

from dataclasses import replace

from racecheck.model.nouns import Place
from racecheck.storage.nfs.clients import Attributes, CachedName, Client, Server
from racecheck.storage.nfs.mount_options import MountSettings
from racecheck.storage.views import SECOND, Truth

_WRITEBACK = 35 * SECOND
"""When dirty pages are sent at the latest: dirty_expire_centisecs and dirty_writeback_centisecs (kernel's vm.rst)."""


class Caches:
    """A server, and a client on each node, which have nothing cached yet."""

    def __init__(self, nodes: int, settings: MountSettings) -> None:
        self._settings = settings
        self.clients = [Client() for _ in range(nodes)]
        self.server = Server()

    def trusts_nothing(self, client: Client, name: CachedName, place: Place, path: str, now: int) -> bool:
        """Return whether a client still believes that a path leads to nothing."""
        if self._settings.lookupcache != "all" or self._settings.noac:
            return False
        if path == place.path and name.directory not in {0, place.directory}:
            return False
        if not name.directory:
            return now < name.since + _nanoseconds(self._settings.acdirmin)
        return self.is_valid(client, name.directory, now)

    def trusts_name(self, client: Client, name: CachedName, place: Place, now: int) -> bool:
        """Return whether a client still believes that a path leads where it led."""
        if self._settings.lookupcache == "none" or name.directory != place.directory:
            return False
        return self.is_valid(client, name.directory, now)

    def is_valid(self, client: Client, inode: int, now: int) -> bool:
        """Return whether a client trusts its cached attributes of an object."""
        known = client.attributes.get(inode)
        return not self._settings.noac and known is not None and known.are_valid(now)

    def send(self, inode: int) -> None:
        """Send the written bytes of a file to the server."""
        dirty = self.server.dirty.pop(inode)
        self.change(inode, dirty.nodes)

    def send_all(self, node: int) -> None:
        """Send all that was written on a node to the server."""
        for inode in [inode for inode, dirty in self.server.dirty.items() if node in dirty.nodes]:
            self.send(inode)

    def send_old(self, now: int) -> None:
        """Send bytes that were written long ago to the server, as the client does by itself."""
        for inode in [inode for inode, dirty in self.server.dirty.items() if now >= dirty.since + _WRITEBACK]:
            self.send(inode)

    def change(self, inode: int, nodes: set[int]) -> None:
        """Note that an object has a new version; the nodes that made it know."""
        before = self.server.versions[inode]
        self.server.versions[inode] = before + 1
        for node in nodes:
            for known in (self.clients[node].attributes.get(inode), self.clients[node].pages.get(inode)):
                if known is not None and known.version == before:
                    known.version += 1
                    known.shown = None

    def change_directory(self, client: Client, place: Place, now: int) -> None:
        """Note that a client has changed a name; it learns the directory's new attributes."""
        client.forget_path(place.path)
        known = client.attributes.get(place.directory)
        if known is not None and known.version != self.server.versions[place.directory]:
            client.forget_names_in(place.directory)
        self.change(place.directory, set())
        timeout = _nanoseconds(self._settings.acdirmin)
        client.attributes[place.directory] = Attributes(now, timeout, self.server.versions[place.directory])

    def look(self, client: Client, place: Place, now: int) -> None:
        """Note that a path was looked up, on the server if unknown; version 3 then reports the directory, too."""
        if place.directory:
            name = client.names.get(place.path)
            asked = self._settings.vers == 3 and (name is None or name.inode != place.inode)
            if asked or not self.is_valid(client, place.directory, now):
                self.fetch(client, replace(place, inode=place.directory, kind="directory"), now, None, fresh=asked)
        client.names[place.path] = CachedName(place.inode, place.directory, now)

    def fetch(self, client: Client, place: Place, now: int, truth: Truth | None, *, fresh: bool = False) -> None:
        """Note that attributes are used: cached ones if they are valid and true, and need not be ``fresh``."""
        inode, is_directory = place.inode, place.kind == "directory"
        settings, version = self._settings, self.server.versions[inode]
        least, most = (settings.acdirmin, settings.acdirmax) if is_directory else (settings.acregmin, settings.acregmax)
        known = client.attributes.get(inode)
        if known is None or known.version != version:
            if known is not None and is_directory:
                client.forget_names_in(inode)
            pages = client.pages.get(inode)
            if pages is not None and pages.version != version:
                del client.pages[inode]
            known = client.attributes[inode] = Attributes(now, _nanoseconds(least), version)
        elif not known.are_valid(now):
            known.fetched, known.timeout = now, min(2 * known.timeout, _nanoseconds(most))
        elif fresh:
            known.fetched = now
        if truth is not None:
            known.shown = truth.attributes()


def _nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)
