"""Toy programs with a bug each, and how to tell that a run has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from racecheck.model.nouns import Outcome, Returned
from tests.support.toys import Do, Program


class Bug(NamedTuple):
    program: Program
    shows: Callable[[Outcome], bool]


def missing_at_first() -> Bug:
    """Depth 1."""
    return Bug(Program(((Do("mkdir", "a"),), (Do("stat", "a"),))), _sees("ENOENT"))


def there_for_a_moment() -> Bug:
    """Depth 2: after it is made, and before it is gone."""
    return Bug(Program(((Do("mkdir", "a"), Do("rmdir", "a")), (Do("stat", "a"),))), _sees("directory:0"))


def there_and_gone() -> Bug:
    """Depth 3: as before, and then gone."""
    looks = (Do("stat", "a"), Do("stat", "a"))
    return Bug(Program(((Do("mkdir", "a"), Do("rmdir", "a")), looks)), _sees("directory:0", "ENOENT"))


def lock_step(ranks: int = 4, around: int = 6) -> Bug:
    """Two see that a directory is missing, and both make it."""
    ensure = Do("stat", "d", otherwise=(Do("mkdir", "d"),))
    rank = (*_work("a", around), ensure, *_work("a", around))
    return Bug(Program((rank,) * ranks), _fails("mkdir"))


def starved(ranks: int = 4, after: int = 5) -> Bug:
    """Rank 0 publishes before another one has saved anything."""

    def save(rank: int) -> tuple[Do, ...]:
        return (*_work(f"w{rank}", 2), Do("mkdir", f"d/shard{rank}"), *_work(f"w{rank}", after))

    publish = (Do("mkdir", "d/shard0"), *_work("d", after), Do("list", "d"))
    return Bug(
        Program((publish, *map(save, range(1, ranks))), ("d",)),
        lambda outcome: any(
            op.result is not None and op.result.size < ranks for op in outcome.ops if op.call == "list"
        ),
    )


def one_temporary_name(ranks: int = 2, around: int = 8) -> Bug:
    """Everybody writes a file of one name and gives it its last name: somebody's is gone."""
    save = (*_work("a", around), Do("write", "tmp", "x"), Do("rename", "tmp", "final"), *_work("a", around))
    return Bug(Program((save,) * ranks), _fails("rename"))


def pruned(around: int = 8) -> Bug:
    """Rank 0 removes a checkpoint that rank 1 has found and not opened yet."""
    prune = (*_work("a", around), Do("unlink", "old"), *_work("a", around))
    resume = (*_work("a", around), Do("stat", "old", then=(Do("read", "old"),)), *_work("a", around))
    return Bug(Program((prune, resume), files=(("old", "1"),)), _fails("open"))


def _work(name: str, count: int) -> tuple[Do, ...]:
    """What is of no importance."""
    return (Do("stat", name),) * count


def _fails(call: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(op.result is not None and op.result.errno for op in outcome.ops if op.call == call)


def _sees(*seen: str) -> Callable[[Outcome], bool]:
    """That this is what the second actor sees."""
    return lambda outcome: outcome.results[1] == Returned([*seen])
