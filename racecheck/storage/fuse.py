"""A FUSE mount whose cache of names contradicts its own errors.

The server says that a name is taken (mkdir and O_EXCL fail with EEXIST), and for a while ``stat`` on the same node goes
on saying that there is nothing: the answer of an earlier lookup is cached, and the error does not end it.  Then
``os.makedirs(path, exist_ok=True)`` raises FileExistsError, for it asks after EEXIST whether a directory is there.

So this happens only to a node that has looked before another one made the name, or may have: mkdir looks before it
asks the server, so if nothing orders it after the other node's call the other may have come in between.  After a
barrier a node that has not looked before sees the truth.

Such failures are reported of shared FUSE mounts, without their cause being proved (NVIDIA-NeMo/Automodel#3686); the
kernel's NFS client does not do this.

Everything else is as on one file system for all; so are the losses of a crash, as if every write and fsync went to the
server's disk at once (FUSE without writeback caching, which was not compared with a real mount).  Stale reads of nodes
are tried out: no claim to have covered everything covers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.model.nouns import Op, World
from racecheck.model.ops import op_kinds
from racecheck.storage import options
from racecheck.storage.options import Option
from racecheck.storage.shared import Shared
from racecheck.storage.views import FRESH, SECOND, Seen, Truth, ago, is_watched

_LOOKS = op_kinds.LOOKS | {"chdir", "open"}
_MAKES = op_kinds.ADDS | {"open"}

OPTIONS: Mapping[str, Option] = {"timeout": options.seconds("timeout")}


@dataclass(frozen=True, slots=True)
class FuseSettings:
    """``timeout`` is for how many seconds a name may still be denied."""

    timeout: float = 10.0


class IncoherentFuse(Shared):
    """One file system, with a cache of names on every node."""

    has_views = True

    def __init__(self, world: World, given: tuple[str, ...] = ()) -> None:
        super().__init__(world)
        self.settings = FuseSettings(**options.read("incoherent-fuse", given, OPTIONS))

    def view(self) -> IncoherentView:
        return IncoherentView(self.world, self.settings)


@dataclass(frozen=True, slots=True)
class _Maker:
    """The thread that has made a name in this run: the node, and the thread with the number of its event."""

    node: int
    thread: str
    event: int

    def is_before(self, op: Op) -> bool:
        return op.clock.get(self.thread, 0) >= self.event


@dataclass(slots=True)
class IncoherentView:
    """``_missed`` is when a node last found nothing under a name, ``_denied`` when it learned the name is taken."""

    _world: World
    _settings: FuseSettings
    _made: dict[str, _Maker] = field(default_factory=dict)
    _missed: dict[tuple[int, str], int] = field(default_factory=dict)
    _denied: dict[tuple[int, str], int] = field(default_factory=dict)

    def before(self, op: Op, now: int, truth: Truth) -> Sequence[Seen]:
        del truth
        told = self._denied.get((self._world.node(op.rank), op.path))
        if told is None or op.call not in _LOOKS or op_kinds.may_create(op) or op.places[-1].open_file:
            return (FRESH,)
        if not op.places[-1].inode or not self._is_recent(told, now):
            return (FRESH,)
        return (FRESH, Seen(f"stale: no entry, although EEXIST was returned {ago(now, told)}", errno="ENOENT"))

    def after(self, op: Op, seen: Seen, now: int, truth: Truth) -> None:
        del truth
        if not op.places or not is_watched(op.path) or seen.fault or op.places[-1].open_file:
            return
        assert op.result is not None
        key = self._world.node(op.rank), op.path
        if op.call in _MAKES and op.result.errno == "EEXIST":
            if self._may_deny(op, now):
                self._denied[key] = now
        elif op.call in _MAKES and not op.result.errno and not op.places[-1].inode:
            self._made[op.path] = _Maker(key[0], op.thread, op.clock.get(op.thread, 0) + 1)
            self._missed.pop(key, None)
        elif op.call in _LOOKS and op.result.errno == "ENOENT":
            self._missed[key] = now
        elif op.call in _LOOKS and not op.result.errno:
            self._missed.pop(key, None)
            self._denied.pop(key, None)

    def _may_deny(self, op: Op, now: int) -> bool:
        """Return whether a node that got EEXIST may have an earlier lookup of the name in its cache."""
        node, made = self._world.node(op.rank), self._made.get(op.path)
        missed = self._missed.get((node, op.path))
        if made is None or made.node == node:
            return False
        return not made.is_before(op) or (missed is not None and self._is_recent(missed, now))

    def _is_recent(self, then: int, now: int) -> bool:
        return now < then + round(self._settings.timeout * SECOND)

    def flushes(self, op: Op) -> bool:
        del op
        return False

    def ended(self, rank: int) -> None:
        """Nothing is held back here."""
