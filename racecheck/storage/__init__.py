"""Storage models, one for each kind: the version of the files that each node sees, and the footprint of an op.

Not here: resolving a path (`supervisor.files`), the disks that a crash can leave (`crash.models`).
Imports: model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from racecheck.model.errors import UsageError
from racecheck.model.nouns import Event, Op, World
from racecheck.model.ops.footprint import Footprint
from racecheck.storage import options
from racecheck.storage.fuse import IncoherentFuse
from racecheck.storage.nfs import NFS
from racecheck.storage.node_local import NodeLocal
from racecheck.storage.object_store import Objects
from racecheck.storage.shared import Shared
from racecheck.storage.views import View

__all__ = ["NAMES", "Storage", "View", "make", "view"]


class Storage(Protocol):
    """A storage model, as the supervisor and the strategies ask it.

    1.  For each pending op, ``visible(op)``: could its result or its effect depend on, or matter to, another rank?  An
        op that is not visible is performed in order and recorded, but it is no point: nothing is chosen there.
    2.  Strategies ask ``footprint(op)``: which other ops could tell when this one happens?
    3.  Where nodes have caches, a run's `View` says at each call which versions its node may see (`storage.views`).

    ``per_node``: every node has a disk of its own.  ``has_views``: a node may see an earlier version.  ``mirrored``:
    every node has a mirror of the one disk, which shows what others have published.  ``crashes`` are the models that
    know the disks that a crash can leave (`racecheck.crash.models`), ``usual_crashes`` those of a crash that names
    none.  ``by_page``: written bytes come there page by page, each as it is then.
    """

    per_node: bool
    has_views: bool
    mirrored: bool
    by_page: bool
    crashes: tuple[str, ...]
    usual_crashes: tuple[str, ...]

    def visible(self, op: Op) -> bool:
        """Return whether other ranks can notice when this op happens."""
        ...

    def sent(self, trace: Sequence[Event]) -> Mapping[int, Sequence[int]]:
        """Return, by event of a run, the files of which all that the op's node has written lasts from then on.

        Raises `LookupError` if that cannot be told.
        """
        ...

    def footprint(self, op: Op) -> Footprint:
        """Return the footprint of an op; of a pending one, the largest that it can have."""
        ...


class _Cached(Storage, Protocol):
    def view(self) -> View:
        """Return the memory of the nodes of one run, which is empty."""
        ...


_CACHED: dict[str, Callable[[World, tuple[str, ...]], _Cached]] = {
    "nfs": NFS,
    "incoherent-fuse": IncoherentFuse,
    "object": Objects,
}
_PLAIN: dict[str, Callable[[World], Storage]] = {"shared": Shared, "node-local": NodeLocal}
NAMES = tuple(sorted((*_PLAIN, *_CACHED)))


def make(world: World) -> Storage:
    """Return the storage model of a world; raises `UsageError` for an unknown name or option."""
    name, given = options.split(world.storage)
    if name in _CACHED:
        return _CACHED[name](world, given)
    if name not in _PLAIN:
        raise UsageError(f"unknown storage {name!r}; known: {', '.join(NAMES)}")
    options.read(name, given, {})
    return _PLAIN[name](world)


def view(world: World) -> View | None:
    """Return a new view for one run of a world; None where every node sees the true state."""
    name, given = options.split(world.storage)
    return _CACHED[name](world, given).view() if name in _CACHED else None
