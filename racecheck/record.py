"""Findings on disk: versioned JSON that says everything about one run.

A finding is data from strangers (a colleague, a CI job): it is read strictly and nothing in it is executed.  The codec
is driven by the type hints of `Finding` and of the model, so that there is one description of the format:

    dataclass            object with exactly its fields; one of a union has its class in "is" (no field can be
                         called that: it is a keyword)
    Mapping[int, ...]    object whose keys are canonical decimals; keys are sorted
    tuple[X, ...]        list
    Verdict              its name
    Any                  as it is

Paths that are no UTF-8 (PEP 383) are lone surrogates in Python, and stay that as ``\\udcXX`` escapes.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import reprlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from racecheck.errors import UsageError
from racecheck.model import Judgement, Outcome

FORMAT = "racecheck-finding"
VERSION = 1
_LARGEST = 256 << 20
_EXPANDED = 3
"""Containers nested less deeply than this take a line for each of their items: so an event is one line."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A scenario: the target as the command line writes it, and the SHA-256 of its source file."""

    target: str
    source: str

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Versions:
    """What the finding was made with; "" for a package that is not installed."""

    racecheck: str
    python: str
    torch: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A run that is worth keeping: what determined it, what came of it, and the judgement.

    ``run`` is the number of the schedule under ``seed``, and ``strategy`` the name of what chose it.  ``invariants``
    are the names of all that were asked.
    """

    scenario: Reference
    seed: int | str
    run: int
    strategy: str
    invariants: tuple[str, ...]
    outcome: Outcome
    judgement: Judgement
    versions: Versions

    @property
    def address(self) -> str:
        """Ten digits for what determined the run, and nothing that may differ when it is run again."""
        codec = _codec(Finding)
        data = codec.dump(self)
        outcome = data["outcome"]
        causes = [data[name] for name in ("scenario", "seed", "run", "invariants")]
        causes += [VERSION, outcome["world"], outcome["schedule"]]
        return hashlib.sha256(json.dumps(causes).encode()).hexdigest()[:10]


def versions() -> Versions:
    """Those of this process and machine; imports nothing."""
    return Versions(_version("racecheck"), platform.python_version(), _version("torch"), platform.release())


def _version(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def source_hash(file: Path) -> str:
    """SHA-256 of a scenario's source file; raises `UsageError` if it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): is that the scenario's file?") from None
