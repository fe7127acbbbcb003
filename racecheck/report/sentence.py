"""A failing run in one sentence: only facts of that run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TypeVar

from racecheck.model.frames import user_frames
from racecheck.model.nouns import Crash, Event, Op, Outcome, Violation
from racecheck.report import words
from racecheck.report.decisive import Decisive

_LONGEST = 130
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A piece of a sentence; ``is_code``: a call with its paths, to be set as code."""

    text: str
    is_code: bool = False


def plain(parts: Sequence[Phrase]) -> str:
    """Return a sentence as plain text."""
    return "".join(part.text for part in parts)


def sentence(outcome: Outcome, violations: Sequence[Violation], found: Decisive) -> list[Phrase]:
    """Return the sentence; of a run whose events do not say it, the message of its first violation.

    Clocks that are apart have a sentence of their own.  The parts are escaped: they hold printable characters only.
    """
    return [*_clocks(outcome), *_failure(outcome, violations, found)]


def _clocks(outcome: Outcome) -> list[Phrase]:
    """Return which clocks are ahead, and the first time that each told its program, to the millisecond."""
    skew = {rank: seconds for rank, seconds in enumerate(outcome.world.skew) if seconds}
    if not skew:
        return []
    ahead = " and ".join(f"{seconds:g} s on {words.ranks(who)}" for seconds, who in _by_value(skew))
    times = {rank: _time_of_day(each) for rank, each in outcome.times.items()}
    read = "; ".join(f"{words.ranks(who)} read{'s' * (len(who) == 1)} {time}" for time, who in _by_value(times))
    return [Phrase(f"The clock is ahead by {ahead}{' (' * bool(read)}{read}{')' * bool(read)}.  ")]


def _by_value(of_ranks: Mapping[int, _T]) -> Iterable[tuple[_T, list[int]]]:
    found: dict[_T, list[int]] = {}
    for rank, each in of_ranks.items():
        found.setdefault(each, []).append(rank)
    return found.items()


def _time_of_day(nanoseconds: int) -> str:
    """Return a time since 1970 as a date and a time (UTC)."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 10**6:03}"


def _failure(outcome: Outcome, violations: Sequence[Violation], found: Decisive) -> list[Phrase]:
    said = message(violations)
    if outcome.crash is not None:
        return _crash(outcome.crash, outcome.trace, said)
    injected = _kill(outcome, found, said) or _fault(outcome, found, said)
    ordered = injected or _stale(outcome, found) or _mismatch(outcome, found) or _order(outcome, found)
    return ordered or _pair(outcome, found, said) or _alone(outcome, found) or [Phrase(_capital(said))]


def message(violations: Sequence[Violation]) -> str:
    """Return the message that says most: of a violation that names events, else of the last one's invariant."""
    if not violations:
        return "no violation"
    own = [each for each in violations if each.invariant == violations[-1].invariant]
    text = words.escape(next((each for each in violations if each.events), own[0]).message)
    short = text[: _LONGEST - 4].rpartition(" ")[0] or text[: _LONGEST - 4]
    return text if len(text) <= _LONGEST else f"{short} ..."


def _crash(crash: Crash, trace: Sequence[Event], said: str) -> list[Phrase]:
    if crash.damage:
        return [Phrase(f"After the run, {words.escape(crash.damage)}: {said.partition(', ')[2]}")]
    hit = _hit(crash, trace)
    event = "The processes are killed" if crash.model == "kill" else "Power is lost"
    if hit is None:
        return [Phrase(f"{event}: {said}")]
    verb = "did not reach the disk" if crash.lost else "reached the disk only in part"
    return [Phrase(f"{event}, and "), _call(hit), Phrase(f" {verb}: {said}")]


def _hit(crash: Crash, trace: Sequence[Event]) -> Op | None:
    """Return the op that the crash took, the last of several."""
    ops = [trace[index] for index in (*crash.torn, *crash.lost) if index < len(trace)]
    return next((each for each in reversed(ops) if isinstance(each, Op)), None)


def _kill(outcome: Outcome, found: Decisive, said: str) -> list[Phrase] | None:
    op = _op(outcome, found.first("kill"))
    if op is None:
        return None
    who = "The job is killed" if op.fault.startswith("kill-job") else f"Rank {op.rank} is killed"
    later = ""
    if op.syscall == "SIGTERM":
        who = f"Rank {op.rank} gets SIGTERM"
        later = next((f", and SIGKILL {_seconds(op, each)} later" for each in _kills(outcome, op.rank)), "")
    when = words.escape(" the ".join(next(iter(op.flags), "at its call").split(" ", 1)))
    place = [Phrase(" of "), Phrase(words.escape(op.path), is_code=True)] if op.path else []
    return [Phrase(f"{who} {when}"), *place, Phrase(f"{later}: {said}")]


def _kills(outcome: Outcome, rank: int) -> list[Op]:
    return [each for each in outcome.ops if (each.call, each.syscall, each.rank) == ("kill", "SIGKILL", rank)]


def _seconds(first: Op, second: Op) -> str:
    return f"{(second.time - first.time) / 1e9:g} s"


def _fault(outcome: Outcome, found: Decisive, said: str) -> list[Phrase] | None:
    op = _op(outcome, found.first("fault"))
    if op is None:
        return None
    what = f"{words.escape(op.fault)} is injected into rank {op.rank}'s "
    return [Phrase(what), _call(op), Phrase(f": {said}")]


def _stale(outcome: Outcome, found: Decisive) -> list[Phrase] | None:
    ops = [_op(outcome, index) for index in found.arrow]
    if len(ops) < 2 or ops[0] is None or ops[1] is None or not ops[1].fault.startswith("stale"):
        return None
    cause, victim = ops[0], ops[1]
    errno = victim.result.errno if victim.result is not None else ""
    answer = words.escape(errno) or words.result(victim).removesuffix(" (stale)")
    where = "on another node " if outcome.world.node(cause.rank) != outcome.world.node(victim.rank) else ""
    return [
        Phrase(f"{_who(cause)} had done "), _call(cause),
        Phrase(f", and {_who(victim, low=True)} {where}was still answered {answer} to "), _call(victim),
    ]  # fmt: skip


def _mismatch(outcome: Outcome, found: Decisive) -> list[Phrase] | None:
    """Say which collectives wait for each other, and which order led there if a pair decides."""
    if outcome.mismatch is None:
        return None
    calls = [f"rank {rank} in {each.partition('(')[0]}" for rank, each in sorted(outcome.mismatch.calls.items())]
    waits = words.escape(" and ".join(calls)) if len(calls) == 2 else f"{len(calls)} ranks in different collectives"
    ops = [_op(outcome, index) for index in found.arrow]
    if len(ops) < 2 or ops[0] is None or ops[1] is None:
        return [Phrase(_capital(f"{waits} wait for each other"))]
    return [*_sequence(ops[0], ops[1]), Phrase(f", and now {waits} wait for each other")]


def _order(outcome: Outcome, found: Decisive) -> list[Phrase] | None:
    """Say which op failed, and the op of another rank before it, or only after it."""
    first, second = (_op(outcome, index) for index in found.arrow) if len(found.arrow) == 2 else (None, None)
    if first is None or second is None:
        return None
    errno = second.result.errno if second.result is not None else ""
    if found.roles.get(found.arrow[1]) != "victim" or not errno:
        return None
    here, there = _lines(first, second)
    if found.arrow[0] > found.arrow[1]:
        return [
            Phrase(f"{_who(second)}'s "), _call(second),
            Phrase(f"{there} failed with {words.escape(errno)}: {_who(first, low=True)} did "), _call(first),
            Phrase(f"{here} only afterwards"),
        ]  # fmt: skip
    return [
        Phrase(f"{_who(first)} did "), _call(first), Phrase(f"{here}, and then {_who(second, low=True)}'s "),
        _call(second), Phrase(f"{there} failed with {words.escape(errno)}"),
    ]  # fmt: skip


def _alone(outcome: Outcome, found: Decisive) -> list[Phrase] | None:
    """Say which op failed, where no other rank is the cause."""
    victim = _op(outcome, found.first("victim"))
    if victim is None or victim.result is None:
        return None
    return [
        Phrase(f"{_who(victim)}'s "),
        _call(victim),
        Phrase(f" failed with {words.escape(victim.result.errno)}"),
    ]


def _pair(outcome: Outcome, found: Decisive, said: str) -> list[Phrase] | None:
    """Say in which order the pair went that decides."""
    ops = [_op(outcome, index) for index in found.arrow]
    if len(ops) < 2 or ops[0] is None or ops[1] is None or found.roles.get(found.arrow[0]) != "pair":
        return None
    return [*_sequence(ops[0], ops[1]), Phrase(f": {said}")]


def passes_if(outcome: Outcome, pair: Sequence[int]) -> list[Phrase]:
    """Return, as an instruction, the order in which a run has passed: that of the pair that decides, turned round.

    ``pair`` are two indices of ops in the trace, in the order in which the run fails.
    """
    ops = [each for index in pair if (each := _op(outcome, index)) is not None]
    lines = [each.strip(" ()") for each in _lines(*ops)]
    steps = [f"step {index + 1}{', ' * bool(line)}{line}" for index, line in zip(pair, lines, strict=True)]
    first, second = (
        [Phrase(f"{_who(op, low=True)}'s "), _call(op), Phrase(f" ({step})")]
        for op, step in zip(ops, steps, strict=True)
    )
    return [
        Phrase("It passes if "),
        *second,
        Phrase(" comes before "),
        *first,
        Phrase(", as one run did."),
    ]


def _sequence(first: Op, second: Op) -> list[Phrase]:
    here, there = _lines(first, second)
    return [
        Phrase(f"{_who(first)} did "), _call(first),
        Phrase(f"{here} before {_who(second, low=True)} did "), _call(second), Phrase(there),
    ]  # fmt: skip


def _lines(*ops: Op) -> list[str]:
    """Return the lines of the user's code that made the ops, " (line 10)" in one file, "" if one is not known."""
    frames = [user_frames(op.stack or ())[:1] for op in ops]
    places = [(PurePath(each[0].file).name, each[0].line) for each in frames if each]
    if len(places) < len(ops):
        return [""] * len(ops)
    is_one = len({each[0].file for each in frames}) == 1
    return [f" (line {line})" if is_one else f" ({words.escape(name)}:{line})" for name, line in places]


def _who(op: Op, *, low: bool = False) -> str:
    name = f"rank {op.rank}" if op.thread == str(op.rank) else f"thread {op.thread} of rank {op.rank}"
    return words.escape(name if low else _capital(name))


def _call(op: Op) -> Phrase:
    return Phrase(f"{words.call_name(op)} {words.subject(op)}".strip(), is_code=True)


def _op(outcome: Outcome, index: int | None) -> Op | None:
    event = outcome.trace[index] if index is not None and index < len(outcome.trace) else None
    return event if isinstance(event, Op) else None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
