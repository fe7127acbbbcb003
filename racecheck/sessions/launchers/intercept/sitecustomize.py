"""Python imports this when it starts: the launcher goes on, and any other process reports how it was started and ends.

Where a script starts the launcher, the processes before it go on, too.

Only the standard library is here: the process may belong to any environment.  Where a launch is only observed
(`racecheck.supervisor.free.observed_launch`), the ranks go on, too, as soon as they have joined.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import sys
from collections.abc import Callable, Mapping

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLACE = os.environ.get("RACECHECK_CAPTURE", "")
_DOOR = os.environ.get("RACECHECK_OBSERVE", "")
_SHIMS = os.environ.get("RACECHECK_SHIMS", "")
_SCRIPT = os.environ.get("RACECHECK_SCRIPT", "")
_RANKS = [each for each in os.environ.get("RACECHECK_RANKS", "").split() if each in os.environ]
_LAUNCHERS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate-launch",
    "accelerate.commands.launch", "deepspeed",
}  # fmt: skip
_FOR_LAUNCHERS = ("RACECHECK_CAPTURE", "RACECHECK_RANKS", "RACECHECK_SHIMS")
_FORKS = bool(os.environ.get("RACECHECK_FORKS"))
_SECOND = "deepspeed.launcher.launch"
"""The process by which deepspeed's launcher starts the ranks of one machine."""
_WITH_VALUE = {"-W", "-X"}
_LOOK = 2.0
"""Seconds for a look at the files, for each rank if a script starts one after another."""


def _started() -> str:
    """Return the script or module that this process is about to run, "" for any other start."""
    return _program(sys.orig_argv[1:])


def _program(arguments: list[str]) -> str:
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif word == "-m":
            return next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word)
    return ""


def _is_launcher() -> bool:
    """Return whether this is the launcher, or the script: the first process of its kind, and no other."""
    if _started() != _SCRIPT if _SCRIPT else not _starts_ranks():
        return _started() == _SECOND
    try:
        file = os.open(f"{_PLACE}/{'script' if _SCRIPT else 'launcher'}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(file, json.dumps(sys.orig_argv).encode())
    os.close(file)
    if _SHIMS:
        _tell()
    return True


def _starts_ranks() -> bool:
    return _started() in _LAUNCHERS and (_started() != "accelerate" or "launch" in sys.orig_argv)


def _is_before_the_launcher() -> bool:
    """Return whether this process runs before the job, and is none of its ranks."""
    if not _SHIMS or _RANKS or os.path.exists(f"{_PLACE}/launcher"):
        return False
    with open(f"{_PLACE}/before", "a") as file:
        file.write(f"{' '.join(['python', *sys.orig_argv[1:]])}\n")
    return True


def _hide() -> None:
    """Remove racecheck's own variables from the environment."""
    for name in ("CAPTURE", "FORKS", "OBSERVE", "RANKS", "SCRATCH", "SCRIPT", "SHIMS"):
        os.environ.pop(f"RACECHECK_{name}", None)
    if _SHIMS:
        path = os.environ.get("PATH", "").split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(each for each in path if each != _SHIMS)
    path = [each for each in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if each and each != _HERE]
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(path)


def _said() -> dict[str, object]:
    _hide()
    return {
        "arguments": sys.orig_argv[1:], "environment": {**os.environ}, "directory": os.getcwd(),
        "interpreter": sys.executable,
    }  # fmt: skip


def _report(said: dict[str, object], name: str = "") -> None:
    name = name or str(os.getpid())
    with open(f"{_PLACE}/{name}.part", "w") as file:
        json.dump(said, file)
    os.rename(f"{_PLACE}/{name}.part", f"{_PLACE}/{name}.json")
    _tell()


def _tell() -> None:
    """Wake racecheck, which waits for news."""
    news = os.open(f"{_PLACE}/news", os.O_WRONLY)
    os.write(news, b".")
    os.close(news)


def _stop_all_but_the_launcher() -> None:
    if not _is_launcher() and not _is_before_the_launcher():
        try:
            _report(_said())
            _wait_until_seen()
        finally:
            os._exit(0)


def _wait_until_seen() -> None:
    """Keep a script from going on after its ranks until racecheck has looked at the files that it made before them."""
    if _SHIMS:
        seen = os.open(f"{_PLACE}/seen", os.O_RDONLY | os.O_NONBLOCK)
        select.select([seen], [], [], _LOOK)


def _count_starts() -> None:
    """Let the script run, and report how many processes it starts; it and its children find no trace of this."""
    if not _is_launcher():
        return
    own = {name: value for name, value in os.environ.items() if name in _FOR_LAUNCHERS}
    said = _said()
    starting = importlib.import_module("starting")
    starting.count_starts(lambda number, forks: _report({**said, "starts": number, "forks": forks}), forks=_FORKS)
    starting.intercept_launchers(_for_launchers(own), _LAUNCHERS)
    starting.take_restarts(_program, lambda number, more: _report({**said, **more}, f"{os.getpid()}.{number}"))
    del sys.modules["starting"]


def _for_launchers(own: dict[str, str]) -> Callable[[Mapping[str, str]], dict[str, str]]:
    """Return a function from the variables of a launcher that the script starts to those with which it is seen."""

    def variables(given: Mapping[str, str]) -> dict[str, str]:
        found = {**given, **own}
        for name, first in (("PATH", _SHIMS), ("PYTHONPATH", _HERE)):
            found[name] = os.pathsep.join(filter(None, [first, given.get(name, "")]))
        return found

    return variables


def _join() -> None:
    """Let racecheck see the calls of this process, which is a rank."""
    scratch, rank = os.environ["RACECHECK_SCRATCH"], os.environ[_RANKS[0]]
    _hide()
    importlib.import_module("racecheck.agent.observed").join(_DOOR, scratch, rank)


if _PLACE and _SCRIPT:
    _count_starts()
elif _PLACE:
    _stop_all_but_the_launcher()
elif _DOOR and _RANKS:
    _join()
sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _HERE]
_this = sys.modules.pop("sitecustomize")
if importlib.util.find_spec("sitecustomize"):
    importlib.import_module("sitecustomize")  # the environment's own, which this one hides
else:
    sys.modules["sitecustomize"] = _this  # the import of this one ends with a look for it
