"""How a ``TARGET`` on the command line names a scenario."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import cast

from racecheck.model.errors import UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import Invariant
from racecheck.targets import programs, suite
from racecheck.targets.scenarios import Scenario
from racecheck.targets.suite import protocol

_IMPORTING = (__file__, importlib.__file__)
_INSTALLED = (sys.prefix + os.sep, sys.base_prefix + os.sep)
_CHECK = re.compile(r"(?P<kind>.+)\[(?P<check>[^][]*)\]", re.DOTALL)
"""A check of a checkpointer: ``CHECKPOINTER[check]``."""
_SHOWN = 5
"""The most names in a hint."""


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """Where a ``target`` is: an attribute of a module, and the check of the suite that is meant, "" for none.

    ``file`` is the module's, where the target names one, and ``root`` the directory that it is imported from.
    """

    target: str
    module: str
    name: str
    check: str = ""
    file: str = ""
    root: str = ""


def load(target: str) -> Scenario:
    """Return the scenario that ``path/to/file.py::name``, ``package.module:name`` or ``CHECKPOINTER[check]`` names.

    Raises `UsageError` if there is no such file, module or scenario, or if importing it fails.
    """
    if is_program(target):
        return programs.load(Path(file_of(target)))
    return find(place(target))


def file_of(target: str) -> str:
    """Return the file that a target names, the whole target if it names none; a directory may have "::" in its name."""
    return target.rpartition("::")[0] or target


def is_program(target: str) -> bool:
    """Return whether a target is the file of a launch command."""
    return file_of(target).endswith(".json")


def place(target: str) -> TargetPlace:
    """Return where a target is, without an import.  Raises `UsageError`."""
    found = _CHECK.fullmatch(target)
    if found is not None:
        return replace(_place_of_class(found["kind"]), check=found["check"])
    return _place(suite.NAMES.get(target, target), target)


def reach(at: TargetPlace) -> None:
    """Let the module of a target be imported the way pytest does: from the first directory without ``__init__.py``."""
    if at.root and at.root not in sys.path:
        sys.path.insert(0, at.root)


def find(at: TargetPlace) -> Scenario:
    """Import the scenario of a target; raises `UsageError`, with the error of the import as its cause."""
    if at.check:
        return suite.scenario(_class(at), at.check)
    module = _import(at)
    found = getattr(module, at.name, None)
    if isinstance(found, Scenario):
        return found
    if isinstance(found, type):
        raise UsageError(
            f"{at.target} is a class: use racecheck gate {at.target}, or '{at.target}[kill]' to run one check"
        )
    if callable(found):
        raise UsageError(f"{at.target} is a plain function: decorate it with @racecheck.scenario")
    known = sorted(each.name for each in scenarios_in(module))
    hint = meant(at.name, known, f"it has: {', '.join(known) or 'none'}")
    raise UsageError(f"{module.__name__} has no scenario {at.name!r}; {hint}")


def invariant(target: str) -> Invariant:
    """Return the invariant that ``path/to/file.py::name`` names, a function of an `Outcome`; raises `UsageError`."""
    file, _, name = target.rpartition("::")
    if not name.isidentifier() or not file:
        raise UsageError(f"--invariant takes path/to/file.py::name, not {target!r}")
    module = load_file(Path(file))
    found = getattr(module, name, None)
    if inspect.isfunction(found):
        return cast("Invariant", found)
    functions = {each: value for each, value in vars(module).items() if inspect.isfunction(value)}
    known = [each for each, value in functions.items() if value.__module__ == module.__name__]
    hint = meant(name, known, "define one that takes an Outcome")
    raise UsageError(f"{module.__name__} has no function {name!r}; {hint}")


def checkpointer(target: str) -> type:
    """Return the class that ``path/to/file.py::Class``, ``package.module:Class`` or a known name stands for.

    Raises `UsageError`.
    """
    return _class(_place_of_class(target))


def _place_of_class(target: str) -> TargetPlace:
    if ":" not in target and target not in suite.NAMES:
        hint = meant(
            target, suite.NAMES, f"write package.module:Class, or a name: {', '.join([*suite.NAMES][:_SHOWN])}, ..."
        )
        raise UsageError(f"{target!r} is not a checkpointer: {hint}")
    return _place(suite.NAMES.get(target, target), target)


def _class(at: TargetPlace) -> type:
    module = _import(at)
    found = getattr(module, at.name, None)
    if found is None:
        there = _checkpointers_in(module)
        others = f": it has {', '.join(there[:_SHOWN])}{', ...' * (len(there) > _SHOWN)}" if there else ""
        raise UsageError(f"{module.__name__} has no class {at.name!r}{others}")
    protocol.check(found, at.name)
    return cast("type", found)


def _checkpointers_in(module: ModuleType) -> list[str]:
    """Return the names of the classes that a module defines with the methods of a checkpointer or a training."""
    own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    kinds = (protocol.REQUIRED, protocol.OF_TRAINING)
    return [name for name, each in own.items() if any(all(hasattr(each, method) for method in kind) for kind in kinds)]


def _place(meant: str, target: str) -> TargetPlace:
    """Return the place of a target that is ``meant`` by this text, without a check."""
    if "::" in meant:
        where, _, name = meant.rpartition("::")
        if name.isidentifier():
            return _in_file(target, Path(where), name)
    elif ":" in meant:
        where, _, name = meant.partition(":")
        return TargetPlace(target, where, name)
    if Path(meant).suffix == ".py":
        raise UsageError(f"{meant} is a file: write {meant}::name (racecheck list {meant} shows the names)")
    raise UsageError(f"{meant!r} is not a scenario: write path/to/file.py::name or package.module:name")


def _import(at: TargetPlace) -> ModuleType:
    reach(at)
    module = import_name(at.module)
    file = module.__file__ or ""
    if at.file and file != at.file and Path(file).resolve() != Path(at.file):
        raise UsageError(f"{at.file} cannot be imported as {at.module}: {file} has the same module name; rename one")
    return module


def scenarios_in(module: ModuleType) -> list[Scenario]:
    """Return the scenarios that a module defines, in order of definition."""
    found = {id(each): each for each in vars(module).values() if isinstance(each, Scenario)}
    return [each for each in found.values() if each.module == module.__name__]


def load_file(path: Path) -> ModuleType:
    """Import a file; raises `UsageError`."""
    return _import(_in_file(str(path), path, ""))


def _in_file(target: str, path: Path, name: str) -> TargetPlace:
    """Return the place of a name in a file; raises `UsageError`."""
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return TargetPlace(target, ".".join(parts), name, file=str(path), root=str(root))


def import_name(name: str) -> ModuleType:
    """Import a module; raises `UsageError` with the reason in one line."""
    try:
        return importlib.import_module(name)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    except Exception as error:
        raise UsageError(f"cannot import {name}: {type(error).__name__}: {error}{_line(error)}") from error


def _line(error: Exception) -> str:
    """Return the last line that was reached, of a file that is not installed if possible; "" for none."""
    frames = traceback.extract_tb(error.__traceback__)
    reached = [each for each in frames if each.filename not in _IMPORTING and not each.filename.startswith("<frozen")]
    own = [each for each in reached if not each.filename.startswith(_INSTALLED)]
    if not reached:
        return ""
    last = (own or reached)[-1]
    return f" ({os.path.relpath(last.filename)}:{last.lineno})"
