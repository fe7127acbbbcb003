"""All outcomes of a generated program, by brute force: every thread may take the next step in every state.

Nothing is pruned but states that have been: what the machine says of a state is all there is to it.
"""

from __future__ import annotations

from .machine import Machine
from .programs import Program

Outcome = tuple[object, ...]


class TooMany(Exception):
    """A program has more states than were allowed."""


def outcomes(program: Program, most: int = 4000, *, blocking: bool = False) -> set[Outcome]:
    """Raises `TooMany`."""
    found: set[Outcome] = set()
    start = Machine(program, blocking=blocking)
    seen, todo = {start.key()}, [start]
    while todo:
        machine = todo.pop()
        able = [name for name in machine.threads if machine.able(name)]
        if not able:
            found.add(machine.outcome())
        for name in able:
            after = machine.copy()
            after.step(name)
            key = after.key()
            if key not in seen:
                seen.add(key)
                todo.append(after)
        if len(seen) > most:
            raise TooMany
    return found
