"""Crashes of generated programs: what a journal leaves of all orders, held against what is judged of one of them.

The judge knows a journal only: in each order of the ranks' calls, cut anywhere, what lasts is what came first, and no
less than what came before the last fsync.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from racecheck.crash.states import states
from tests.support.crash_logs import Calls, shown

from .programs import Block, Program

State = tuple[bool, frozenset[str]]
"""Whether the crash came after the acknowledgement, and what it left."""


def draw(rng: Random) -> Program:
    """Ranks that make directories and files, sync some of them and wait for each other; then the first acknowledges."""
    count = rng.choice((2, 2, 3))
    group = tuple(range(count))
    blocks = []
    for rank in group:
        own = _made(rng, rank)
        own.insert(rng.randint(0, len(own)), ("barrier", group))
        blocks.append((*own, *((("barrier", group), ("ack",)) if rank == 0 else (("barrier", group),))))
    return Program(tuple(blocks))


def _made(rng: Random, rank: int) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for number in range(rng.randint(1, 2)):
        path = f"{rank}{number}"
        kind = rng.random()
        found.append(("mkdir" if kind < 0.5 else "create", path))
        if kind > 0.8:
            found.append(("fsync", path))
        elif kind > 0.65:
            found.append(("rename", path, f"{path}n"))
    return found


def orders(blocks: tuple[Block, ...]) -> Iterator[list[tuple[int, tuple[str, ...]]]]:
    """All orders of the ranks' calls; ("barrier",) of rank -1 where all have come to one."""
    going = [rank for rank, block in enumerate(blocks) if block and block[0][0] != "barrier"]
    if not any(blocks):
        yield []
    elif not going:
        for rest in orders(tuple(block[1:] for block in blocks)):
            yield [(-1, ("barrier",)), *rest]
    for rank in going:
        after = tuple(block[1:] if each == rank else block for each, block in enumerate(blocks))
        for rest in orders(after):
            yield [(rank, blocks[rank][0]), *rest]


def judged(program: Program) -> set[State]:
    """What a crash may leave, over all orders."""
    found: set[State] = set()
    for order in orders(program.ranks):
        names: list[frozenset[str]] = [frozenset()]
        floor, acked = 0, False
        for _, call in order:
            names.append(_after(names[-1], call))
            floor = len(names) - 1 if call[0] == "fsync" else floor
            acked |= call[0] == "ack"
            found |= {(acked, each) for each in names[floor:]}
    return found


def _after(names: frozenset[str], call: tuple[str, ...]) -> frozenset[str]:
    if call[0] == "mkdir":
        return names | {f"{call[1]}/"}
    if call[0] == "create":
        return names | {call[1]}
    return (names - {call[1]}) | {call[2]} if call[0] == "rename" else names


def searched(program: Program, model: str = "ext4") -> set[State]:
    """What the engine says that a crash may leave, judging one order: no two calls of different ranks depend."""
    calls, ack = Calls(len(program.ranks)), -1
    for rank, call in next(orders(program.ranks)):
        if call[0] == "barrier":
            calls.barrier()
        elif call[0] == "ack":
            calls.at(rank).nothing()
            ack = calls.last
        else:
            getattr(calls.at(rank), call[0])(*call[1:])
    found = states(calls.log(), model, acks=(ack,)).states
    return {(ack in each.crash.happened, frozenset(map(_bare, shown(each.disk)))) for each in found}


def _bare(line: str) -> str:
    """A path without what is in the file."""
    return line.partition("=")[0].partition(" ")[0]
