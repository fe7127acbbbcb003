"""The scenarios in files and directories.

Files are imported in an interpreter of their own: their imports and prints stay out of our process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from racecheck.kernel import given_files
from racecheck.model.errors import CannotRun, UsageError
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario

_LIST = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
_LIST += "from racecheck.targets.listing import main; main(sys.argv[2:])"


def scenarios(paths: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the data of ``racecheck list --json``: the scenarios below ``paths``, and the files that do not import.

    Each such file has its reason.

    Raises `UsageError` for a path that does not exist, and for a file in ``paths`` that does not import: only those
    found in directories may fail.
    """
    command = [sys.executable, "-c", _LIST, json.dumps(sys.path), *map(str, files(paths))]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True, check=False
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        if done.returncode == -signal.SIGKILL:
            raise CannotRun(
                "the process that imports the files was killed: from outside, or for want of memory"
            ) from None
        how = f"exit status {done.returncode}"
        raise UsageError(f"a file terminated the interpreter ({how}): list files one by one to find it") from None
    for each in answer["broken"]:
        if each["file"] in map(str, map(Path, paths)):
            raise UsageError(each["reason"])
    return cast("dict[str, list[dict[str, Any]]]", answer)


def files(paths: Sequence[str]) -> list[Path]:
    """Return the files to import, each once: those named, and below directories all that mention racecheck."""
    found: dict[Path, None] = {}
    for each in map(Path, paths):
        if not each.exists():
            raise UsageError(f"no such file or directory: {each}; name files or directories with scenarios")
        found.update(dict.fromkeys(sorted(_below(each)) if each.is_dir() else [each]))
    return list(found)


def _below(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*.py"):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if not hidden and path.name != "conftest.py" and b"racecheck" in _content(path):
            yield path


def _content(path: Path) -> bytes:
    """Return the content of a file below a directory, empty for anything else."""
    try:
        return given_files.read(path)
    except UsageError:
        return b""


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Turn a call of ``sys.exit`` at import into a `UsageError`, so that it does not end us."""
    try:
        yield
    except SystemExit:
        raise UsageError(f"cannot import {name}: it calls sys.exit") from None


def main(names: Sequence[str]) -> None:
    """Import files, and print their scenarios and the files that do not import as a JSON object."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    found: list[dict[str, Any]] = []
    broken: list[dict[str, Any]] = []
    for name in names:
        try:
            found += map(_shown, _in_file(name))
        except UsageError as error:
            broken.append({"file": name, "reason": str(error)})
    json.dump({"scenarios": found, "broken": broken}, answer)
    answer.close()


def _in_file(name: str) -> list[Scenario]:
    with importing(name):
        return resolve.scenarios_in(resolve.load_file(Path(name)))


def _shown(each: Scenario) -> dict[str, Any]:
    return {
        "target": each.target,
        "report": each.report,
        "expected": each.expected.name,
        "invariant": each.breaks,
    }
