"""A checkpointer to be judged: its needs, and the checks that are asked of it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from racecheck.gate.effort import EFFORTS, Effort
from racecheck.model.errors import UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import World
from racecheck.model.package import DISTRIBUTION, PLACE, VERSION
from racecheck.targets import resolve, suite
from racecheck.targets.scenarios import Scenario, make_world
from racecheck.targets.suite import CHECKS, Check, protocol


@dataclass(frozen=True, slots=True)
class Subject:
    """A checkpointer's class, and the ``name`` that people gave for it."""

    name: str
    kind: type

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process finds it: by its name."""
        return named, (self.name,)

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the packages that it needs, and of torch; "" for a missing one."""
        return {name: version(name) for name in dict.fromkeys((*protocol.requires(self.kind), "torch"))}

    @property
    def missing(self) -> str:
        """Return the missing packages that it needs, with the remedy; "" if nothing is missing."""
        missing = [name for name in protocol.requires(self.kind) if not _is_installed(name)]
        if not missing:
            return ""
        return f"needs {', '.join(missing)}: {_installation(missing[0])}"

    def scenario(self, check: Check) -> Scenario:
        """Return the scenario of a check, which every rank runs."""
        return suite.scenario(self.kind, check.name)

    def world(self, check: Check, ranks: int | None) -> World:
        """Return the world of a check, of another size if that is asked for and the check is not about sizes."""
        world = self.scenario(check).world
        if ranks is None or "ranks" in check.world:
            return world
        return make_world(world, ranks=ranks, nodes=ranks if world.nodes > 1 else 1)

    def against(self, check: Check) -> str:
        """Return why the failures of a check do not count; "" if it does."""
        return suite.reason_against(self.kind, check)


def named(name: str) -> Subject:
    """Return the checkpointer with a name; raises `UsageError`."""
    return Subject(name, resolve.checkpointer(name))


def checks(
    subject: Subject, names: Sequence[str], storages: Sequence[str], effort: Effort = EFFORTS["full"]
) -> list[Check]:
    """Return the checks that are asked of a checkpointer, the most telling first.

    Of all that it has the methods for, those of these names, and on these storages (without their options: with any).
    If neither is given, those of the effort.  Raises `UsageError` for names that there are not.
    """
    known = [*dict.fromkeys(each.storage for each in CHECKS.values())]
    for each in names:
        if each not in CHECKS:
            raise UsageError(f"unknown check {each!r}; {meant(each, CHECKS)}")
    for each in storages:
        if not any(_is_on(storage, each) for storage in known):
            raise UsageError(f"no check uses storage {each!r}; {meant(each, known)}")
    found = [*suite.applicable(subject.kind).values()]
    if not names and not storages:
        return effort.checks(found)
    return [
        each
        for each in found
        if (not names or each.name in names)
        and (not storages or any(_is_on(each.storage, storage) for storage in storages))
    ]


def lacking(subject: Subject, names: Sequence[str]) -> str:
    """Return why no check of these names applies to a checkpointer."""
    for each in names:
        if CHECKS[each].of_training != protocol.is_training(subject.kind):
            return f"check {each} is for {'trainings' if CHECKS[each].of_training else 'checkpointers'}"
        if each not in suite.applicable(subject.kind):
            return f"{subject.name} has no {CHECKS[each].needs}, which check {each} needs"
    return "no check matches both --check and --storage: leave one out"


def left_out(subject: Subject) -> list[str]:
    """Return which checks a checkpointer lacks the methods for, a line for each method."""
    have = suite.applicable(subject.kind)
    lacks: dict[str, list[str]] = {}
    for name in CHECKS.keys() - have.keys():
        if CHECKS[name].of_training == protocol.is_training(subject.kind):
            lacks.setdefault(CHECKS[name].needs, []).append(name)
    return [
        f"{subject.name} has no {method}; skipped: {', '.join(each for each in CHECKS if each in names)}"
        for method, names in sorted(lacks.items())
    ]


def fingerprint(subject: Subject) -> str:
    """Return the SHA-256 of the files that the outcome depends on.

    These are the file of the class, its imports from its package and from beside it, and racecheck's own files.
    """
    found = hashlib.sha256(_own().encode())
    for path in _files(subject.kind.__module__):
        with suppress(OSError):
            found.update(path.read_bytes())
    return found.hexdigest()


def _files(module: str) -> list[Path]:
    package, loaded = module.partition(".")[0], {**sys.modules}
    files = {name: Path(file) for name, each in loaded.items() if (file := getattr(each, "__file__", None))}
    own = files.get(module)
    if own is None or package == PLACE.name:
        return [own] if own is not None else []
    return sorted(
        file for name, file in files.items() if name.partition(".")[0] == package or file.parent == own.parent
    )


@cache
def _own() -> str:
    found = hashlib.sha256(VERSION.encode())
    for path in sorted(PLACE.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _is_on(storage: str, asked: str) -> bool:
    return asked in {storage, storage.partition("(")[0]}


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def version(name: str) -> str:
    """Return the version of a package, by its import name."""
    for distribution in (name.replace(".", "-"), *importlib.metadata.packages_distributions().get(name, ())):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return ""


def _installation(name: str) -> str:
    """Return how to install a package: by racecheck's extra that has it, if one has."""
    package = _plain(name)
    with suppress(importlib.metadata.PackageNotFoundError):
        for line in importlib.metadata.requires(DISTRIBUTION) or ():
            found = re.match(r"([\w.-]+).*extra *== *['\"]([\w-]+)", line)
            if found and found[2] != "dev" and _plain(found[1]) == package:
                return f"pip install '{DISTRIBUTION}[{found[2]}]'"
    return f"pip install {package}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
