"""Files that people pass on: how they are written, and how source files are named in them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from racecheck.model.errors import UsageError


def short(file: str) -> str:
    """Return a file as it is shown: below the installed packages, else its last two parts, never a home directory."""
    for mark in ("site-packages/", "dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    return "/".join(PurePosixPath(file).parts[-2:]).removeprefix("/")


def write_text(text: str, path: Path, finding: Path) -> None:
    """Write a file about a finding, which it must not replace.  Raises `UsageError`."""
    if path.absolute() == finding.absolute():
        raise UsageError(f"{path} is the finding: name another file with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another file with -o") from None
