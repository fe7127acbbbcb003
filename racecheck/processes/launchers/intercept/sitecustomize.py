"""Python imports this when it starts: the launcher goes on, and any other process reports how it was started and ends.

Only the standard library is here, and no module of racecheck's: the process may belong to any environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLACE = os.environ.get("RACECHECK_CAPTURE", "")
_LAUNCHERS = {"torchrun", "torch.distributed.run"}
_WITH_VALUE = {"-W", "-X"}


def _started() -> str:
    """Return the script or module that this process is about to run, "" for any other start."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif word == "-m":
            return next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word)
    return ""


def _is_launcher() -> bool:
    """Return whether this is the launcher: the first process of its kind, and no other."""
    if _started() not in _LAUNCHERS:
        return False
    try:
        os.close(os.open(f"{_PLACE}/launcher", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _report() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RACECHECK_CAPTURE"}
    path = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each and each != _HERE]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    said = {
        "arguments": sys.orig_argv[1:], "environment": environment, "directory": os.getcwd(),
        "interpreter": sys.executable,
    }  # fmt: skip
    with open(f"{_PLACE}/{os.getpid()}.part", "w") as file:
        json.dump(said, file)
    os.rename(f"{_PLACE}/{os.getpid()}.part", f"{_PLACE}/{os.getpid()}.json")
    news = os.open(f"{_PLACE}/news", os.O_WRONLY)
    os.write(news, b".")
    os.close(news)


def _stop_all_but_the_launcher() -> None:
    if not _is_launcher():
        try:
            _report()
        finally:
            os._exit(0)


if _PLACE:
    _stop_all_but_the_launcher()
sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _HERE]
sys.modules.pop("sitecustomize", None)
if importlib.util.find_spec("sitecustomize"):
    importlib.import_module("sitecustomize")  # the environment's own, which this one hides
