"""Which events of a failing run a reader has to see, and why: causes, failures, faults, losses.

Everything here follows from the run alone, and from its finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from racecheck.invariants.failures import failures, source
from racecheck.model.nouns import Crash, Event, Op, Outcome, Place, Raised, Stopped, Violation
from racecheck.model.ops import op_kinds
from racecheck.model.ops.launcher_ops import is_of_launcher
from racecheck.report.changes import above, added, adds, changes, is_at_or_below, removed, succeeded

EventRole = Literal["pair", "cause", "victim", "shown", "last", "kill", "stale", "fault", "lost", "torn"]
"""Why an event is shown.

pair: one of the two whose order decides.  cause: it changed the state that the victim met.  victim: it failed, or met
the wrong thing.  shown: a violation is about it.  last: where a failed rank stood last.  kill, stale, fault: injected.
lost, torn: a crash took it.
"""

_MOST = 3
_WRITES = op_kinds.WRITES | {"fsync"}
_BETWEEN = re.compile(r"[\s,;:'\"()]+")
_QUESTIONS = op_kinds.LOOKS | {"readlink"}
_OPPOSITE = {"ENOENT": "", "EEXIST": "ENOENT"}
"""By the errno of a victim: that of a question with the other answer."""
_READS = frozenset({"open", "read", "stat", "list", "readlink"})


@dataclass(frozen=True, slots=True)
class Decisive:
    """The roles of events by their index in the trace, and the two that an arrow joins (the cause and the victim).

    ``arrow`` is empty if no two events say it all.
    """

    roles: Mapping[int, EventRole]
    arrow: tuple[int, ...] = ()

    def first(self, role: EventRole) -> int | None:
        """Return the first event that has a role, None if none has."""
        return min((index for index, each in self.roles.items() if each == role), default=None)


def decisive(outcome: Outcome, violations: Sequence[Violation], pair: Sequence[int] = ()) -> Decisive:
    """Return the decisive events of a failing run; ``pair`` are the events whose order decides, if that is known."""
    trace = outcome.trace
    roles: dict[int, EventRole] = dict.fromkeys(_shown(violations, trace), "shown")
    roles |= _injected(trace)
    if outcome.crash is not None:
        return Decisive(_in_order(roles | _crashed(outcome.crash, trace, roles)))
    kill = next((index for index, role in roles.items() if role == "kill"), None)
    if kill is not None:
        found = _left_behind(outcome, kill)
        roles |= dict.fromkeys(found, "cause")
        return Decisive(_in_order(roles), (found[0], kill) if found else ())
    roles |= _errors(outcome, roles)
    arrow = _mark_causes(trace, roles)
    looks = {look for index, role in roles.items() if role == "victim" and (look := own_look(trace, index)) is not None}
    roles |= {index: "shown" for index in looks if index not in roles}
    both = [index for index in pair if 0 <= index < len(trace)]
    if len(both) == 2 and "fault" not in roles.values():
        roles |= {index: "pair" for index in both if roles.get(index, "shown") == "shown"}
        arrow = arrow or (both[0], both[1])
    if not roles and not _is_of_recovery(outcome):
        left = outcome.recovery is not None and not failures(outcome)
        roles |= dict.fromkeys(_left_behind(outcome, len(trace)) if left else (), "cause")
        roles |= roles or _written(trace, violations)
        if not roles:
            roles |= _standing(outcome, violations)
            arrow = _mark_causes(trace, roles, of="last")
    return Decisive(_in_order(roles), arrow)


def _is_of_recovery(outcome: Outcome) -> bool:
    """Return whether the run itself went well, and an op of its recovery failed."""
    return aftermath(outcome) is not None and not failures(outcome)


def aftermath(outcome: Outcome) -> Outcome | None:
    """Return the recovery if an op made a rank of it fail, else None."""
    after = outcome.recovery
    return after if after is not None and failing(after).roles else None


def failing(recovery: Outcome) -> Decisive:
    """Return the ops that made ranks of a recovery raise, or else the last ops of these ranks that failed."""
    roles: dict[int, EventRole] = {}
    for rank, failure in failures(recovery)[:_MOST]:
        if isinstance(failure, Raised):
            found = source(recovery, rank, failure)
            own = [each for each, event in enumerate(recovery.trace) if _failed(event, rank)]
            roles |= dict.fromkeys(found, "victim") if found else dict.fromkeys(own[-1:], "last")
    return Decisive(_in_order(roles))


def _in_order(roles: Mapping[int, EventRole]) -> dict[int, EventRole]:
    return dict(sorted(roles.items()))


def _shown(violations: Sequence[Violation], trace: Sequence[Event]) -> Iterator[int]:
    return (index for each in violations for index in each.events if 0 <= index < len(trace))


def _injected(trace: Sequence[Event]) -> dict[int, EventRole]:
    found: dict[int, EventRole] = {}
    for index, event in enumerate(trace):
        if isinstance(event, Op) and event.fault and not is_of_launcher(event):
            stale = event.fault.startswith("stale")
            found[index] = "kill" if event.call == "kill" else "stale" if stale else "fault"
    return found


def _crashed(crash: Crash, trace: Sequence[Event], roles: Mapping[int, EventRole]) -> dict[int, EventRole]:
    """Return the ops that the crash took, and the last ones that wrote to the same files and did happen."""
    found: dict[int, EventRole] = dict.fromkeys(crash.torn, "torn")
    found |= dict.fromkeys(crash.lost, "lost")
    files = {_object(trace[index]) for index in found} - {0}
    happened = set(crash.happened)
    wrote = [
        index
        for index, event in enumerate(trace)
        if isinstance(event, Op) and event.call in _WRITES and index in happened and _object(event) in files
    ]
    found |= {index: "shown" for index in wrote[-_MOST:] if index not in found and index not in roles}
    return found


def _object(event: Event) -> int:
    return event.places[0].inode if isinstance(event, Op) and event.places else 0


def _left_behind(outcome: Outcome, kill: int) -> list[int]:
    """Return the last changes before a kill of files that the recovery looked at, the latest first."""
    last = {
        event.path: index
        for index, event in enumerate(outcome.trace[:kill])
        if isinstance(event, Op) and event.places and (changes(event) or (event.call == "write" and succeeded(event)))
    }
    after = outcome.recovery.trace if outcome.recovery is not None else ()
    loaded = {place.path for event in after if isinstance(event, Op) for place in event.places}
    return sorted((index for path, index in last.items() if path in loaded), reverse=True)[:_MOST]


def _errors(outcome: Outcome, roles: Mapping[int, EventRole]) -> dict[int, EventRole]:
    """Return the victims: the shown ops that failed or met something stale, or those that made ranks raise."""
    victims = [index for index, role in roles.items() if role in {"shown", "stale"} and _failed(outcome.trace[index])]
    for rank, failure in failures(outcome) if not victims else ():
        if isinstance(failure, Raised) and failure.errno:
            victims += source(outcome, rank, failure)
    return {index: "victim" for index in victims[:_MOST] if roles.get(index, "shown") == "shown"}


def _failed(event: Event, rank: int = -1) -> bool:
    """Return whether an op (of this rank) failed."""
    if not isinstance(event, Op) or event.result is None or rank not in {-1, event.rank}:
        return False
    return bool(event.result.errno)


def _mark_causes(trace: Sequence[Event], roles: dict[int, EventRole], of: EventRole = "victim") -> tuple[int, ...]:
    """Add the cause of each victim; return the first cause with its victim."""
    arrow: tuple[int, ...] = ()
    for index in [index for index, role in roles.items() if role in {of, "stale"}]:
        cause = cause_of(trace, index)
        if cause is not None and roles.get(cause) not in {"victim", "stale", "fault"}:
            roles[cause] = "cause"
            arrow = arrow or (cause, index)
    return arrow


def cause_of(trace: Sequence[Event], index: int) -> int | None:
    """Return the op of another thread that changed the state that this op met; None if there is none.

    Of an op that found nothing: the removal before it, or else the op that made the name too late.  Of one that found
    something in its way: what put it there.  What its own thread did last is no cause.
    """
    victim = trace[index]
    if not isinstance(victim, Op) or not victim.places:
        return None
    errno = victim.result.errno if victim.result is not None else ""
    if errno == "ENOENT" and not victim.fault:
        gone = _last(trace, index, lambda op: _took_away(op, victim.places))
        if gone is not None:
            return gone if _is_of_other(trace[gone], victim) else None
        after = (each for each in range(index + 1, len(trace)) if _is_of_other(trace[each], victim))
        return next((each for each in after if _brought(trace[each], victim.places)), None)
    found = _last(trace, index, lambda op: _is_in_the_way(op, victim, errno))
    return found if found is not None and _is_of_other(trace[found], victim) else None


def own_look(trace: Sequence[Event], index: int) -> int | None:
    """Return the question by which the rank of a victim learned the opposite; None if there is none.

    That is for a name that was gone by then the last check that found it, for one that was there the last that did not.
    """
    victim = trace[index]
    if not isinstance(victim, Op) or not victim.places or victim.result is None or victim.fault:
        return None
    if victim.result.errno not in _OPPOSITE:
        return None
    target, was = victim.places[0].path, _OPPOSITE[victim.result.errno]
    for each in reversed(range(index)):
        op = trace[each]
        if isinstance(op, Op) and op.rank == victim.rank and op.call in _QUESTIONS and op.path == target:
            return each if op.result is not None and op.result.errno == was else None
    return None


def _is_in_the_way(op: Op, victim: Op, errno: str) -> bool:
    """Return whether an op put there what the victim met: at its path, or at the new one of a rename or link."""
    target = victim.places[-1].path
    if errno == "EEXIST":
        return added(op) == target
    if errno == "ENOTEMPTY":
        return bool(added(op)) and target in {added(op), above(added(op))}
    return _changed(op, victim.places)


def _last(trace: Sequence[Event], index: int, is_cause: Callable[[Op], bool]) -> int | None:
    """Return the last op before an event that is a cause; a removal is none if the name was made again after it."""
    made: set[str] = set()
    for each in reversed(range(index)):
        event = trace[each]
        if not isinstance(event, Op):
            continue
        if is_cause(event) and removed(event) not in made:
            return each
        if adds(event):
            made.add(added(event))
    return None


def _is_of_other(event: Event, victim: Op) -> bool:
    return isinstance(event, Op) and event.thread != victim.thread


def _took_away(op: Op, places: Sequence[Place]) -> bool:
    gone = removed(op)
    return bool(gone) and any(is_at_or_below(place.path, gone) for place in places)


def _brought(event: Event, places: Sequence[Place]) -> bool:
    made = added(event) if isinstance(event, Op) else ""
    return bool(made) and any(is_at_or_below(place.path, made) for place in places)


def _changed(op: Op, places: Sequence[Place]) -> bool:
    written = op.call in op_kinds.WRITES and succeeded(op)
    if not written and not changes(op):
        return False
    return any(is_at_or_below(place.path, mine.path) for place in places for mine in op.places if mine.path != ".")


def _written(trace: Sequence[Event], violations: Sequence[Violation]) -> dict[int, EventRole]:
    """Return the last change of a file that a message names, and the one before it by another thread."""
    said = {word for each in violations for word in _BETWEEN.split(each.message)}
    found = [
        index
        for index, event in enumerate(trace)
        if isinstance(event, Op) and (changes(event) or (event.call in _WRITES and succeeded(event)))
        if any(place.path in said or place.name in said for place in event.places)
    ]
    if not found:
        return {}
    last = trace[found[-1]]
    others = [each for each in found if isinstance(last, Op) and _is_of_other(trace[each], last)]
    return dict.fromkeys([*others[-1:], found[-1]], "shown")


def _standing(outcome: Outcome, violations: Sequence[Violation]) -> dict[int, EventRole]:
    """Return the last ops of the ranks that failed, or that were still going when the run ended."""
    failed = {rank for each in violations for rank in each.ranks} | {rank for rank, _ in failures(outcome)}
    if any(isinstance(each, Stopped) for each in outcome.results):
        failed |= {*range(outcome.world.ranks)[:_MOST]}
    ends: dict[int, int] = {}
    reads: dict[int, int] = {}
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.rank in failed and event.places and event.call != "close":
            ends[event.rank] = index
            if event.call in _READS:
                reads[event.rank] = index
    raised = {rank for rank, each in enumerate(outcome.results) if isinstance(each, Raised)}
    last = {reads.get(rank, index) if rank in raised else index for rank, index in ends.items()}
    return dict.fromkeys(sorted(last)[-_MOST:], "last")
