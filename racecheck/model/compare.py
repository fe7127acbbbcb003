"""Compare two outcomes, and find where they first differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import zip_longest

from racecheck.model.nouns import Died, DiskEntry, Event, Op, Outcome, Raised, RankResult, Returned, Stopped, Weights

_LONGEST = 60


def first_difference(recorded: Outcome, now: Outcome) -> str:
    """Return "" if two runs are the same, else the first difference, in words.

    Compared are every op with its places and result, every collective, every rank's result, the disk, what ranks
    declared of weights, and all that of the recovery.  Not compared are stacks, and how a peer's failure looks from
    another rank: such messages name ports.
    """
    difference = next(_differences(recorded, now), "")
    if not difference and recorded.recovery is not None and now.recovery is not None:
        difference = first_difference(recorded.recovery, now.recovery)
        return difference and f"in the recovery: {difference}"
    return difference


def _differences(recorded: Outcome, now: Outcome) -> Iterator[str]:
    for step, (one, other) in enumerate(zip_longest(recorded.trace, now.trace)):
        if one is None or other is None or _key(one) != _key(other):
            yield f"step {step}: {_say(one)}, now {_say(other)}{_detail(one, other)}"
    for rank, (before, after) in enumerate(zip(recorded.results, now.results, strict=False)):
        if _result_key(before) != _result_key(after):
            yield f"rank {rank} {ending(after)}; before, it {ending(before)}"
    yield from differences_on_disk(recorded, now)
    for said, says in zip_longest(recorded.weights, now.weights):
        if said != says:
            yield f"{_declared(says)} now; before, {_declared(said)}"


def ending(result: RankResult) -> str:
    """Return how a rank ended, in words that follow its number."""
    if isinstance(result, Returned):
        value = repr(result.value)
        return f"returned {value if len(value) <= _LONGEST else value[:_LONGEST] + '…'}"
    if isinstance(result, Raised):
        return f"raised {result.type}" + (f" ({result.errno})" if result.errno else "")
    if isinstance(result, Died):
        return f"died by {result.signal}" if result.signal else f"ended with exit status {result.status}"
    return f"was stopped: {result.why}"


def differences_on_disk(before: Outcome, now: Outcome) -> Iterator[str]:
    """Yield the differences of two disks, in words, by path."""
    for path in sorted({*before.disk, *now.disk}):
        was, is_ = before.disk.get(path), now.disk.get(path)
        if was is None:
            yield f"{path} exists now"
        elif is_ is None:
            yield f"{path} no longer exists"
        elif was != is_:
            yield f"{path} {_instead(was, is_)}"


def _instead(was: DiskEntry, is_: DiskEntry) -> str:
    if was.kind != is_.kind:
        return f"is a {is_.kind}; it was a {was.kind}"
    if was.size != is_.size:
        return f"has {is_.size} bytes; before, it had {was.size}"
    return "has different content" if is_.kind == "file" else "is another one"


def _declared(weights: Weights | None) -> str:
    if weights is None:
        return "no rank declared any"
    tensors = hashlib.sha256(repr(sorted(weights.tensors.items())).encode()).hexdigest()[:6]
    return f"rank {weights.rank} {weights.kind} step {weights.step} after {weights.event} events (weights {tensors})"


def fingerprint(outcome: Outcome) -> str:
    """Return a hash that two outcomes share if they are the same in the sense of `first_difference`."""
    return hashlib.sha256("\n".join(_lines(outcome)).encode(errors="surrogateescape")).hexdigest()


def effect(outcome: Outcome) -> tuple[object, ...]:
    """Return the effect of a run: each rank's end and the disk.

    Comparable with a run in free mode, which does not know why a rank has not ended.
    """
    results = tuple(("Stopped",) if isinstance(each, Stopped) else _result_key(each)[:3] for each in outcome.results)
    return results, tuple(sorted(outcome.disk.items(), key=lambda item: item[0]))


def _lines(outcome: Outcome) -> Iterator[str]:
    for event in outcome.trace:
        yield repr(_key(event))
    for result in outcome.results:
        yield repr(_result_key(result))


def _key(event: Event) -> tuple[object, ...]:
    if isinstance(event, Op):
        args = tuple(sorted(event.args.items()))
        clock = tuple(sorted(event.clock.items()))
        return event.thread, event.call, event.syscall, event.places, event.flags, args, event.result, clock
    return event.kind, event.group, event.number, event.ranks, event.root


def _detail(one: Event | None, other: Event | None) -> str:
    """Return the differences of two ops that have the same label."""
    if not isinstance(one, Op) or not isinstance(other, Op) or _say(one) != _say(other):
        return ""
    if one.result is not None and other.result is not None and one.result.digest != other.result.digest:
        return (
            f" (different bytes: {one.result.text!r}, now {other.result.text!r})"
            if one.result.text
            else " (other bytes)"
        )
    names = ("thread", "call", "syscall", "places", "flags", "args", "result", "clock")
    differing = (name for name, mine, theirs in zip(names, _key(one), _key(other), strict=False) if mine != theirs)
    return f" (another {next(differing, 'event')})"


def _result_key(result: RankResult | None) -> tuple[object, ...]:
    kind = type(result).__name__
    if isinstance(result, Returned):
        return kind, repr(result.value)
    if isinstance(result, Raised):
        return kind, "echo" if result.echo else result.type, result.errno
    if isinstance(result, Died):
        return kind, result.signal, str(result.status)
    return (kind, getattr(result, "kind", ""), "")


def _say(event: Event | None) -> str:
    if event is None:
        return "the run ended"
    if isinstance(event, Op):
        result = event.result
        return f"{event.label}: {(result.errno or 'ok') if result else 'pending'}"
    return f"{event.kind} #{event.number} of group {event.group}"
