"""How people write faults: one small grammar for Python and the command line.

    ENOSPC on write **/*.distcp rank=1 nth=2      the second such write of rank 1 fails, with that errno
    EIO on fsync times=all                        every fsync fails
    short on write bytes=10 nth=each              one write after the other is cut short, each in a run of its own
    torn on write bytes=4096                      that much is written, and then the call fails with EIO
    full bytes=65536                              there is room for 65536 more bytes, then ENOSPC
    slow on rename latest seconds=30              in virtual time
    kill on any nth=each                          SIGKILL before every op, one after the other, each in a run of its own
    kill-node on rename rank=0; kill-job on any   the node of the rank that gets there; all ranks
    term on write seconds=30                      SIGTERM, and SIGKILL 30 s later
    preempt on any nth=each                       the same for all ranks of the node, which share the 30 s
    crash model=ext4                              what a crash at any moment of the run can leave (`racecheck.crash`)
    damage kind=flip|cut path=**/*.pt             after the run a file that the recovery reads has lost a bit, or more

    ENOSPC on write nth=each survive              the program has to get over it: no failure is excused

Words are split and quoted as in a shell.  A GLOB that begins like a field (``rank=1``) follows ``path=``.

A fault that is to hit "each" op is a point: does this op go well, or not?  All others happen where they say.
"""

from __future__ import annotations

import errno as errors
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from racecheck.kernel.syscalls import TABLE
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Fault, World

GRAMMAR = (
    "WHAT [on CALL[|CALL...] [GLOB]] [rank=N] [node=N] [nth=N|each] [times=N|all] [bytes=N] [seconds=S] [model=NAME]"
    " [kind=NAME[|NAME...]] [when=before|after] [survive]"
)

KILLS = ("kill", "kill-node", "kill-job")
TERMS = ("term", "preempt")
MODELS = ("kill", "ext4", "xfs", "btrfs", "posix-min", "ordered", "nfs", "nfs-server", "object")
"""The persistence models of a crash: everything that was called lasts, or what a file system of this kind promises."""

DAMAGES = ("flip", "cut", "zero", "empty", "missing", "older")
"""The kinds of damage (`racecheck.crash.damage`)."""

_OWN = frozenset({"clock", "clone", "timer", "random", "dup", "ioctl", "advise", "exec", "fcntl", "reap", "submit"})
CALLS = tuple(sorted({row.family for row in TABLE.values()} - _OWN | {"rmdir"}))
"""The families of ops that a fault may be about."""

_MOVING = frozenset({"read", "write"})
_NEEDS_CALLS = {"short": _MOVING, "torn": frozenset({"write"})}
_AMOUNTS = {"short": "bytes", "torn": "bytes", "full": "bytes", "slow": "seconds"}
_AMOUNTS |= dict.fromkeys(TERMS, "seconds")
"""Which faults have an amount, and the amount of what."""
_USUAL = {"slow": 10.0, **dict.fromkeys(TERMS, 30.0)}
_KINDS = (*_NEEDS_CALLS, "full", "slow", *KILLS, *TERMS, "crash", "damage")
_QUOTED = re.compile(r"[\s'\"\\]")
"""What a shell takes for no part of a word, or for more than itself."""
_MOST_SECONDS, _MOST_BYTES = 1e6, 1 << 50


def parse(spec: str) -> Fault:
    """Return the fault that a text stands for; raises `UsageError`: one line, with the grammar or the known words."""
    try:
        words = shlex.split(spec)
    except ValueError as error:
        raise UsageError(
            f"fault {spec!r}: {str(error).lower()}; write a quote within quotes of the other kind"
        ) from None
    if not words:
        raise UsageError(f"empty fault; grammar: {GRAMMAR}")
    fault = Fault(_what(words.pop(0), spec))
    fault = replace(fault, amount=_USUAL.get(fault.what, 0.0))
    if words and words[0] == "on":
        fault, words = _on(fault, words[1:], spec)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "survive":
            fault = replace(fault, survive=True)
            continue
        if not equals or name not in _FIELDS:
            raise UsageError(f"fault {spec!r}: {word!r} does not fit the grammar: {GRAMMAR}")
        fault = _FIELDS[name](fault, name, value, spec)
    for problem in _problems(fault):
        raise UsageError(f"fault {spec!r}: {problem}")
    return fault


def text(fault: Fault) -> str:
    """Return the fault as it is written."""
    parts = [fault.what]
    if fault.what == "damage":
        parts += [f"kind={fault.model}"] * bool(fault.model)
        return " ".join([*parts, *([f"path={_quoted(fault.path)}"] if fault.path != "**" else [])])
    if fault.calls or fault.path != "**":
        parts += ["on", "|".join(fault.calls) or "any", *([_written(fault.path)] if fault.path != "**" else [])]
    parts += [f"{name}={value}" for name, value in (("rank", fault.rank), ("node", fault.node)) if value >= 0]
    parts += [f"nth={fault.nth or 'each'}"] * (fault.nth != 1)
    parts += [f"times={fault.times or 'all'}"] * (fault.times != 1)
    amount = _AMOUNTS.get(fault.what)
    if amount is not None and fault.amount != _USUAL.get(fault.what, 0.0):
        parts.append(f"{amount}={fault.amount:g}" if amount == "seconds" else f"bytes={int(fault.amount)}")
    parts += [f"model={fault.model}"] * bool(fault.model) + ["when=after"] * fault.after
    parts += ["survive"] * fault.survive
    return " ".join(parts)


def _written(path: str) -> str:
    """Return a glob as a word of the grammar."""
    return f"path={_quoted(path)}" if path.partition("=")[0] in {*_FIELDS, "survive"} else _quoted(path)


def _quoted(path: str) -> str:
    return shlex.quote(path) if _QUOTED.search(path) or not path else path


def kinds(fault: Fault) -> tuple[str, ...]:
    """Return the kinds of damage that a fault asks for."""
    return tuple(fault.model.split("|")) if fault.model else DAMAGES


def check(world: World) -> None:
    """Raise `UsageError` for what is no fault, or one of a rank or a node that the world does not have."""
    for fault in world.faults:
        try:
            parse(text(fault))
        except (OverflowError, ValueError):
            raise UsageError(f"{fault} is no fault: write it as text, such as 'EIO on write'") from None
        for name, number, there_are in (("rank", fault.rank, world.ranks), ("node", fault.node, world.nodes)):
            if number >= there_are:
                last = f"only {name} 0" if there_are == 1 else f"{name}s 0 to {there_are - 1}"
                raise UsageError(f"fault {text(fault)!r}: no {name} {number}; the world has {last}")


def _what(word: str, spec: str) -> str:
    if word in _KINDS or word in errors.errorcode.values():
        return word
    raise UsageError(f"fault {spec!r}: {word!r} is neither an errno (such as ENOSPC) nor one of {', '.join(_KINDS)}")


def _on(fault: Fault, words: list[str], spec: str) -> tuple[Fault, list[str]]:
    if not words:
        raise UsageError(f"fault {spec!r}: no calls after 'on'; grammar: {GRAMMAR}")
    calls = () if words[0] == "any" else tuple(words[0].split("|"))
    for call in calls:
        if call not in CALLS:
            raise UsageError(f"fault {spec!r}: unknown call {call!r}; known: any, {', '.join(CALLS)}")
    fault, words = replace(fault, calls=calls), words[1:]
    if words and words[0].partition("=")[0] not in {*_FIELDS, "survive"}:
        fault, words = replace(fault, path=words[0]), words[1:]
    return fault, words


def _number(fault: Fault, name: str, value: str, spec: str) -> Fault:
    word = {"nth": "each", "times": "all"}.get(name)
    least = 1 if word else 0
    if value != word and not (value.isdecimal() and least <= int(value) < 1 << 31):
        raise UsageError(
            f"fault {spec!r}: {name} must be a number from {least}{f' or {word}' * bool(word)}, not {value!r}"
        )
    number = 0 if value == word else int(value)
    fields = {"rank": fault.rank, "node": fault.node, "nth": fault.nth, "times": fault.times, name: number}
    return replace(fault, rank=fields["rank"], node=fields["node"], nth=fields["nth"], times=fields["times"])


def _amount(fault: Fault, name: str, value: str, spec: str) -> Fault:
    if _AMOUNTS.get(fault.what) != name:
        fitting = [what for what, of in _AMOUNTS.items() if of == name]
        raise UsageError(f"fault {spec!r}: {name}= applies only to {', '.join(fitting)}")
    try:
        amount = float(value) if name == "seconds" else float(int(value))
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= (_MOST_SECONDS if name == "seconds" else _MOST_BYTES):
        raise UsageError(f"fault {spec!r}: {name} must be a number from 0, not {value!r}")
    return replace(fault, amount=amount)


def _model(fault: Fault, name: str, value: str, spec: str) -> Fault:
    what, known = {"model": ("crash", MODELS), "kind": ("damage", DAMAGES)}[name]
    if fault.what != what:
        raise UsageError(f"fault {spec!r}: {name}= applies only to {what}")
    for each in value.split("|") if what == "damage" else [value]:
        if each not in known:
            raise UsageError(f"fault {spec!r}: unknown {name} {each!r}; known: {', '.join(known)}")
    return replace(fault, model=value)


def _when(fault: Fault, name: str, value: str, spec: str) -> Fault:
    if fault.what not in KILLS:
        raise UsageError(f"fault {spec!r}: {name}= applies only to {', '.join(KILLS)}")
    if value not in {"before", "after"}:
        raise UsageError(f"fault {spec!r}: {name} must be before or after, not {value!r}")
    return replace(fault, after=value == "after")


def _path(fault: Fault, name: str, value: str, spec: str) -> Fault:
    if fault.path != "**" or not value:
        raise UsageError(f"fault {spec!r}: {name}= is empty, or a second path")
    return replace(fault, path=value)


_FIELDS = {
    **dict.fromkeys(("rank", "node", "nth", "times"), _number), "bytes": _amount, "seconds": _amount, "model": _model,
    "kind": _model, "when": _when, "path": _path,
}  # fmt: skip


def _problems(fault: Fault) -> Iterator[str]:
    allowed = _NEEDS_CALLS.get(fault.what)
    if allowed is not None and not (fault.calls and allowed.issuperset(fault.calls)):
        yield f"{fault.what} applies only to {' and '.join(sorted(allowed))}: write {fault.what} on {max(allowed)}"
    if fault.what == "full" and (fault.calls or fault.nth != 1 or fault.times != 1 or fault.rank >= 0):
        yield "full applies to all writes: write full bytes=N, with node=N for one node's disk"
    if fault.what == "crash" and replace(fault, model="", path="**") != Fault("crash"):
        yield "crash covers every moment of a run: write crash, with model=NAME for one model"
    if fault.what == "damage" and replace(fault, model="", path="**") != Fault("damage"):
        yield "damage comes after the run: write damage, with kind=NAME|NAME for some kinds, path=GLOB for some files"
    if fault.what in (*KILLS, *TERMS) and fault.times != 1:
        yield "times= does not apply to a kill: leave it out"
