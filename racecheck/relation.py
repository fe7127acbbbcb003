"""What the ops of one world touch: its storage, and beside the files the memory that the threads of a rank share.

Two threads of a rank share memory, and what a thread does there between two of its ops nobody sees.  So every op of
a rank that has, or has had, several threads or processes touches one location, the rank's memory, in a mode that
commutes with nothing: each order of these ops is a run of its own.  An op of such a rank that no other rank could
notice (a close, say) is a step for the same reason: other threads of the rank may go before or after it.
"""

from __future__ import annotations

from racecheck import storage
from racecheck.dependence import Footprint, Location, Mode
from racecheck.model import Op, World


class Relation:
    """The dependence relation of a world; see `racecheck.dependence.Dependence`."""

    def __init__(self, world: World) -> None:
        self.storage = storage.make(world)

    def visible(self, op: Op) -> bool:
        return not op.alone or self.storage.visible(op)

    def footprint(self, op: Op) -> Footprint:
        touched = self.storage.footprint(op)
        return touched if op.alone else {**touched, Location("memory", op.rank): Mode.WRITE}
