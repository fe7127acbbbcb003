"""NFS as a Linux client shows it: close-to-open, with caches of attributes, names and pages on every node.

From nfs(5) ("Data and metadata coherence") and the client in the kernel (fs/nfs/dir.c, inode.c):

*   Attributes are trusted for ``acregmin`` (of directories ``acdirmin``) seconds.  Found unchanged when they are asked
    for again they are trusted for twice as long, up to ``acregmax`` (``acdirmax``).
*   That a name leads to something, or to nothing, is trusted for as long as the directory's cached attributes are, and
    until they are seen to have changed.  ``lookupcache=pos`` never trusts that there is nothing, ``none`` neither.
*   Opening asks the server for the file's attributes, or the directory's, unless ``nocto``.  A name that is believed to
    lead to nothing is not opened at all, with version 4 neither (seen on Linux 6.1).
*   What is looked up with version 3 brings the directory's attributes along, and so the news that it has changed; with
    version 4 it does not.
*   Making a name (mkdir, O_CREAT, link, rename's target) always asks, and mkdir's EEXIST ends what was believed of the
    name.  renameat2's flags are refused.
*   What is written is sent by close, fsync, locks and the node's own ``stat`` (which has to ask the server for the time
    of the change), with ``sync`` and ``noac`` at once, and by itself after a while.
    Until then, and longer where a file was open already, others may read what was there before.
*   A file whose last name another node removes is gone: ESTALE.  (With version 4 the server still returns its bytes to
    who has it open, and nothing else.)  One that a process of the same node has open gets a name ``.nfs...`` instead,
    until it is closed: the supervisor does that.

The programs in `tests.storage.conformance.programs` went like this on two mounts of Linux 6.1, by versions 3 and
4.2 (tests/peers/nfs_in_uml.sh).

A cached item may be dropped at any time: so where the cache differs from what is there, either may be seen, and which
is chosen.  A barrier refreshes nothing.

Losses when machines lose power: `racecheck.crash.models.nfs`.

Left out, so that less is shown than could be: a file opened by way of an old name that a rename has moved; positive
names above the last one; names that a listing has brought; delegations; lost replies.

What a claim to have covered everything means here: every order of the ops, each seeing what is there.  What nodes see
beyond that is tried out, not covered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from racecheck.model.nouns import Event, Op, World
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.storage import options
from racecheck.storage.nfs import writeback
from racecheck.storage.nfs.mount_options import OPTIONS, MountSettings
from racecheck.storage.nfs.view import NFSView
from racecheck.storage.shared import Shared


class NFS(Shared):
    """One server, with a client on every node."""

    has_views = True
    by_page = True

    def __init__(self, world: World, given: tuple[str, ...] = ()) -> None:
        super().__init__(world)
        self.settings = MountSettings(**options.read("nfs", given, OPTIONS))
        self.crashes = self.usual_crashes = ("kill", "nfs", *["nfs-server"] * self.settings.server_async)

    def sent(self, trace: Sequence[Event]) -> Mapping[int, Sequence[int]]:
        """See `racecheck.storage.nfs.writeback`; raises `LookupError`."""
        return writeback.sent(trace, self.world, self.settings)

    def visible(self, op: Op) -> bool:
        return "FLUSH" in op.flags or super().visible(op)

    def footprint(self, op: Op) -> Footprint:
        """As on one file system for all; and an op that sends a file's bytes changes its content for others."""
        found = dict(super().footprint(op))
        if "FLUSH" in op.flags:
            found.update({Location("content", each.inode): Mode.WRITE for each in op.places if each.inode})
        return found

    def view(self) -> NFSView:
        """Return the memory of the clients of one run, which is empty."""
        return NFSView(self.world, self.settings)
