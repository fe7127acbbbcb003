"""The parts of its source file that a scenario uses: the definitions that decide its run, read without an import.

Comments, docstrings, layout and other scenarios of the file do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

WHOLE = "the file"
"""Stands for all of a file in which the scenario's name is not defined in a way that can be read."""
_MODULE = "what the file does when it is imported"
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def used(file: Path, name: str) -> dict[str, str]:
    """Return the SHA-256 of each definition that a scenario (or class) of this name uses, by name.

    Raises `OSError` for a file that cannot be read.
    """
    data = file.read_bytes()
    try:
        statements = [each for each in ast.parse(data).body if not _is_docstring(each) and not _is_main(each)]
    except (SyntaxError, ValueError):
        return {WHOLE: hashlib.sha256(data).hexdigest()}
    owners: dict[str, list[ast.stmt]] = {}
    loose = []
    for statement in statements:
        names = [*_bound(statement)]
        for each in names:
            owners.setdefault(each, []).append(statement)
        if not names or not isinstance(statement, _NAMED):
            loose.append(statement)
    if name not in owners:
        return {WHOLE: _digest(statements)}
    found = _reached({name, *_loaded(loose)}, owners)
    parts = {each: _digest(owners[each]) for each in sorted(found)}
    return parts | ({_MODULE: _digest(loose)} if loose else {})


def digest(parts: Mapping[str, str]) -> str:
    """Return one SHA-256 for those of all definitions."""
    return hashlib.sha256("\n".join(f"{name} {each}" for name, each in sorted(parts.items())).encode()).hexdigest()


_NAMED = (_Definition, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
"""Statements that do nothing but define names; all others are taken to matter to every scenario."""


def _reached(names: set[str], owners: Mapping[str, list[ast.stmt]]) -> set[str]:
    """Return the names of a file that these use, directly or not, and the functions that decorators add to them."""
    found: set[str] = set()
    while fresh := {each for each in names if each in owners} - found:
        found |= fresh
        names |= set(_loaded(statement for each in fresh for statement in owners[each]))
        defined = {each for each in fresh if any(isinstance(one, _Definition) for one in owners[each])}
        names |= {each for each, own in owners.items() if any(_adds_to(one, defined) for one in own)}
    return found


def _adds_to(statement: ast.stmt, names: Iterable[str]) -> bool:
    """Return whether a function is a part of one of these: ``@overwrite.recover``."""
    decorators = statement.decorator_list if isinstance(statement, _Definition) else []
    called = (each.func if isinstance(each, ast.Call) else each for each in decorators)
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in names
        for each in called
    )


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(statement, _Definition):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        names = ((each.asname or each.name).partition(".")[0] for each in statement.names)
        yield from (each for each in names if each != "*")
    else:
        yield from (
            each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )


def _loaded(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        yield from (each.id for each in ast.walk(statement) if isinstance(each, ast.Name))


def _digest(statements: Iterable[ast.stmt]) -> str:
    text = "\n".join(ast.dump(_without_docstrings(each)) for each in statements)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _without_docstrings(statement: ast.stmt) -> ast.stmt:
    for each in ast.walk(statement):
        if isinstance(each, _Definition) and each.body and _is_docstring(each.body[0]):
            each.body = each.body[1:] or [ast.Pass()]
    return statement


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_main(statement: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``, which an import leaves out."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) in _MAIN


_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
