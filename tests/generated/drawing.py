"""Draws small programs at random, each around one feature."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

from .programs import START, Block, Failure, Instruction, Program

PATHS = ("a", "b", "d/x")
_KEYS = ("k", "v")


def draw(rng: Random, feature: str) -> Program:
    """A program with this feature among others."""
    return {**FEATURES, **REAL_FEATURES}[feature](rng)


def _program(rng: Random, blocks: list[Block], failures: tuple[Failure, ...] = ()) -> Program:
    directories = ("d",) if rng.random() < 0.8 else ()
    files = [(path, "0") for path in ("a", *(("d/x",) if directories else ())) if rng.random() < 0.7]
    return Program(tuple(blocks), directories, tuple(files), failures)


def _ranks(rng: Random) -> int:
    return rng.choice((2, 2, 2, 3))


def _file_step(rng: Random) -> Instruction:
    what = rng.choice(("stat", "mkdir", "rmdir", "unlink", "rename", "create", "list", "link", "symlink", "readlink"))
    if what in {"mkdir", "rmdir"}:
        return (what, rng.choice(("d", "b", "a")))
    if what == "list":
        return (what, rng.choice((".", "d", "b")))
    if what in {"rename", "link"}:
        return (what, *rng.choice((("a", "d/x"), ("d/x", "b"), ("d", "b"), ("b", "d"), ("a", "b"))))
    if what == "symlink":
        return (what, rng.choice(("d", "a")), "b")
    return (what, rng.choice((*PATHS, "b/x")))


def _file_steps(rng: Random, count: int) -> Block:
    """Ops on few paths; what was seen decides, and is written."""
    found: list[Instruction] = []
    while len(found) < count:
        path = rng.choice(PATHS)
        kind = rng.random()
        if kind < 0.1:
            found += [("create", path), ("write", path, rng.choice("12"))]
        elif kind < 0.2:
            found += [("open", path), ("read", path)]
        elif kind < 0.3:
            found.append(("if", ("stat", path), (_file_step(rng),), (_file_step(rng),)))
        else:
            found.append(_file_step(rng))
    return tuple(found[: count + 1])


def files(rng: Random) -> Program:
    count = _ranks(rng)
    return _program(rng, [_file_steps(rng, rng.randint(1, 3 if count == 2 else 2)) for _ in range(count)])


def _update(rng: Random) -> Block:
    """Read a file, and write what was read and more."""
    return (("open", "a"), ("read", "a"), ("create", "a"), ("write", "a", "+"))[rng.choice((0, 0, 2)) :]


def _locked(rng: Random, inside: Block) -> Block:
    """Something under a lock of one kind or another, given back or kept until the end."""
    file, mode, how = (
        rng.choice(("l", "l", "l", "m")),
        rng.choice(("EX", "EX", "SH")),
        rng.choice(("wait", "wait", "try")),
    )
    back: Block
    if rng.random() < 0.5:
        take: Instruction = ("flock", file, mode, how)
        back = (("funlock", file),)
    else:
        first = rng.randint(0, 1)
        take = ("record", file, mode, first, first + rng.randint(0, 1), how)
        back = (("runlock", file, first, 2),)
    back = rng.choice((back, back, (("close", file),), ()))
    return (("if", take, (*inside, *back), ()),) if how == "try" else (take, *inside, *back)


def _nested(rng: Random) -> Block:
    """Two locks in one order or the other, or one that is converted."""
    kind = rng.choice(("flock", "record", "record"))
    span = () if kind == "flock" else (0, 0)
    files = rng.sample(("l", "m"), 2) if rng.random() < 0.7 else ("l", "l")
    taken = tuple((kind, file, rng.choice(("EX", "EX", "SH")), *span, "wait") for file in files)
    return (*taken, *((("mkdir", "a"),) if rng.random() < 0.3 else ()))


def locks(rng: Random) -> Program:
    if rng.random() < 0.3:
        return _program(rng, [_nested(rng) for _ in range(_ranks(rng))])
    if rng.random() < 0.4:
        update = (("open", "a"), ("read", "a"), ("write", "a", "+"))
        return _program(rng, [_locked(rng, update), _locked(rng, update[rng.choice((0, 2)) :])])
    insides = [rng.choice((_update(rng), _file_steps(rng, 1), ())) for _ in range(_ranks(rng))]
    return _program(rng, [_locked(rng, inside) for inside in insides])


def _store_step(rng: Random) -> Instruction:
    what = rng.choice(("set", "set", "get", "add", "check", "await", "compare", "delete"))
    key = rng.choice(_KEYS[: 1 + (rng.random() < 0.3)]) if what != "add" else "n"
    if what in {"get", "check", "await", "delete"} and rng.random() < 0.2:
        key = "n"
    more: dict[str, tuple[object, ...]] = {
        "set": (rng.choice("12"),), "add": (1,), "compare": (rng.choice(("", "1")), rng.choice("23")),
    }  # fmt: skip
    return (what, key, *more.get(what, ()))


def store(rng: Random) -> Program:
    blocks: list[Block] = []
    for _ in range(rng.choice((2, 3))):
        steps: list[Instruction] = [_store_step(rng) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            steps.insert(rng.randint(0, len(steps)), _file_step(rng))
        if rng.random() < 0.2:
            steps.append(("if", ("check", "k"), (("mkdir", "b"),), ()))
        blocks.append(tuple(steps))
    return _program(rng, blocks)


def together(rng: Random) -> Program:
    """Collectives of all or of some, and sends."""
    count = rng.choice((2, 2, 3))
    blocks = [_file_steps(rng, rng.randint(1, 2)) for _ in range(count)]
    parts: list[list[tuple[int, Instruction]]] = [[] for _ in range(count)]
    steps = [each for _ in range(rng.randint(1, 2)) for each in _collective(rng, count)]
    for rank, step in steps:
        parts[rank].append((rng.randint(0, len(blocks[rank])), step))
    return _program(rng, [_placed(block, own) for block, own in zip(blocks, parts, strict=True)])


def _collective(rng: Random, count: int) -> list[tuple[int, Instruction]]:
    kind = rng.choice(("barrier", "reduce", "broadcast", "gather", "scatter", "pair"))
    if kind == "pair":
        one, other = rng.sample(range(count), 2)
        return [(one, ("send", other)), (other, ("recv", one))]
    group = tuple(sorted(rng.sample(range(count), rng.randint(2, count))))
    root = (rng.choice(group),) if kind in {"broadcast", "gather", "scatter"} else ()
    return [(rank, (kind, group, *root)) for rank in group]


def _placed(block: Block, steps: list[tuple[int, Instruction]]) -> Block:
    """The steps in their order, somewhere in a block."""
    at = sorted(place for place, _ in steps)
    bounds = [0, *at, len(block)]
    pieces = [block[start:end] for start, end in pairwise(bounds)]
    found = [*pieces[0]]
    for (_, step), piece in zip(steps, pieces[1:], strict=True):
        found += [step, *piece]
    return tuple(found)


def _in_thread(rng: Random) -> Block:
    own = (("put", "v", "1"), ("look", "v"), ("tell", "e"), ("sleep",))
    return rng.choice((
        (_file_step(rng),), (rng.choice(own), _file_step(rng)), (_file_step(rng), rng.choice(own)), (rng.choice(own),),
    ))  # fmt: skip


def _beside_thread(rng: Random) -> Instruction:
    """What the main thread does, which may depend on its other thread."""
    file = _file_step(rng)
    return rng.choice((
        ("put", "v", "2"), ("look", "v"), ("sleep",), ("alive", 1), ("told", "e"), file, file, file,
        ("if", ("told", "e"), (file,), ()), ("if", ("alive", 1), (), (file,)),
    ))  # fmt: skip


def threads(rng: Random) -> Program:
    """One rank with a thread or two beside its main thread, what they share, and polls."""
    main: list[Instruction] = [("start", _in_thread(rng))]
    others = [_file_steps(rng, 1)[:1]] if rng.random() < 0.4 else []
    if rng.random() < 0.08:
        main.append(("start", _in_thread(rng)[:1]))
    else:
        main += [_beside_thread(rng) for _ in range(1 if others else rng.randint(1, 2))]
    if rng.random() < 0.6:
        main += [("join", 1), ("look", "v")][: rng.randint(1, 2)]
    if rng.random() < 0.2:
        group = tuple(range(1 + len(others)))
        main.insert(rng.randint(1, len(main)), ("barrier", group))
        others = [(*each, ("barrier", group)) for each in others]
    return _program(rng, [tuple(main), *others])


def ends(rng: Random) -> Program:
    """A process ends with a thread that may be cut, or with a lock that it holds."""
    if rng.random() < 0.4:
        kept = ("flock", "l", "EX", "wait") if rng.random() < 0.5 else ("record", "l", "EX", 0, 1, "wait")
        asks = (*kept[:-1], rng.choice(("try", "try", "wait")))
        blocks: list[Block] = [(kept, *_file_steps(rng, rng.randint(0, 1))), (asks, *_file_steps(rng, 1))]
        return _program(rng, blocks)
    work = _file_steps(rng, rng.randint(1, 2))[:2]
    others = [_file_steps(rng, 1)[:1]] if rng.random() < 0.4 else []
    return _program(rng, [(("daemon", work), *_file_steps(rng, rng.randint(0, 1))[:1]), *others])


def processes(rng: Random) -> Program:
    """One rank with a child process."""
    child = rng.choice((_file_steps(rng, 1), _locked(rng, ()), _file_steps(rng, 2)))
    main: list[Instruction] = [("spawn", child)]
    main += rng.choice(((), _file_steps(rng, 1), (("polled", 1),), (("if", ("polled", 1), (("mkdir", "b"),), ()),)))
    if rng.random() < 0.5:
        main.append(("reap", 1))
    others = [rng.choice((_file_steps(rng, 1), _locked(rng, ())))] if rng.random() < 0.6 else []
    return _program(rng, [tuple(main), *others])


def polls(rng: Random) -> Program:
    """Asking a few times with sleeps between, and giving up."""
    asks: Block = rng.choice((
        (("until", rng.choice((2, 3, 4)), ("stat", "b")),),
        (("stat", "a"), ("sleep",), ("stat", "a")),
        (("until", 2, ("check", "k")),),
    ))  # fmt: skip
    writes: Block = (("create", "a"), ("write", "a", "12"))
    makes = rng.choice(((("mkdir", "b"),), (("stat", "a"), ("mkdir", "b")), (("set", "k", "1"),), writes))
    blocks = [(*each, *_file_steps(rng, rng.randint(0, 1))) for each in (asks, makes)]
    if rng.random() < 0.3:
        blocks.append((("sleep",), *_file_steps(rng, 1)))
    return _program(rng, blocks)


def mappings(rng: Random) -> Program:
    """A mapping that is read later; only bytes that it has are written, and none is cut off (that is a SIGBUS)."""
    between = tuple(each for each in (_file_step(rng),) * rng.randint(0, 1) if each[0] != "create")
    reads: Block = (("open", "a"), ("map", "a"), *between, ("peek", "a"))
    writes: Block = (("open", "a"), ("write", "a", "1"))
    other: Block = tuple(each for each in _file_steps(rng, 1) if each[0] != "create")
    return Program((reads, (*writes, *other)[: rng.randint(2, 3)]), ("d",), START)


def mixed(rng: Random) -> Program:
    """A little of everything on two ranks."""
    blocks: list[Block] = []
    pieces: list[Callable[[], Block]] = [
        lambda: (_file_step(rng),), lambda: _file_steps(rng, 1), lambda: _locked(rng, (_file_step(rng),)),
        lambda: (_store_step(rng),), lambda: (("sleep",),), lambda: (("until", 2, ("stat", "b")),),
        lambda: _update(rng),
        lambda: (("start", (_file_step(rng),)),), lambda: (("spawn", (_file_step(rng),)),),
    ]  # fmt: skip
    for _ in range(2):
        first, second = rng.choice(pieces)(), rng.choice(pieces[:-2])()
        blocks.append((*first, *second)[:5])
    steps = _collective(rng, 2) if rng.random() < 0.4 else []
    for rank, step in steps:
        at = rng.randint(0, len(blocks[rank]))
        blocks[rank] = (*blocks[rank][:at], step, *blocks[rank][at:])
    failure = Failure("EIO", rng.choice(("mkdir", "stat")), rng.choice(PATHS), rng.choice((-1, 0)), rng.randint(1, 2))
    return _program(rng, blocks, (failure,) if rng.random() < 0.2 else ())


def times(rng: Random) -> Program:
    """What is compared is how old files are; a rank that looks twice knows which of two is older."""
    count = rng.choice((2, 2, 3))
    blocks = [_file_steps(rng, rng.randint(1, 2)) for _ in range(count)]
    looks: Block = tuple(("age", path) for path in rng.sample(("a", "b", "d", "d/x"), 2))
    group = tuple(range(count))
    if rng.random() < 0.5:
        blocks = [(*block, ("barrier", group)) for block in blocks]
    at = rng.randrange(count)
    blocks[at] = (*blocks[at], *looks)
    return _program(rng, blocks)


def failing(rng: Random) -> Program:
    """An errno for the n-th op of its kind, on any rank or on one with two threads."""
    path, call = rng.choice(PATHS), rng.choice(("mkdir", "stat", "unlink"))
    one = rng.random() < 0.6
    failure = Failure("EIO", call, path, 0 if one else -1, rng.randint(1, 2))
    steps = [(call, path), *_file_steps(rng, 1)]
    rng.shuffle(steps)
    other: Block = ((call, path), *_file_steps(rng, rng.randint(0, 1)))
    if rng.random() < 0.4:
        other = (("rename", *rng.choice((("d", "b"), ("b", "d"), ("a", "b"), ("a", "d/x")))),)
        return _program(rng, [tuple(steps), other], (failure,))
    if one:
        return _program(rng, [(("start", tuple(steps)), *other)], (failure,))
    return _program(rng, [tuple(steps), other], (failure,))


FEATURES: dict[str, Callable[[Random], Program]] = {
    "files": files, "locks": locks, "store": store, "collectives": together, "threads": threads,
    "ends": ends, "processes": processes, "polls": polls, "faults": failing, "mixed": mixed, "times": times,
}  # fmt: skip
REAL_FEATURES: dict[str, Callable[[Random], Program]] = {
    **{name: feature for name, feature in FEATURES.items() if name != "times"}, "mappings": mappings,
}  # fmt: skip
"""What real ranks carry out."""
