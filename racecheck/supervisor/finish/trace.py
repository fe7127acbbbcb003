"""The trace of a run: the one place that records an event.

One event is one tick of its thread's clock, and a recorded op never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from racecheck.model.nouns import Collective, Event, Op, Result
from racecheck.model.vector_clock import Clock
from racecheck.supervisor.state.virtual_time import VirtualTime


@dataclass(slots=True)
class Trace:
    """The events of a run so far, in their order."""

    time: VirtualTime
    events: list[Event] = field(default_factory=list)
    changes: int = 0
    """How often something has changed that a pending op may be about: then the op is resolved again."""

    def add(self, op: Op, result: Result, clock: Clock) -> Op:
        """Record an op, which ends now; returns it as it stands in the trace.

        ``clock`` is its thread's, which has counted it; empty if the order of events is unknown.
        """
        done = replace(op, result=result, clock=clock, time=self.time.elapsed)
        self.events.append(done)
        self.changes += 1
        return done

    def add_collective(self, event: Collective) -> None:
        """Record a collective that all its ranks have issued; it has their clocks."""
        self.events.append(event)

    @property
    def last(self) -> Event:
        return self.events[-1]

    @property
    def ops(self) -> list[Op]:
        return [event for event in self.events if isinstance(event, Op)]

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
