"""Check, in memory, that a storage model allows what it must, and nothing else.

The tree is in memory and the two nodes are not processes: what is checked is the model's view.  The same programs run
in controlled worlds, and on real mounts, with `tests.storage.conformance.programs.act`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from racecheck import storage
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Op, Place, Result, World
from racecheck.storage import options
from racecheck.storage.views import FRESH, SECOND, Seen, View
from tests.storage.conformance.programs import Step, programs


def check_storage(name: str) -> int:
    """Check that a storage's view offers exactly what its model's programs say; returns how many lines agreed.

    The model's options count: programs are of one name.  Raises `AssertionError` with the first line that differs, and
    `UsageError` for an unknown storage, or for one that needs real files (`object`).
    """
    model, _ = options.split(name)
    if model == "object":
        raise UsageError("what an upload shows takes real files: its programs run in controlled worlds")
    count = 0
    for program in programs(model):
        player = Memory(World(ranks=2, nodes=2, storage=program.storage))
        for step in program.steps():
            answers = player.play(step)
            if step.may:
                where = f"{program.storage}, {program.name}: {step.text}"
                assert tuple(answers) == step.may, f"{where}: the model offers {' | '.join(answers)}"
                count += 1
    return count


# Programs in memory.


Kind = Literal["file", "directory"]


@dataclass(slots=True, eq=False)
class _Object:
    identity: int
    kind: Kind
    data: str = ""


@dataclass(slots=True)
class _Now:
    """The truth about one object: copies are values here."""

    thing: _Object | None
    names: tuple[str, ...] = ()

    def attributes(self) -> object:
        return _answer_of_stat(self.thing) if self.thing is not None else None

    def content(self) -> object:
        if self.thing is None:
            return None
        return ",".join(self.names) if self.thing.kind == "directory" else self.thing.data


def _answer_of_stat(thing: _Object) -> str:
    return "dir" if thing.kind == "directory" else str(len(thing.data))


@dataclass(slots=True)
class Memory:
    """Two nodes on one tree in memory, with a model's view between."""

    world: World
    now: int = 0
    _things: dict[str, _Object] = field(default_factory=lambda: {".": _Object(1, "directory")})
    _open: dict[tuple[int, str], tuple[int, _Object]] = field(default_factory=dict)
    _count: int = 1
    _events: int = 0
    _view: View | None = None

    def __post_init__(self) -> None:
        self._view = storage.view(self.world)

    def play(self, step: Step) -> Sequence[str]:
        """Return what a line may answer; what it takes happens."""
        if step.call == "sleep":
            self.now += round(float(step.path) * SECOND)
            return ("ok",)
        answers: Sequence[str] = ()
        for call, flags in _OPS.get(step.call, ((step.call, ()),)):
            if call == "close" and step.call != "close" and (step.node, step.path) not in self._open:
                break
            given = self._call(step, call, flags)
            answers = given if call in {step.call, "open"} else answers
            if answers[min(step.taken, len(answers) - 1)] in errno.errorcode.values():
                break
        return answers

    def _call(self, step: Step, call: str, flags: tuple[str, ...]) -> Sequence[str]:
        op = self._op(step, call, flags)
        thing = self._thing(step, call)
        seen: Sequence[Seen] = (FRESH,)
        truth = _Now(thing, self._names(step.path))
        if self._view is not None:
            seen = self._view.before(op, self.now, truth)
        taken = seen[min(step.taken, len(seen) - 1)]
        shown = [_shown(each) for each in seen]
        answer = shown[min(step.taken, len(seen) - 1)]
        if answer is None:
            answer = self._carry_out(step, call, flags)
            truth = _Now(self._thing(step, call), self._names(step.path))
        fresh = self._glance(step, call, thing) if shown[0] is None and taken is not FRESH else answer
        self._events += 1
        if self._view is not None:
            failed = answer if answer in errno.errorcode.values() else ""
            self._view.after(replace(op, result=Result(errno=failed)), taken, self.now, truth)
        return [fresh if each is None else each for each in shown]

    def _glance(self, step: Step, call: str, thing: _Object | None) -> str:
        """Return what a call that only looks would answer."""
        if thing is None:
            return "ENOENT"
        if call == "read":
            return thing.data
        if call == "list":
            return ",".join(self._names(step.path))
        return _answer_of_stat(thing) if call in {"fstat", "stat"} else "ok"

    def _thing(self, step: Step, call: str) -> _Object | None:
        opened = self._open.get((step.node, step.path)) if call in _THROUGH_FILES else None
        return opened[1] if opened is not None else self._things.get(step.path)

    def _op(self, step: Step, call: str, flags: tuple[str, ...]) -> Op:
        thread = str(step.node)
        places = [self._place(step, call, step.path)]
        if call == "rename":
            places.append(self._place(step, call, step.more))
        clock = {"0": self._events, "1": self._events}
        family = "stat" if call == "fstat" else call
        return Op(step.node, thread, family, call, tuple(places), flags, clock=clock)

    def _place(self, step: Step, call: str, path: str) -> Place:
        above = self._things.get(_above(path)) if path != "." else None
        if call in _THROUGH_FILES:
            number, thing = self._open[step.node, path]
            return Place(path, 0, path, thing.identity, _kind(thing), number, size=len(thing.data))
        found = self._things.get(path)
        identity = found.identity if found else 0
        return Place(path, above.identity if above else 0, path.rpartition("/")[2], identity, _kind(found))

    def _names(self, path: str) -> tuple[str, ...]:
        prefix = "" if path == "." else f"{path}/"
        below = (each[len(prefix) :] for each in self._things if each != "." and each.startswith(prefix))
        return tuple(sorted(each for each in below if "/" not in each))

    def _carry_out(self, step: Step, call: str, flags: tuple[str, ...]) -> str:
        if call in _THROUGH_FILES:
            return self._use(step, call)
        path, found = step.path, self._things.get(step.path)
        if path != "." and _above(path) not in self._things:
            return "ENOENT"
        if call in {"mkdir", "open"} and found is not None and (call == "mkdir" or "O_EXCL" in flags):
            return "EEXIST"
        if found is None and call != "mkdir" and "O_CREAT" not in flags:
            return "ENOENT"
        if call == "rename":
            self._things[step.more] = self._things.pop(path)
        elif call in {"unlink", "rmdir"}:
            del self._things[path]
        elif found is None:
            self._count += 1
            found = self._things[path] = _Object(self._count, "directory" if call == "mkdir" else "file")
        if call == "open":
            assert found is not None
            found.data = "" if "O_TRUNC" in flags else found.data
            self._count += 1
            self._open[step.node, path] = (self._count, found)
        return _answer_of_stat(self._things[path]) if call == "stat" else "ok"

    def _use(self, step: Step, call: str) -> str:
        thing = self._open[step.node, step.path][1]
        if call == "write":
            thing.data += step.more
        elif call == "close":
            del self._open[step.node, step.path]
        return {"read": thing.data, "fstat": _answer_of_stat(thing), "list": ",".join(self._names(step.path))}.get(
            call, "ok"
        )


def _shown(seen: Seen) -> str | None:
    """Return the answer of a call that is not carried out; None for one that is."""
    return seen.errno or (str(seen.shown) if seen.shown is not None else None)


def _kind(thing: _Object | None) -> Literal["", "file", "directory"]:
    return thing.kind if thing is not None else ""


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "."


_THROUGH_FILES = frozenset({"close", "fstat", "fsync", "list", "read", "write"})
_WRITING = ("O_CREAT", "O_WRONLY")
_OPS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "open": (("open", ("O_RDONLY",)),),
    "peek": (("open", ("O_RDONLY",)), ("close", ())),
    "openw": (("open", _WRITING),),
    "create": (("open", (*_WRITING, "O_TRUNC")), ("write", ()), ("close", ())),
    "excl": (("open", (*_WRITING, "O_EXCL")), ("write", ()), ("close", ())),
    "list": (("open", ("O_DIRECTORY", "O_RDONLY")), ("list", ()), ("close", ())),
}
"""Calls that need ops of other names than their own."""
