"""The end of a rank, as the interpreter's end would be."""

from __future__ import annotations

import atexit
import gc
import itertools
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

from racecheck.agent.hypercalling import hypercall
from racecheck.model.hypercalls import (
    Finalise,
)
from racecheck.model.package import is_installed


def finalise(error: BaseException | None, own: Sequence[str]) -> None:
    """End as the interpreter would, as far as a scenario can notice.

    Threads are joined, exit handlers run, the scenario's own modules are cleared, and unreachable objects are finalised
    (an unclosed file gets its last bytes).  The traceback is not printed: it is in the result.

    A real finalisation would also tear torch down, which takes longer than a whole run.
    """
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # the stubs lack it: the interpreter calls it at its end
    atexit._run_exitfuncs()
    hypercall(Finalise())  # from here on daemon threads run no Python code any more
    if error is not None:
        error.__traceback__ = None
    del error
    for name in own:
        if name in sys.modules:
            _clear(sys.modules[name])
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def newest_modules(count: int) -> list[str]:
    """Return the ``count`` modules imported last.

    Found from the end: a walk over all of ``sys.modules`` writes to the reference count of every name in it, and
    so copies every page that the rank still shares with the zygote.
    """
    return list(itertools.islice(reversed(sys.modules), max(0, count)))


def is_own(name: str) -> bool:
    """Return whether a module belongs to the scenario rather than to an installed package."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or sys.prefix
    return module is not None and not is_installed(file)


def _clear(module: ModuleType) -> None:
    """Return names in the interpreter's order: first those with one leading underscore, then the others."""
    names = [name for name in vars(module) if name != "__builtins__"]
    for name in sorted(names, key=lambda each: not (each.startswith("_") and not each.startswith("__"))):
        vars(module)[name] = None  # not setattr, which a module may refuse
