"""``accelerate launch``: the processes to start, by its command and its configuration.

With ``--multi_gpu`` it runs torchrun's launcher in its own process.  On CPUs it starts one process, whatever number was
asked for, unless there is MPI (``accelerate/commands/launch.py``, simple_launcher): racecheck then starts that number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from racecheck.model.errors import UsageError


def is_it(command: Sequence[str]) -> bool:
    """Return whether a command is accelerate's."""
    return any("accelerate" in word for word in command[:3])


def processes(command: Sequence[str]) -> int:
    """Return how many processes were asked for, 1 if that is said nowhere."""
    return _number(command, "num_processes")


def check(command: Sequence[str]) -> None:
    """Raise `UsageError` for a launch on several machines, or with a configuration that cannot be read."""
    if is_it(command) and (machines := _number(command, "num_machines")) > 1:
        here = "racecheck starts all ranks here; give --num_machines 1, and --nodes N before the --"
        raise UsageError(f"num_machines {machines}: {here}")


def _number(command: Sequence[str], name: str) -> int:
    given = _option(command, name)
    if given is None and (file := _configuration(command)) is not None:
        try:
            found = re.search(rf"^\W*{name}\W*:\s*(\d+)", file.read_text(), re.MULTILINE)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {file}: {error}") from None
        given = found[1] if found is not None else None
    return int(given) if given is not None and given.isdigit() else 1


def _option(command: Sequence[str], name: str) -> str | None:
    """Return the value of an option, which may be written with ``_`` or ``-``, and with ``=``."""
    for word, value in zip(command, [*command[1:], ""], strict=True):
        option, equals, given = word.partition("=")
        if option.startswith("--") and option[2:].replace("-", "_") == name:
            return given if equals else value
    return None


def _configuration(command: Sequence[str]) -> Path | None:
    """Return the configuration file that accelerate reads (``accelerate/commands/config/config_args.py``)."""
    given = _option(command, "config_file")
    if given is not None:
        return Path(given)
    if "--cpu" in command:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    place = Path(os.environ.get("HF_HOME", cache)).expanduser() / "accelerate"
    files = (place / f"default_config.{ending}" for ending in ("json", "yaml"))
    return next((each for each in files if each.is_file()), None)
