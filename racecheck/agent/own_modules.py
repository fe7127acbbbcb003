"""The user's own modules: imported in each rank after its fork, as in a real job.

A module may do something else on each rank when it is imported: it draws a name, reads a clock or ``RANK``, makes a
lock, opens a file.  A process of its own imports the modules first, to see what that takes: the installed modules are
then imported in the zygote, once for all ranks, and the own ones are compiled there, so that a rank imports them
without a look at a file.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from racecheck.kernel import proc
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.package import is_installed
from racecheck.targets import resolve
from racecheck.targets.resolve import TargetPlace


@dataclass(frozen=True, slots=True)
class Own:
    """One of the user's modules: its file ("" for a package without one), and where a package's modules are."""

    name: str
    file: str = ""
    places: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """The result of an import in a process of its own.

    The scenario's ``name``, and whether it ``has_setup``; the ``installed`` modules in order, and the ``own`` ones; how
    many ``threads`` there are then; and the variables of the environment that have changed.
    """

    name: str
    has_setup: bool
    installed: Sequence[str]
    own: Sequence[Own]
    threads: int
    environment: Mapping[str, str | None]


def look(place: TargetPlace) -> Look:
    """Import a scenario in a process of its own; raises `UsageError` if that fails, `CannotRun` if it is killed."""
    found = _told(lambda: _looked(place))
    if "usage" in found:
        raise UsageError(found["usage"])
    if "cannot" in found:
        raise CannotRun(found["cannot"])
    own = [Own(**each) for each in found.pop("own")]
    return Look(**found, own=own)


def _looked(place: TargetPlace) -> dict[str, Any]:
    before, environment = {*sys.modules}, dict(os.environ)
    try:
        scenario = resolve.find(place)
    except UsageError as error:
        return {"usage": str(error)}
    fresh = [each for name, each in sys.modules.items() if name not in before and each is not None]
    own = [*_own_among(fresh)]
    changed = {name for name, _ in {*os.environ.items()} ^ {*environment.items()}}
    return {
        "name": scenario.name,
        "has_setup": scenario.before is not None,
        "installed": [name for name in sys.modules if name not in before and not _is_own(sys.modules[name])],
        "own": [asdict(each) for each in own],
        "threads": len(proc.threads(os.getpid())),
        "environment": {name: os.environ.get(name) for name in sorted(changed)},
    }


def _own_among(modules: Sequence[ModuleType]) -> Iterator[Own]:
    """Yield the user's modules, with the packages without a file that they are in."""
    for each in modules:
        places = getattr(each, "__path__", None)
        if _is_own(each):
            yield Own(each.__name__, str(each.__file__), None if places is None else [*places])
        elif getattr(each, "__file__", None) is None and places is not None:
            found = [*places]
            if found and not any(map(is_installed, found)):
                yield Own(each.__name__, "", found)


def _is_own(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and not is_installed(file)


def _told(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call a function in a child process; returns the data that it returned there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            with open(writing, "wb") as pipe:
                pipe.write(json.dumps(function()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    try:
        return dict(json.loads(data))
    except ValueError:
        what, ended = "the process that imports the scenario", os.waitstatus_to_exitcode(status)
        if ended == -signal.SIGKILL:
            return {"cannot": f"{what} was killed: from outside, or for want of memory"}
        return {"usage": f"{what} ended with status {ended}"}


@contextmanager
def environment(changed: Mapping[str, str | None]) -> Iterator[None]:
    """Have these variables while installed modules are imported: the user's module has set them before."""
    before = {name: os.environ.get(name) for name in changed}
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Finder(MetaPathFinder):
    """Finds the user's modules, compiled."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Own, CodeType | None]] = {}

    def add(self, modules: Sequence[Own]) -> None:
        """Compile modules; one that cannot be (an extension, say) is left to the usual import."""
        for each in modules:
            if not each.file:
                self._known[each.name] = each, None
            elif each.file.endswith(".py"):
                with suppress(OSError, SyntaxError, ValueError):
                    code = compile(Path(each.file).read_bytes(), each.file, "exec", dont_inherit=True)
                    self._known[each.name] = each, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        own, code = self._known.get(fullname, (None, None))
        if own is None:
            return None
        if code is None:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [*(own.places or ())]
            return spec
        return importlib.util.spec_from_file_location(
            fullname, own.file, loader=_Compiled(fullname, own.file, code),
            submodule_search_locations=None if own.places is None else [*own.places],
        )  # fmt: skip


class _Compiled(SourceFileLoader):
    def __init__(self, name: str, file: str, code: CodeType) -> None:
        super().__init__(name, file)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return self._code
