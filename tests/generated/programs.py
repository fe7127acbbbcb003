"""A small language of programs: data that can be written down, drawn at random, and made smaller.

An instruction is a tuple whose first element says what it does:

    files        mkdir, rmdir, unlink, stat, readlink, list (path); rename, link (path, path); symlink (target, path);
                 create, open (path: that file is what the next four are about); read, fsync, close (path);
                 age (path: beside the one at which the thread has looked last)
                 write (path, text: "+" is what the thread saw last and an "x"), map, peek (path: at the mapping)
    locks        flock (path, "SH" or "EX", "wait" or "try"), funlock (path); record (path, mode, first byte, last byte,
                 "wait" or "try"), runlock (path, first byte, last byte)
    store        set (key, text), get, check, await, delete (key), add (key, amount), compare (key, old, new)
    collectives  barrier, reduce (group), broadcast, gather, scatter (group, root), send (rank), recv (rank)
    threads      start, daemon (block), join, alive (number of the thread), put (variable, text), look (variable),
                 tell, told, listen (event)
    processes    spawn (block), reap, polled (number of the process)
    time         sleep
    branches     if (instruction, block, block), until (times, instruction): ask, sleep, ask, ...

A group is a tuple of ranks.  A block is a tuple of instructions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Instruction = tuple[Any, ...]
Block = tuple[Instruction, ...]

COLLECTIVES = frozenset({"barrier", "reduce", "broadcast", "gather", "scatter"})


START = (("a", "0"), ("d/x", "0"))
"""What there is at the start of each program that real ranks carry out, with the directory d."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An errno for the ``nth`` op of this family at this path, on one rank or (-1) on all."""

    errno: str
    call: str
    path: str
    rank: int
    nth: int


@dataclass(frozen=True, slots=True)
class Program:
    """What each rank does; ``directories`` and ``files`` (path, text) are there at the start."""

    ranks: tuple[Block, ...]
    directories: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    failures: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        start = [*(f"{each}/" for each in self.directories), *(f"{path}={text}" for path, text in self.files)]
        lines = [f"at the start: {' '.join(start)}", *(f"fails: {each}" for each in self.failures)]
        for rank, block in enumerate(self.ranks):
            lines += [f"rank {rank}:", *_lines(block, 1)]
        return "\n".join(lines)


def _lines(block: Block, depth: int) -> Iterator[str]:
    for each in block:
        plain = [part for part in each if not is_block(part)]
        yield "  " * depth + " ".join(map(str, plain))
        for part in each:
            if is_block(part):
                yield from _lines(part, depth + 1)


def is_block(part: object) -> bool:
    """Whether a part of an instruction is a block or an instruction of its own."""
    return isinstance(part, tuple) and bool(part) and isinstance(part[0], tuple)


def words(block: Block) -> Iterator[str]:
    """What a block's instructions do, those of its blocks among them."""
    for each in block:
        yield each[0]
        for part in each[1:]:
            if is_block(part):
                yield from words(part)
            elif isinstance(part, tuple) and part and isinstance(part[0], str):
                yield part[0]


def dump(program: Program) -> str:
    failures = [[each.errno, each.call, each.path, each.rank, each.nth] for each in program.failures]
    return json.dumps([program.ranks, program.directories, program.files, failures])


def load(text: str) -> Program:
    ranks, directories, files, failures = _tuples(json.loads(text))
    return Program(ranks, directories, files, tuple(Failure(*each) for each in failures))


def _tuples(data: Any) -> Any:
    return tuple(map(_tuples, data)) if isinstance(data, list) else data


def smaller(program: Program) -> Iterator[Program]:
    """The program with one instruction less, or with a block in place of the instruction that has it."""
    for failure in program.failures:
        yield replace(program, failures=tuple(each for each in program.failures if each != failure))
    for rank, block in enumerate(program.ranks):
        for less in _less(block):
            yield replace(program, ranks=(*program.ranks[:rank], less, *program.ranks[rank + 1 :]))
    for number in range(len(program.files)):
        yield replace(program, files=program.files[:number] + program.files[number + 1 :])


def _less(block: Block) -> Iterator[Block]:
    for at, each in enumerate(block):
        before, after = block[:at], block[at + 1 :]
        yield (*before, *after)
        for number, part in enumerate(each):
            if each[0] != "until" and is_block(part):
                for less in _less(part):
                    yield (*before, (*each[:number], less, *each[number + 1 :]), *after)
