"""Crash states that fail in the same way, because of the same lines of code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.crash.log import Disk
from racecheck.crash.states import CrashState
from racecheck.model.nouns import Op, Outcome, Violation

MOST = 3
"""Witnesses that are kept of a group."""

Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Witness:
    """A crash state, the disks (by prefix) as it leaves them, and the outcome as it was judged."""

    state: CrashState
    disks: tuple[tuple[str, Disk], ...]
    outcome: Outcome

    @property
    def harm(self) -> int:
        """How many ops were lost or torn."""
        return len(self.state.crash.lost) + len(self.state.crash.torn)


@dataclass(frozen=True, slots=True)
class Group:
    """One way to fail: the ``violation`` of its least witness, and where the lost ops were made.

    ``models`` says under which models it shows, and in how many states; ``witnesses`` are the least ones, those that
    lose the fewest ops first.
    """

    violation: Violation
    lines: tuple[Line, ...]
    models: Mapping[str, int]
    witnesses: Sequence[Witness]

    @property
    def states(self) -> int:
        return sum(self.models.values())


@dataclass(slots=True)
class _GroupInTheMaking:
    models: dict[str, set[int]] = field(default_factory=dict)
    """The states by model: a state that fails on several ranks counts once."""
    witnesses: list[tuple[int, int, Violation, Witness]] = field(default_factory=list)


class Groups:
    """Collects findings, in any order."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[tuple[Line, ...], _GroupInTheMaking]] = {}

    def add(self, violation: Violation, witness: Witness, number: int) -> None:
        """Add a finding; ``number`` is the state's.  Of two that lose as much, the first one counts."""
        kind = violation.invariant, plain(violation.message)
        found = self._found.setdefault(kind, {}).setdefault(_lines(witness), _GroupInTheMaking())
        model = witness.state.crash.model
        found.models.setdefault(model, set()).add(number)
        found.witnesses.append((witness.harm, number, violation, witness))
        found.witnesses.sort(key=lambda each: each[:2])
        del found.witnesses[MOST:]

    def plainest(self) -> tuple[Group, ...]:
        """Return the groups, the one with the least loss first.

        A failure of the same kind with a larger loss counts with that one.
        """
        numbered = [each for by_lines in self._found.values() for each in _folded(by_lines)]
        numbered.sort(key=lambda each: (each[1].witnesses[0].harm, each[1].violation.invariant, each[0]))
        return tuple(group for _, group in numbered)


def _folded(by_lines: Mapping[tuple[Line, ...], _GroupInTheMaking]) -> list[tuple[int, Group]]:
    """Return the groups with the numbers of their least witnesses."""
    least: dict[tuple[Line, ...], dict[str, set[int]]] = {}
    for lines in sorted(by_lines, key=lambda each: (len(each), each)):
        within = next((other for other in least if set(other) <= set(lines)), lines)
        models = least.setdefault(within, {})
        for model, states in by_lines[lines].models.items():
            models.setdefault(model, set()).update(states)
    return [
        (by_lines[lines].witnesses[0][1], _group(by_lines[lines], lines, models)) for lines, models in least.items()
    ]


def _group(found: _GroupInTheMaking, lines: tuple[Line, ...], models: Mapping[str, set[int]]) -> Group:
    counts = {model: len(states) for model, states in models.items()}
    return Group(found.witnesses[0][2], lines, counts, tuple(each[3] for each in found.witnesses))


def _lines(witness: Witness) -> tuple[Line, ...]:
    """Return where the lost and torn ops were made, each line once."""
    crash = witness.state.crash
    happened = dict(zip(crash.happened, witness.outcome.trace, strict=True))
    ops = [op for event in (*crash.lost, *crash.torn) if isinstance(op := happened[event], Op)]
    return tuple(sorted({_line(op) for op in ops}))


def _line(op: Op) -> Line:
    """Return the line, or else the op."""
    return (op.stack[0].file, op.stack[0].line) if op.stack else (f"{op.call} {op.path}", 0)


def plain(message: str) -> str:
    """Return a message without the differences between similar cases: numbers, digests, addresses."""
    return re.sub(r"\b(0x)?[0-9a-f]{12,}\b|\d+", "#", message)
