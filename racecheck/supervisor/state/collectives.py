"""The supervisor's view of collectives: which ranks have arrived, which may leave, what happens before what.

A collective is an *instance*: the n-th of its group (for sends and receives: the n-th from one rank to another with
one tag).  A rank *issues* its part and later *waits*.  When it may continue depends on the guarantee of the kind:

    all to all    barrier, all_reduce, all_gather, ...   everybody has issued
    root to all   broadcast, scatter                     the root has issued
    all to root   reduce, gather                         for the root, everybody has; the others need not wait
    one to one    send, recv                             for the receiver, the sender has

Only guarantees become happens-before edges.  (gloo's broadcast happens to go through intermediate ranks; to
count that as order would hide races that another backend, or the next release, shows.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from racecheck.model.hypercalls import Issue
from racecheck.model.nouns import Collective, Frame, Mismatch
from racecheck.model.vector_clock import Clock, before, join
from racecheck.sessions.stacks import frames

_WITHOUT_TENSOR = frozenset({"barrier", "monitored_barrier"})
_ONE_TO_ONE = frozenset({"send", "recv", "recv_any"})

CONDITIONS = {
    "gloo": "collectives return as in gloo: a root or sender waits for its peers",
    "weakest": "collectives return as early as MPI and NCCL allow",
}
"""The note of a run that has a collective from which a rank may continue before its peers come."""

OPEN = "collectives overlap with ops: their tensors are assumed unchanged until the wait"
"""The note of a run that has an op between the issue of a collective and the wait for it."""
NEVER_AWAITED = "accesses to a tensor whose collective is never waited for"
"""The gap that is named as not tried in a run with such a collective."""


@dataclass(slots=True, eq=False)
class Instance:
    """One collective and the parts of it that have been issued, each with the issuer's clock and stack.

    ``issued`` and ``left`` are the event's, too, and still filled in when that has been recorded.  ``since`` is when
    the first part was issued, in nanoseconds of virtual time, and ``deadlines`` when the group gives up on each part.
    """

    kind: str
    group: str
    number: int
    ranks: tuple[int, ...]
    root: int = -1
    clocks: dict[int, Clock] = field(default_factory=dict)
    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    issued: Clock = field(default_factory=dict)
    left: Clock = field(default_factory=dict)
    since: int = -1
    deadlines: dict[int, int] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.clocks]

    def may_return(self, rank: int) -> bool:
        return not set(self.before(rank)) - self.clocks.keys()

    def before(self, rank: int) -> tuple[int, ...]:
        """Return whose parts happen before ``rank`` continues."""
        return before(self.kind, self.ranks, self.root, rank)

    def returns_early(self, rank: int) -> bool:
        """Return whether ``rank`` needs nothing of its peers to continue."""
        return len(set(self.ranks)) > 1 and self.before(rank) == (rank,)

    def event(self) -> Collective:
        clock: Clock = {}
        join(clock, *self.clocks.values())
        return Collective(
            self.kind, self.group, self.number, self.ranks, self.root, clock, dict(self.stacks), self.issued, self.left
        )

    def __str__(self) -> str:
        return f"{self.kind} #{self.number} of group {self.group}"


class Mismatched(Exception):
    """Two ranks of a group have reached the same place with different collectives."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__()
        self.mismatch = mismatch


class Collectives:
    """All collectives of a run."""

    def __init__(self) -> None:
        self._instances: dict[tuple[Any, ...], Instance] = {}
        self._calls: dict[tuple[Any, ...], dict[int, str]] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self._tickets: list[Instance] = []
        self._open: dict[int, set[int]] = {}
        self.shut: dict[tuple[int, str], Clock] = {}
        """The clocks of ranks when they shut a group down, by rank and group."""
        self.ambiguous = False

    def issue(self, rank: int, call: Issue, clock: Clock) -> tuple[int, Collective | None]:
        """Issue the part of ``rank``; returns its ticket, and the event if all parts have been issued now.

        Raises `Mismatched`.
        """
        key, instance = self._find(rank, call)
        instance.stacks[rank] = frames(call.stack)
        if call.kind not in _ONE_TO_ONE:
            self._compare(key, instance, rank, call)
        instance.clocks[rank] = dict(clock)
        self._tickets.append(instance)
        if call.python and call.kind not in _WITHOUT_TENSOR:
            self._open.setdefault(rank, set()).add(len(self._tickets) - 1)
        return len(self._tickets) - 1, None if instance.missing else instance.event()

    def awaited(self, rank: int, ticket: int) -> None:
        """Note that a rank waits for its part."""
        self._open.get(rank, set()).discard(ticket)

    def is_open(self, rank: int) -> bool:
        """Return whether a rank has a part for which it does not wait, or not yet: gloo uses its tensor at any time."""
        return bool(self._open.get(rank))

    def instance(self, ticket: int) -> Instance:
        return self._tickets[ticket]

    def unfinished(self, rank: int) -> Instance | None:
        """Return the last collective that a rank has reached and another one has not."""
        return next((each for each in reversed(self._tickets) if rank in each.clocks and each.missing), None)

    def peers(self, rank: int) -> set[int]:
        """Return the other ranks of all collectives from which a rank may continue before these come."""
        return {each for instance in self._tickets if instance.returns_early(rank) for each in instance.ranks} - {rank}

    def _find(self, rank: int, call: Issue) -> tuple[tuple[Any, ...], Instance]:
        kind, group, ranks = call.kind, call.group, tuple(call.ranks)
        key: tuple[Any, ...]
        if kind in _ONE_TO_ONE:
            source, target = self._ends(rank, call)
            ranks, pair = (source, target), (group, source, target, call.tag)
            key = (*pair, self._count((kind != "send", *pair)))
            kind = "send/recv"
        else:
            key = (group, ranks, self._count((group, ranks, rank)))
        if key not in self._instances:
            self._instances[key] = Instance(kind, group, key[-1], ranks, call.root)
        return key, self._instances[key]

    def _ends(self, rank: int, call: Issue) -> tuple[int, int]:
        if call.kind == "send":
            return rank, call.peer
        if call.kind == "recv":
            return call.peer, rank
        senders = sorted({
            each.ranks[0]
            for each in self._instances.values()
            if each.kind == "send/recv" and each.group == call.group and each.missing == [rank]
        })  # fmt: skip
        self.ambiguous |= len(senders) != 1
        return (senders[0] if senders else next(each for each in call.ranks if each != rank)), rank

    def _count(self, key: tuple[Any, ...]) -> int:
        self._counts[key] = self._counts.get(key, -1) + 1
        return self._counts[key]

    def _compare(self, key: tuple[Any, ...], instance: Instance, rank: int, call: Issue) -> None:
        calls = self._calls.setdefault(key, {})
        calls[rank] = said = _said(call)
        if any(each != said for each in calls.values()):
            raise Mismatched(Mismatch(instance.group, instance.number, dict(calls), dict(instance.stacks)))


def _said(call: Issue) -> str:
    """Return the part of a call that has to be the same on all ranks."""
    root = f"root {call.root}" if call.root >= 0 else ""
    return f"{call.kind}({', '.join(filter(None, [root, call.signature]))})"
