"""How a ``TARGET`` on the command line names a scenario."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

from racecheck.model.errors import UsageError
from racecheck.targets import programs, suite
from racecheck.targets.scenarios import Scenario
from racecheck.targets.suite import protocol

_IMPORTING = (__file__, importlib.__file__)
_INSTALLED = (sys.prefix + os.sep, sys.base_prefix + os.sep)
_SHOWN = 5
"""The most names in a hint."""


def load(target: str) -> Scenario:
    """Return the scenario that ``path/to/file.py::name``, ``package.module:name`` or ``CHECKPOINTER[check]`` names.

    Raises `UsageError` if there is no such file, module or scenario, or if importing it fails.
    """
    file, _, name = target.partition("::")
    if file.endswith(".json"):
        return programs.load(Path(file))
    name, bracket, check = target.rstrip("]").partition("[")
    if bracket:
        return suite.scenario(checkpointer(name), check)
    module, name = _module(suite.NAMES.get(target, target))
    found = getattr(module, name, None)
    if isinstance(found, Scenario):
        return found
    if isinstance(found, type):
        raise UsageError(f"{target} is a class: use racecheck gate {target}, or '{target}[kill]' to run one check")
    known = ", ".join(sorted(each.name for each in scenarios_in(module))) or "none"
    raise UsageError(f"{module.__name__} has no scenario {name!r}; it has: {known}")


def checkpointer(target: str) -> type:
    """Return the class that ``path/to/file.py::Class``, ``package.module:Class`` or a known name stands for.

    Raises `UsageError`.
    """
    if ":" not in target and target not in suite.NAMES:
        known = ", ".join(suite.NAMES)
        raise UsageError(f"{target!r} is not a checkpointer: write package.module:Class, or one of {known}")
    module, name = _module(suite.NAMES.get(target, target))
    found = getattr(module, name, None)
    if found is None:
        there = _checkpointers_in(module)
        others = f": it has {', '.join(there[:_SHOWN])}{', ...' * (len(there) > _SHOWN)}" if there else ""
        raise UsageError(f"{module.__name__} has no class {name!r}{others}")
    protocol.check(found, name)
    return cast("type", found)


def _checkpointers_in(module: ModuleType) -> list[str]:
    """Return the names of the classes that a module defines with the methods of a checkpointer."""
    own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    return [name for name, each in own.items() if all(hasattr(each, method) for method in protocol.REQUIRED)]


def _module(target: str) -> tuple[ModuleType, str]:
    """Return the module that a target names, and the name in it."""
    if "::" in target:
        where, _, name = target.partition("::")
        return load_file(Path(where)), name
    if ":" in target:
        where, _, name = target.partition(":")
        return import_name(where), name
    if Path(target).suffix == ".py":
        raise UsageError(f"{target} is a file: write {target}::name (racecheck list {target} shows the names)")
    raise UsageError(f"{target!r} is not a scenario: write path/to/file.py::name or package.module:name")


def scenarios_in(module: ModuleType) -> list[Scenario]:
    """Return the scenarios that a module defines, in order of definition."""
    found = {id(each): each for each in vars(module).values() if isinstance(each, Scenario)}
    return [each for each in found.values() if each.module == module.__name__]


def load_file(path: Path) -> ModuleType:
    """Import a file the way pytest does: its first ancestor without ``__init__.py`` goes on ``sys.path``.

    Raises `UsageError`.
    """
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    name = ".".join(parts)
    module = import_name(name)
    if Path(module.__file__ or "").resolve() != path:
        raise UsageError(f"{path} cannot be imported as {name}: {module.__file__} has the same module name; rename one")
    return module


def import_name(name: str) -> ModuleType:
    """Import a module; raises `UsageError` with the reason in one line."""
    try:
        return importlib.import_module(name)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    except Exception as error:
        raise UsageError(f"cannot import {name}: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: Exception) -> str:
    """Return the last line that was reached, of a file that is not installed if possible; "" for none."""
    frames = traceback.extract_tb(error.__traceback__)
    reached = [each for each in frames if each.filename not in _IMPORTING and not each.filename.startswith("<frozen")]
    own = [each for each in reached if not each.filename.startswith(_INSTALLED)]
    if not reached:
        return ""
    last = (own or reached)[-1]
    return f" ({os.path.relpath(last.filename)}:{last.lineno})"
