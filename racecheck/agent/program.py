"""A program in a rank: the script runs as a real ``__main__``, as its launcher would have started it."""

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from racecheck.agent import forking, spawning
from racecheck.targets.programs import IDENTITY, Launch, acked
from racecheck.targets.scenarios import Rank

_LACKS = {
    "Torch not compiled with CUDA enabled": "a GPU",
    "has no attribute '_cuda_": "a GPU",
    "No CUDA GPUs are available": "a GPU",
    "Found no NVIDIA driver": "a GPU",
    "EOF when reading a line": "input, which no rank gets under racecheck",
}
"""Texts of errors that show that a program needs something which it cannot have here, each with that thing."""


@functools.cache
def compiled(file: str) -> CodeType:
    """Return the code of a script."""
    return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)


class _Unwatched:
    """Finds modules among the entries ``kept`` of a directory on the import path that is watched.

    The import system itself would look at the directory again and again, and at the files that ranks save there.
    """

    def __init__(self, directory: str, kept: Sequence[str]) -> None:
        self._directory, self._kept = directory, frozenset(kept)

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        del target
        name = fullname.rpartition(".")[2]
        place = f"{self._directory}/{name}"
        for suffix in importlib.machinery.all_suffixes():
            if name in self._kept and os.path.isfile(f"{place}/__init__{suffix}"):
                return importlib.util.spec_from_file_location(
                    fullname, f"{place}/__init__{suffix}", submodule_search_locations=[place]
                )
            if f"{name}{suffix}" in self._kept:
                return importlib.util.spec_from_file_location(fullname, f"{place}{suffix}")
        if name in self._kept and os.path.isdir(place):
            spec = ModuleSpec(fullname, None)
            spec.submodule_search_locations = [place]
            return spec
        return None


def prepared(launch: Launch, own: str) -> Callable[[Rank], None]:
    """Return a function that runs a program: ``python -u script.py args``, or ``python -u -m module args``.

    ``own`` is the directory for the prints of ranks.  Enter the working directory, and find the script's: they may be
    watched, and what a launcher does there is no op of the program's.
    """
    if launch.kept:
        sys.path_importer_cache[launch.watched] = _Unwatched(launch.watched, launch.kept)
    os.chdir(launch.directory)
    first = str(Path(launch.file).resolve().parent) if launch.script else launch.directory
    return functools.partial(_main, launch, own, first)


def _main(launch: Launch, own: str, first: str, rank: Rank) -> None:
    if launch.spawns:
        for each in (*IDENTITY, "MASTER_ADDR"):
            os.environ.pop(each, None)
    if rank.rank < launch.ranks and launch.spawns:
        _ending_well(lambda: spawning.run_child(rank.rank, own))
        return
    option = [f"{launch.local_rank}={os.environ['LOCAL_RANK']}"] if launch.local_rank else []
    if launch.identity:
        _rename_identity(launch.identity)
    os.environ.update(launch.environment)
    for each in launch.unset:
        os.environ.pop(each, None)
    if launch.in_script:
        os.environ["PWD"] = launch.directory  # as the shell has it that starts the launcher
    if launch.spawns:
        (forking if launch.forks else spawning).be_parent(launch.ranks, launch.directory, own)
    elif not launch.identity:
        os.environ.update(ROLE_RANK=str(rank.rank), ROLE_WORLD_SIZE=str(rank.world_size))
    module = ModuleType("__main__")
    vars(module)["__builtins__"] = builtins
    if launch.module:
        code = _prepare_module(launch.module, launch.directory, module)
    else:
        code = compiled(launch.file)
        module.__file__ = launch.file
    sys.argv[:] = [launch.script or str(module.__file__), *option, *launch.arguments]
    more = launch.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [first, *(os.path.join(launch.directory, each) for each in more if each)]
    sys.modules["__main__"] = module
    _ending_well(lambda: exec(code, vars(module)))  # noqa: S102  (the user asked to run this program)


def _rename_identity(identity: Mapping[str, str]) -> None:
    """Say which rank this is by the variables of its launcher, in place of torchrun's."""
    values = {each: os.environ.pop(each, "") for each in (*IDENTITY, "MASTER_ADDR")}
    os.environ.update({name: values[meaning] for name, meaning in identity.items()})


def _ending_well(run: Callable[[], None]) -> None:
    """Run a program; its saves are acknowledged when it ends without an error."""
    try:
        run()
    except SystemExit as end:
        if not end.code:
            acked()
        raise
    acked()


def _prepare_module(name: str, directory: str, module: ModuleType) -> CodeType:
    """Give ``module`` the attributes of a module that is run by its name (runpy); returns the code."""
    sys.path.insert(0, directory)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(f"No module named {name}")
    module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
    module.__package__ = spec.parent
    code = spec.loader.get_code(spec.name)
    assert isinstance(code, CodeType)
    return code


def lacks(error: BaseException) -> str:
    """Return the thing that a program needs and cannot have here, if it has failed because of that; else ""."""
    return next((what for text, what in _LACKS.items() if text in str(error)), "")
