"""A crash after ops that could have gone in another order: the states of one run are those of all its orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from racecheck.crash.log import Entry, Log
from racecheck.crash.precedence import before_entries
from racecheck.crash.states import states
from tests.support.crash_logs import Calls, shown

JOURNALS = ("ext4", "xfs", "ordered")


def left(log: Log, model: str, acks: tuple[int, ...] = ()) -> set[tuple[str, ...]]:
    """What a crash may leave once all of ``acks`` have happened, as paths."""
    enumeration = states(log, model, acks=acks)
    assert not enumeration.truncated
    return {tuple(shown(each.disk)) for each in enumeration.states if set(acks) <= set(each.crash.happened)}


def made(*makes: tuple[int, str], barrier: bool = True) -> Calls:
    """Ranks that make a directory each, in this order, and wait for each other."""
    calls = Calls(1 + max(rank for rank, _ in makes))
    for rank, name in makes:
        calls.at(rank).mkdir(name)
    calls.barrier()
    return calls


@pytest.mark.parametrize("model", [*JOURNALS, "btrfs", "nfs-server", "posix-min"])
def test_either_of_two_directories_may_be_left_alone(model: str):
    """Whichever the run has made first."""
    for makes in (((0, "A"), (1, "B")), ((1, "B"), (0, "A"))):
        calls = made(*makes)
        assert left(calls.log(), model, (calls.last,)) == {(), ("A/",), ("B/",), ("A/", "B/")}


@pytest.mark.parametrize("model", [*JOURNALS, "btrfs"])
def test_of_three_ranks_any_may_be_left_and_what_depends_stays_in_order(model: str):
    calls = made((0, "A"), (1, "B"), (2, "C"))
    calls.at(1).mkdir("D")
    calls.barrier()
    whole = {"A/", "B/", "C/"}
    found = left(calls.log(), model, (calls.last,))
    assert {frozenset(each) for each in found} == {
        *(frozenset(name for name in sorted(whole) if number >> ord(name[0]) - 65 & 1) for number in range(8)),
        frozenset(whole | {"D/"}),
    }  # fmt: skip


@pytest.mark.parametrize("model", JOURNALS)
def test_what_a_rank_saw_of_another_comes_first(model: str):
    calls = made((0, "A"), (1, "B"))
    moments = list(calls.moments)
    moments[1] = replace(moments[1], after=(0,))
    saw = replace(calls.log(), moments=tuple(moments))
    assert left(saw, model, (calls.last,)) == {(), ("A/",), ("A/", "B/")}


@pytest.mark.parametrize("model", JOURNALS)
def test_an_fsync_promises_what_comes_before_it_in_every_order(model: str):
    """The directory of the other rank may be made after the fsync, also where the run has made it before."""
    calls = Calls(2)
    calls.at(0).mkdir("A")
    calls.at(1).mkdir("B")
    calls.at(1).fsync("")
    ack = calls.last
    calls.barrier()
    assert left(calls.log(), model, (ack,)) == {("B/",), ("A/", "B/")}
    calls.at(0).fsync("B")
    calls.barrier()
    assert left(calls.log(), model, (calls.last,)) == {("B/",), ("A/", "B/")}


def test_of_two_ranks_that_acknowledge_either_may_be_alone():
    """Equal disks are told apart by who has acknowledged, not by how many."""
    calls = Calls(2)
    calls.at(0).create("a")
    calls.at(1).create("b")
    found = states(calls.log(), "ext4", acks=(0, 1)).states
    acked = {(each.crash.happened, tuple(shown(each.disk))) for each in found}
    assert {((0,), ()), ((1,), ())} <= acked


@pytest.mark.parametrize("model", ["kill", *JOURNALS])
def test_each_rank_may_be_at_any_of_its_writes(model: str):
    calls = Calls(2)
    calls.at(0).create("a")
    calls.at(0).write("a", "one")
    calls.at(0).write("a", "two")
    calls.at(1).mkdir("B")
    calls.at(1).mkdir("B/c")
    texts = [shown(each.disk) for each in states(calls.log(), model).states]
    for there in ({}, {"B/": ""}, {"B/": "", "B/c/": ""}):
        assert {"a": "one", **there} in texts


def test_what_two_fsyncs_promise_cannot_both_be_lost_where_one_of_them_comes_first():
    """Each rank makes a name and then fsyncs the directory of the other's: whichever is last finds the other name."""
    calls = Calls(2)
    calls.mkdir("X")
    calls.mkdir("Y")
    calls.settle()
    both = Calls(2, dict(calls.names), start=calls.start, _inodes=9)
    for rank, name, other in ((0, "Y/a", "X"), (1, "X/b", "Y")):
        both.at(rank).mkdir(name)
        both.at(rank).fsync(other)
    for model in (*JOURNALS, "posix-min"):
        found = {tuple(each for each in paths if len(each) > 2) for paths in left(both.log(), model, (1, 3))}
        assert found == {("Y/a/",), ("X/b/",), ("X/b/", "Y/a/")}, model


# Brute force.


def drawn(random: Random, ranks: int, count: int, kinds: Sequence[str]) -> Log:
    """A small concurrent run: a rank changes files of its own, in directories and with fsyncs of all ranks."""
    calls = Calls(ranks)
    made: dict[str, int] = {"": -1}
    owners: dict[str, int] = {}
    for number in range(count):
        calls.at(random.randrange(ranks))
        kind, place = random.choice(kinds), random.choice([path for path in made if path not in owners])
        own = [path for path, owner in owners.items() if owner == calls.rank]
        path = f"{place}/{number}".lstrip("/")
        if kind in {"mkdir", "create"}:
            getattr(calls, kind)(path)
            made[path] = calls.last
            owners.update({path: calls.rank} if kind == "create" else {})
        elif kind in {"fsync", "fdatasync"}:
            path = place = random.choice([*made])
            getattr(calls, kind)(path)
        elif not own:
            continue
        elif kind == "write":
            calls.write(random.choice(own), str(number))
        else:
            source = random.choice(own)
            calls.rename(source, path)
            made[path], owners[path] = made.pop(source), owners.pop(source)
        if made[place] >= 0:  # whoever uses a directory, or opens a file, has found it
            calls.moments[-1] = replace(calls.moments[-1], after=(made[place],))
    return calls.log()


def orders(log: Log) -> Iterator[tuple[Entry, ...]]:
    """All orders of the entries of a log in which nothing comes before what has to come before it."""
    before = before_entries(log)

    def more(done: int, taken: list[int]) -> Iterator[tuple[Entry, ...]]:
        if len(taken) == len(before):
            yield tuple(log.entries[each] for each in taken)
        for index, needs in enumerate(before):
            if not done >> index & 1 and not needs & ~done:
                yield from more(done | 1 << index, [*taken, index])

    return more(0, [])


Left = tuple[frozenset[int], tuple[tuple[str, str], ...]]
"""Which of the fsyncs had returned, by their events, and what was on the disk."""


def texts(log: Log, model: str) -> set[Left]:
    syncs = [each.event for each in log.entries if each.kind == "fsync"]
    enumeration = states(log, model, acks=syncs, most=10**6)
    assert not enumeration.truncated
    return {
        (frozenset(syncs) & frozenset(each.crash.happened), tuple(shown(each.disk).items()))
        for each in enumeration.states
    }


def of_all_orders(log: Log, model: str) -> set[Left]:
    """What crashes leave of each order by itself: a log without moments has one."""
    found = set()
    for entries in orders(log):
        numbered = tuple(replace(each, event=place) for place, each in enumerate(entries))
        for returned, disk in texts(Log(log.start, numbered), model):
            found.add((frozenset(entries[place].event for place in returned), disk))
    return found


NAMES = ("mkdir", "create", "rename", "fsync", "fdatasync")
ALL = (*NAMES, "write", "write", "fsync")


SEEDS = [range(40), pytest.param(range(40, 150), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["some", "many"])
@pytest.mark.parametrize("model", [*JOURNALS, "posix-min"])
@pytest.mark.parametrize("kinds", [NAMES, ALL])
def test_the_states_of_one_run_are_those_of_all_its_orders(model: str, kinds: Sequence[str], seeds: range):
    several = 0
    for seed in seeds:
        log = drawn(Random(f"orders {seed}"), 2 + seed % 2, 7, kinds)
        one, every = texts(log, model), of_all_orders(log, model)
        assert one == every, (seed, log.entries, one - every, every - one)
        several += one != texts(replace(log, moments=()), model)
    assert several > 20 * len(seeds) / 150 or model == "posix-min"


@pytest.mark.parametrize("model", ["btrfs", "nfs-server", "kill"])
def test_the_states_of_one_run_have_those_of_all_its_orders(model: str):
    for seed in range(100):
        log = drawn(Random(f"orders {seed}"), 2 + seed % 2, 7, ALL)
        assert of_all_orders(log, model) <= texts(log, model), seed
