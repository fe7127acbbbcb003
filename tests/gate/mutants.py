"""Checkpointers with one safeguard removed or misplaced, to test that the suite notices.

A mutant is made from the source of a checkpointer's methods, by changing the syntax tree of one of them in one place;
the lines of the others, and of stacks, are those of the source.  What is changed:

- without: a barrier or another collective, a flush, a sync, an ``except`` or ``finally`` that lets the other ranks
  know, a ``raise``, is left out;
- unguarded: what one rank does, all do;
- in_place: instead of being renamed, a file is written under its final name;
- swapped: two statements change places, one of which is a safeguard, or publishes or removes something.  Not where one
  makes a name that the other uses: that would be another program.

Mutants of the controls are attributes of this module, so that a target can name them, as in
``racecheck run 'tests.gate.mutants:Recipe_without_fsync_88[power-loss]'``; the number is the line.
DeMillo, Lipton and Sayward, "Hints on Test Data Selection" (IEEE Computer, 1978), is where this comes from.
"""

from __future__ import annotations
import __future__

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from racecheck.targets.suite import controls

CONTROLS: tuple[type, ...] = (controls.Recipe, controls.SyncedDcp)

_WAITS = ("barrier", "broadcast", "all_gather", "all_reduce", "gather", "reduce", "scatter", "monitored_barrier")
"""Collectives; also with ``_object`` and the like behind."""
_RENAMES = frozenset({"replace", "rename", "renames", "move"})
_REMOVES = frozenset({"unlink", "remove", "rmdir", "rmtree", "removedirs"})
_SAVES = frozenset({"save", "async_save", "write", "write_text", "write_bytes", "dump"})

_Function = ast.FunctionDef
_Edit = Callable[[ast.AST, list[ast.stmt], int], None]
"""Takes the method, a block in it and a place in the block."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A ``control`` with one change: what was done (``verb``), at which ``line`` of ``file``, to which ``source`` text.

    ``about`` says it in words, ``made`` is the class.
    """

    name: str
    control: type
    verb: str
    what: str
    file: Path
    line: int
    source: str
    function: _Function = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        """The identity of a mutant, which stays the same when lines move."""
        return f"{self.verb}: {self.source}"

    @property
    def harmless(self) -> str:
        """Why no check has to notice; "" if one has to."""
        return HARMLESS.get(self.control.__name__, {}).get(self.key, "")

    @property
    def about(self) -> str:
        words = {
            "without": "left out",
            "unguarded": "by all ranks",
            "in_place": "written in place",
            "swapped": "swapped",
        }
        return f"{self.file.name}:{self.line} {words[self.verb]}: {self.source}"

    @property
    def made(self) -> type:
        return _made(self)


_FLUSHED = "torch.save flushes the file that it is given (torch/serialization.py, _open_zipfile_writer_buffer.__exit__)"
_BEFORE_POINTER = "in any order: latest is renamed when all of it is on the disk"
HARMLESS: Mapping[str, Mapping[str, str]] = {
    "Recipe": {
        "swapped: torch.save(state, file) / file.flush()": _FLUSHED,
        "without: file.flush()": _FLUSHED,
        "swapped: file.flush() / os.fsync(file.fileno())": _FLUSHED,
        "swapped: self._sync(root) / for old in sorted(self._steps(root))[: -self.keep]:": (
            "two are kept, and of these the older one has been on the disk, with its name, since its own save"
        ),
    },
    "SyncedDcp": {
        'swapped: before, temporary = self._published(root), root / "latest.tmp" / '
        "for each in (*path.iterdir(), path, root):": (
            "the one only looks at what is published, which the other does not change"
        ),
        'swapped: for each in (*path.iterdir(), path, root): / with open(temporary, "w") as pointer:': _BEFORE_POINTER,
        'swapped: self._sync(root) / for old in root.glob("step-*"):': (
            "what latest named before stays, and that has been on the disk since its own save"
        ),
    },
}
"""The mutants of each control that no check has to notice, by `Mutant.key`, and why."""


def of(kind: type) -> dict[str, Mutant]:
    """Return all mutants of a checkpointer, by name, in the order of the source.

    Of the methods of its own and of its bases, if these are classes at the top of a module whose source is there.
    """
    found = {
        each.name: each for function, file, lines in _methods(kind) for each in _mutants(kind, function, file, lines)
    }
    return dict(sorted(found.items(), key=lambda each: each[1].line))


def __getattr__(name: str) -> type:
    for kind in CONTROLS:
        if name.startswith(f"{kind.__name__}_") and name in _of(kind):
            return _of(kind)[name].made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _of(kind: type) -> Mapping[str, Mutant]:
    return of(kind)


@cache
def _made(mutant: Mutant) -> type:
    """Return a class that derives from the control and has the changed method."""
    tree = ast.parse(f"class {mutant.name}(_control):\n    pass")
    cast("ast.ClassDef", tree.body[0]).body = [mutant.function]
    flags = __future__.annotations.compiler_flag
    space = {**vars(sys.modules[mutant.control.__module__]), "_control": mutant.control}
    exec(compile(tree, str(mutant.file), "exec", flags, dont_inherit=True), space)
    kind = cast("type", space[mutant.name])
    kind.__module__, kind.__doc__ = __name__, mutant.about
    return kind


def _methods(kind: type) -> Iterator[tuple[_Function, Path, list[str]]]:
    """Return the methods that a class has, each with its file and the lines of that."""
    seen: set[str] = set()
    for each in kind.__mro__:
        file = getattr(sys.modules.get(each.__module__), "__file__", None)
        if file is None:
            continue
        source = Path(file).read_text("utf-8")
        classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
        for node in (inner for found in classes if found.name == each.__name__ for inner in found.body):
            if isinstance(node, _Function) and node.name not in seen:
                seen.add(node.name)
                yield node, Path(file), source.splitlines()


def _mutants(kind: type, function: _Function, file: Path, lines: list[str]) -> Iterator[Mutant]:
    for number, (block, place, verb, what, edit) in enumerate(_places(function)):
        del number
        changed, inside = _copied(function, block)
        edit(changed, inside, place)
        first = block[place]
        source = lines[first.lineno - 1].strip()
        name = f"{kind.__name__}_{verb}_{what}_{first.lineno}"
        if verb == "swapped":
            other = block[place + 1]
            source = f"{source} / {lines[other.lineno - 1].strip()}"
            name = f"{kind.__name__}_swapped_{first.lineno}_{other.lineno}"
        yield Mutant(name, kind, verb, what, file, first.lineno, source, ast.fix_missing_locations(changed))


_Place = tuple[list[ast.stmt], int, str, str, _Edit]


def _places(function: _Function) -> Iterator[_Place]:
    """Yield where something can be changed: block and place, what is done to what, and how."""
    for block in _blocks(function):
        for place, statement in enumerate(block):
            for verb, what, edit in _changes(statement):
                yield block, place, verb, what, edit
            if place + 1 < len(block) and _may_swap(statement, block[place + 1]):
                yield block, place, "swapped", "", _swap


def _blocks(function: _Function) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def _copied(function: _Function, block: list[ast.stmt]) -> tuple[_Function, list[ast.stmt]]:
    """Return a copy of a method, and in it the block that is the copy of this one."""
    changed = copy.deepcopy(function)
    number = next(number for number, each in enumerate(_blocks(function)) if each is block)
    return changed, [*_blocks(changed)][number]


def _changes(statement: ast.stmt) -> Iterator[tuple[str, str, _Edit]]:
    called = _called(statement)
    if called.startswith(_WAITS) or called == "flush" or "sync" in called:
        yield "without", called.strip("_"), _leave_out
    elif called in _RENAMES:
        yield "in_place", called, _write_in_place
    elif isinstance(statement, ast.If) and "rank" in ast.unparse(statement.test):
        yield "unguarded", "rank", _unpack
    elif isinstance(statement, ast.If) and any(isinstance(each, ast.Raise) for each in statement.body):
        yield "without", "raise", _leave_out
    elif isinstance(statement, ast.Try) and (statement.handlers or any(map(_waits, statement.finalbody))):
        yield "without", "except" if statement.handlers else "finally", _unpack


# What is done.


def _leave_out(_: ast.AST, block: list[ast.stmt], place: int) -> None:
    block[place] = ast.copy_location(ast.Pass(), block[place])


def _swap(_: ast.AST, block: list[ast.stmt], place: int) -> None:
    block[place : place + 2] = block[place + 1], block[place]


def _unpack(_: ast.AST, block: list[ast.stmt], place: int) -> None:
    """Replace a compound statement by the statements inside it."""
    statement = block[place]
    block[place : place + 1] = [*getattr(statement, "body", ()), *getattr(statement, "finalbody", ())]


def _write_in_place(function: ast.AST, block: list[ast.stmt], place: int) -> None:
    """Replace a rename's old name by its new name everywhere."""
    call = cast("ast.Call", cast("ast.Expr", block[place]).value)
    source, target = call.args if len(call.args) == 2 else (cast("ast.Attribute", call.func).value, call.args[0])
    _leave_out(function, block, place)
    if isinstance(source, ast.Name):
        _Renaming(source.id, target).visit(function)


class _Renaming(ast.NodeTransformer):
    """Puts an expression where a name is used."""

    def __init__(self, name: str, target: ast.expr) -> None:
        self.name, self.target = name, target

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_it = node.id == self.name and isinstance(node.ctx, ast.Load)
        return ast.copy_location(copy.deepcopy(self.target), node) if is_it else node


# What statements are.


def _called(statement: ast.stmt) -> str:
    """Return the last name of what a statement calls that does nothing else, "" for any other."""
    return _name(statement.value) if isinstance(statement, ast.Expr) else ""


def _name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _waits(node: ast.AST) -> bool:
    return any(_name(each).startswith(_WAITS) for each in ast.walk(node))


def _matters(statement: ast.stmt) -> bool:
    """Return whether a statement is a safeguard, or publishes, writes or removes something."""
    names = {_name(each).lstrip("_") for each in ast.walk(statement)} - {""}
    return any(
        each.startswith(_WAITS) or each == "flush" or "sync" in each or each in _RENAMES | _REMOVES | _SAVES
        for each in names
    )


def _may_swap(one: ast.stmt, other: ast.stmt) -> bool:
    fixed = (ast.Import, ast.ImportFrom, ast.Return, ast.Raise, ast.FunctionDef)
    if isinstance(one, fixed) or isinstance(other, fixed) or not (_matters(one) or _matters(other)):
        return False
    return not (_names(one, ast.Store) & _names(other, ast.Load) or _names(other, ast.Store) & _names(one, ast.Load))


def _names(statement: ast.stmt, context: type[Any]) -> set[str]:
    nodes = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
    return {each.id for each in nodes if isinstance(each.ctx, context)}
