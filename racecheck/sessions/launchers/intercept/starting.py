"""A script that starts its ranks itself: let it run until it waits for them, and report how many there are.

Processes that it would start by the method "spawn" of ``multiprocessing`` are counted and not started.  Those that
would run the script once more, as another rank (Lightning's way), are reported, and sleep.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from multiprocessing import popen_fork, popen_spawn_posix
from types import ModuleType
from typing import Any

_PATIENCE = 5.0
"""Seconds without another start after which it has started all: it may wait for them in a way of its own."""
_LOOKS = 3
"""How often it may ask of each process whether it is alive, before that counts as waiting for them."""


def _is_rank(made: Any) -> bool:
    """Return whether a process runs a function of the program's, as `racecheck.agent.spawning` tells it."""
    target = getattr(made, "_target", None)
    name = target.__module__ if hasattr(target, "__module__") else type(made).__module__
    file = getattr(sys.modules.get(name), "__file__", None) or f"{sys.prefix}/"
    is_installed = file.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/")) or "/site-packages/" in file
    return name in {"__main__", "torch.multiprocessing.spawn"} or not is_installed


def _replace(module: ModuleType, popen: type) -> None:
    """Start the processes that would be ranks by a class of ours."""
    original = vars(module)["Popen"]
    vars(module)["Popen"] = lambda made: (popen if _is_rank(made) else original)(made)


def count_starts(report: Callable[[int, bool], None], *, forks: bool) -> None:
    """Call ``report`` with the number of processes started so far, at each start; end when it waits for one.

    It is told whether they are forked, which counts only if ``forks``.  A script that starts none reports that when it
    ends.
    """
    timers: list[threading.Timer] = []
    started = polls = 0

    def end() -> None:
        os._exit(0)

    class Popen:
        method = "spawn"

        def __init__(self, process: Any) -> None:
            nonlocal started, polls
            del process
            started, polls = started + 1, 0
            report(started, self.method == "fork")
            self.pid, self.returncode = os.getpid(), None
            self.sentinel, writing = os.pipe()
            os.close(writing)
            for each in timers:
                each.cancel()
            timers[:] = [threading.Timer(_PATIENCE, end)]
            timers[0].daemon = True
            timers[0].start()

        def poll(self, flag: int = os.WNOHANG) -> None:
            del flag
            nonlocal polls
            if sys._getframe(1).f_code.co_name != "_cleanup":  # multiprocessing itself asks at each start
                polls += 1
            if polls > _LOOKS * started:
                end()

        def wait(self, timeout: float | None = None) -> None:
            del timeout
            end()

        terminate = kill = close = wait

    class Forked(Popen):
        method = "fork"

    _replace(popen_spawn_posix, Popen)
    if forks:
        _replace(popen_fork, Forked)
    _at_end(lambda: report(started, False))


def _at_end(say: Callable[[], None]) -> None:
    """Call a function when the script ends, and not when a process ends that it has forked."""
    this = os.getpid()

    def end_of_script() -> None:
        if os.getpid() == this:
            say()

    atexit.register(end_of_script)


def take_restarts(program: Callable[[list[str]], str], report: Callable[[int, dict[str, object]], None]) -> None:
    """Let each `subprocess` that would run this script as another rank sleep, and report how it would be started.

    ``program`` finds the script in the arguments of Python; ``report`` takes the number of the process, and its
    arguments, environment and directory.
    """
    original = subprocess.Popen.__init__
    own, found = os.path.basename(program(sys.orig_argv[1:])), 0

    def begin(self: Any, args: Any, *more: Any, **named: Any) -> None:
        nonlocal found
        environment = named.get("env") or os.environ
        words = [*map(os.fsdecode, args)] if isinstance(args, (list, tuple)) else []
        is_python = bool(words) and os.path.basename(words[0]).startswith("python")
        if is_python and program(words[1:]) == own and {"RANK", "LOCAL_RANK"} & environment.keys():
            found += 1
            directory = os.fsdecode(named.get("cwd") or os.getcwd())
            report(found, {"arguments": words[1:], "environment": {**environment}, "directory": directory})
            args = ["sleep", "infinity"]
        original(self, args, *more, **named)

    popen: Any = subprocess.Popen  # the script must find its own class
    popen.__init__ = begin


def intercept_launchers(variables: Callable[[Mapping[str, str]], dict[str, str]], names: Collection[str]) -> None:
    """Start each launcher that the script starts, and each process that it starts as a rank, with other ``variables``.

    ``names`` are the launchers' programs and modules.  A process is started as a rank if it is passed another RANK than
    the script has: one that only inherits RANK is a helper.
    """
    starts = re.compile(rf"(^|[\s/'\"])({'|'.join(map(re.escape, [*names, 'mpirun', 'mpiexec', 'srun']))})($|[\s'\"])")
    original, system, execute = subprocess.Popen.__init__, os.system, os.execve

    def is_seen(words: object, given: Mapping[Any, Any]) -> bool:
        listed = words if isinstance(words, (list, tuple)) else [words]
        text = " ".join(os.fsdecode(each) for each in listed if isinstance(each, (str, bytes, os.PathLike)))
        return bool(starts.search(text)) or given.get("RANK") != os.environ.get("RANK")

    def begin(self: Any, args: Any, *more: Any, **named: Any) -> None:
        given = named.get("env") or os.environ
        if is_seen(args, given):
            named["env"] = variables(given)
        original(self, args, *more, **named)

    def call(command: str) -> int:
        if not is_seen(command, os.environ):
            return system(command)
        ended = subprocess.Popen(["sh", "-c", command]).wait()
        return ended << 8 if ended >= 0 else -ended  # as wait(2) tells it

    def replace(path: Any, args: Any, env: Mapping[Any, Any]) -> None:
        execute(path, args, variables(env) if is_seen([path, *args], env) else env)

    popen: Any = subprocess.Popen
    popen.__init__ = begin
    vars(os).update(system=call, execve=replace, execv=lambda path, args: replace(path, args, os.environ))
