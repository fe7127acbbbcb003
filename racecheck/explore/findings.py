"""Findings on disk: versioned JSON that says everything about one run.

A finding comes from strangers (a colleague, a CI job): it is read strictly, and nothing in it is executed.
Its format is what the type hints of `Finding` and of the model say:

    dataclass            object with exactly its fields; an event or a rank's result has its class in "is"
                         too (no field can be called that: it is a keyword)
    Mapping              object, its keys sorted; whole numbers as keys are written in decimal
    tuple, Sequence      list
    enumeration          name
    Any                  as it is (NaN and the infinities are written as Python's json does)

Paths that are not UTF-8 are lone surrogates in Python (PEP 383), and stay so as escapes.
"""

from __future__ import annotations

import base64
import enum
import gzip
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import reprlib
import shlex
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from racecheck.explore import former_names
from racecheck.explore.evidence import Evidence
from racecheck.kernel import given_files
from racecheck.kernel.real_files import real
from racecheck.model import package
from racecheck.model.errors import UsageError
from racecheck.model.nouns import (
    Constraint,
    Crash,
    Event,
    Fault,
    Judgement,
    Outcome,
    Raised,
    RankResult,
    Weights,
    World,
)
from racecheck.targets import definitions
from racecheck.targets.programs import Launch
from racecheck.targets.scenarios import Scenario

FORMAT = "racecheck-finding"
VERSION = 8
_OLDEST = 7
_IDENTITY = 7
"""The version in which the inputs of a run were last written otherwise: a newer format does not change an address."""
_TAGGED = frozenset({*get_args(Event), *get_args(RankResult)})
_LONGEST_NAME = 200
_EXPANDED = 3
"""Objects and lists nested less deeply take a line for each item; so each event of the trace is one line."""

_Parser = Callable[[Any, Any, str], Any]
"""Reads a value, given the parser's knowledge of the type, the data, and the data's place in the finding."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A scenario: its target as the command line writes it, and the SHA-256 of the parts of its file that it uses.

    ``parts`` are those of each definition, by name; empty for a launch command, and in older files: then ``source`` is
    that of the whole files.
    """

    target: str
    source: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the scenario alone."""
        return self.target.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions that the run was made with; "" for a package that is not installed."""

    racecheck: str
    python: str
    torch: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A run that is worth keeping: its inputs, its outcome, and how it was judged.

    ``run`` is the number of the run under ``seed``, ``strategy`` the name of the chooser of its schedule, and
    ``invariants`` the names of all that were asked.  ``pair`` are the events of the trace whose order decides (one
    beyond its end is a pending op), and with ``constraints`` all runs that were tried fail.  ``launch`` and
    ``resumed`` are of a program.  ``slot`` is the number in the path of the watched directory, which checkpointers may
    write into files.  Files of version 7 have no ``evidence``.
    """

    scenario: Reference
    seed: int | str
    run: int
    strategy: str
    invariants: tuple[str, ...]
    outcome: Outcome
    judgement: Judgement
    versions: Versions
    pair: tuple[int, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    launch: Launch | None = None
    resumed: Launch | None = None
    slot: int = 0
    evidence: Evidence | None = None

    @property
    def subject(self) -> str:
        """Return the subject of the run, for people: the launch command, or the scenario's target."""
        return shlex.join(self.launch.command) if self.launch is not None else self.scenario.target

    @property
    def address(self) -> str:
        """Return ten digits that stand for the inputs of the run.

        Its results are left out: it follows from that, but for timing, output and coverage, in which two
        runs of one schedule may differ.  Of a program it has the command and the sources: the rest says where it lies.
        """
        world, schedule = self.outcome.world, self.outcome.schedule
        launches = [each.command for each in (self.launch, self.resumed) if each is not None]
        what: Any = (*(launches or (self.scenario.target,)), self.scenario.source)
        causes: list[Any] = [_IDENTITY, what, self.seed, self.run, self.invariants, world, schedule]
        causes += [self.outcome.crash] if self.outcome.crash is not None else []
        return hashlib.sha256(json.dumps(causes, default=_dump).encode()).hexdigest()[:10]


def versions() -> Versions:
    """Return those of this process and machine, without an import of torch."""
    return Versions(package.VERSION, platform.python_version(), _version("torch"), platform.release())


def _version(name: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""


def reference(scenario: Scenario) -> Reference:
    """Return how a finding names a scenario; raises `UsageError` if its source cannot be read."""
    if getattr(scenario, "launch", None) is not None:
        return Reference(scenario.target, source_hash(*scenario.sources))
    parts = _parts(scenario.file, scenario.name)
    return Reference(scenario.target, definitions.digest(parts), parts)


def changes(scenario: Reference, file: Path, name: str) -> list[str]:
    """Return the names of changed definitions that a scenario of this ``name`` uses in its file; raises `UsageError`.

    Of a reference without parts it is the file.
    """
    if not scenario.parts:
        return [] if source_hash(file) == scenario.source else [definitions.WHOLE]
    now = _parts(file, name)
    if definitions.WHOLE in now:
        return [] if now == scenario.parts else [definitions.WHOLE]
    return sorted(each for each in {*now, *scenario.parts} if now.get(each) != scenario.parts.get(each))


def _parts(file: Path, name: str) -> dict[str, str]:
    try:
        return definitions.used(file, name.partition("[")[0])
    except OSError as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {file}: {error.strerror}; a scenario must be defined in a file")


def source_hash(*files: Path) -> str:
    """Return the SHA-256 of a scenario's source files; raises `UsageError` if one cannot be read."""
    found = []
    for file in files:
        try:
            found.append(hashlib.sha256(file.read_bytes()).hexdigest())
        except OSError as error:
            raise _unreadable(file, error) from None
    return found[0] if len(found) == 1 else hashlib.sha256(" ".join(found).encode()).hexdigest()


def save(finding: Finding, directory: Path, path: Path | None = None) -> Path:
    """Write a finding to ``<directory>/<scenario>/<address>.json`` or to ``path``, whole or not at all.

    The same run found again replaces the file.  Returns the path.  Raises `UsageError` if the directory cannot be
    written.
    """
    path = path or folder_of(finding.scenario, directory) / f"{finding.address}.json"
    return write(encode(finding), path.parent, path.name)


def folder_of(scenario: Reference, directory: Path) -> Path:
    """Return where below ``directory`` the files of a scenario are kept: a folder for each file and name.

    A program's folder has the program's name.
    """
    file, _, name = scenario.target.rpartition("::")
    digits = f"-{hashlib.sha256(file.encode(errors='surrogatepass')).hexdigest()[:4]}" if file.endswith(".py") else ""
    return directory / f"{re.sub(r'[^A-Za-z0-9_]', '_', name or '_')[:_LONGEST_NAME]}{digits}"


def write(text: str, folder: Path, name: str) -> Path:
    """Write a file, whole or not at all; returns the path.  Raises `UsageError` if the folder cannot be written."""
    fresh = None
    try:
        there = real(folder)
        there.mkdir(parents=True, exist_ok=True)
        fresh = there / f".{uuid.uuid4().hex}"
        with fresh.open("x", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(there / name)
    except OSError as error:
        with suppress(OSError):
            if fresh is not None:
                fresh.unlink()
        raise UsageError(f"cannot write to {folder}: {error.strerror}; set RACECHECK_FINDINGS") from None
    return folder / name


def load(path: Path) -> Finding:
    """Read a finding; raises `UsageError` for a file that is missing, unreadable, too large or no finding."""
    return cast(Finding, FINDING.load(path, Finding))


def encode(finding: Finding) -> str:
    """Return the text of a finding."""
    return FINDING.encode(finding)


def packed(finding: Finding) -> str:
    """Return a finding as its page carries it: compressed, in base64."""
    return base64.b64encode(gzip.compress(encode(finding).encode(), mtime=0)).decode()


def decode(text: str) -> Finding:
    """Return the finding in a text; raises `UsageError`, with the problem and the remedy in one line."""
    return cast(Finding, FINDING.decode(text, Finding))


def _carried(text: str) -> str:
    """Return the finding that a page carries (`racecheck report`), as text; any other text as it is.

    Raises `UsageError` for a page that carries none, a damaged one, or one larger than a file may be.
    """
    if not text.startswith("<!doctype html>"):
        return text
    _, found, rest = text.partition(CARRIES)
    if not found:
        raise UsageError("this page carries no finding: name the file of one, or its page")
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        whole = unpacking.decompress(base64.b64decode(rest.partition("</script>")[0]), given_files.LARGEST).decode()
    except (ValueError, zlib.error):
        raise UsageError("the finding in this page is damaged: create the page again with racecheck report") from None
    if unpacking.unconsumed_tail:
        raise UsageError(f"the finding in this page is larger than {given_files.LARGEST >> 20} MiB")
    return whole


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file: its own name, its version, its name for people, and the remedy for a bad one.

    ``optional`` fields are left out where they are None.  ``oldest`` is the first version that is still read (0: only
    the current one).
    """

    name: str
    version: int
    noun: str
    hint: str
    optional: tuple[str, ...] = ()
    oldest: int = 0

    def encode(self, value: Any) -> str:
        """Return the text of a file that holds a value (a dataclass)."""
        data = {"format": self.name, "version": self.version, **_dump(value)}
        data = {name: each for name, each in data.items() if each is not None or name not in self.optional}
        return _laid_out(data, 0) + "\n"

    def load(self, path: Path, kind: Any) -> Any:
        """Return the value of this ``kind`` in a file; raises `UsageError` with its path and the problem."""
        try:
            text = given_files.read(path).decode()
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file: use the path that racecheck run printed") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not {self.noun}: it is not text; {self.hint}") from None
        try:
            return self.decode(_carried(text), kind)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None

    def decode(self, text: str, kind: Any) -> Any:
        """Return the value of this ``kind`` in a text; raises `UsageError`: one line with the remedy."""
        try:
            data = given_files.parse(text, pairs=_object)
        except ValueError as error:
            raise UsageError(f"not {self.noun}: not JSON: {error}; {self.hint}") from None
        if type(data) is not dict or data.pop("format", None) != self.name:
            raise UsageError(f'not {self.noun}: "format" is not "{self.name}"; {self.hint}')
        self._check_version(data.pop("version", None))
        try:
            return _parse(kind, {**dict.fromkeys(self.optional), **former_names.current(data)}, "")
        except _WrongError as wrong:
            raise UsageError(f"damaged {self._plain}: {wrong}; {self.hint}") from None
        except RecursionError:
            raise UsageError(f"damaged {self._plain}: recoveries are nested too deeply; {self.hint}") from None

    @property
    def _plain(self) -> str:
        return self.noun.removeprefix("a ")

    def _check_version(self, version: Any) -> None:
        shown, current = reprlib.repr(version), self.version
        if type(version) is int and version > current:
            raise UsageError(f"version {shown} is newer than this racecheck reads ({current}): upgrade racecheck")
        if type(version) is int and 0 < (self.oldest or current) <= version < current:
            return
        if type(version) is int and 0 < version < current:
            raise UsageError(f"version {version} is older than this racecheck reads ({current}); {self.hint}")
        if type(version) is not int or version != current:
            raise UsageError(f"unknown version {shown} of {self._plain} files; {self.hint}")


_ADDED: Mapping[type, Mapping[str, Any]] = {
    Weights: {"series": ""},
    Raised: {"lacks": "", "causes": [], "thread": ""},
    Fault: {"survive": False},
    Outcome: {"times": {}, "steps": [], "undamaged": None},
    World: {"parts": []},
    Crash: {"whole": [], "damage": "", "file": ""},
    Evidence: {"proof": ""},
    Reference: {"parts": {}},
    Finding: {"slot": 0},
}
"""Fields that files of an earlier racecheck lack, with their values there; they are left out where they have these."""

_GZIP = 16 + zlib.MAX_WBITS
CARRIES = '<script type="application/gzip" id="finding">'
"""Stands before the finding in its page."""

FINDING = Format(
    FORMAT,
    VERSION,
    "a finding",
    "create it again with racecheck run",
    optional=("launch", "resumed", "evidence"),
    oldest=_OLDEST,
)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a duplicate key")
    return found


def _laid_out(data: Any, depth: int) -> str:
    """Return JSON with one space per level, and one line for each value deeper than `_EXPANDED`."""
    if depth == _EXPANDED or not data or not isinstance(data, (dict, list)):
        return json.dumps(data)
    if isinstance(data, dict):
        start, end = "{}"
        items = [f"{json.dumps(key)}: {_laid_out(value, depth + 1)}" for key, value in data.items()]
    else:
        start, end = "[]"
        items = [_laid_out(value, depth + 1) for value in data]
    line = "\n" + " " * depth
    return f"{start}{line} {f',{line} '.join(items)}{line}{end}"


class _WrongError(Exception):
    """The data does not fit the type hint at ``where``."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where.removeprefix('.')[:200]}: {what}")


def _dump(value: Any) -> Any:
    """Return the JSON data of a value of the model."""
    if isinstance(value, enum.Enum):
        return value.name
    if is_dataclass(value):
        data = {each.name: _dump(getattr(value, each.name)) for each in fields(value)}
        data = {name: each for name, each in data.items() if (name, each) not in _ADDED.get(type(value), {}).items()}
        return {"is": type(value).__name__, **data} if type(value) in _TAGGED else data
    if isinstance(value, Mapping):
        return {str(key): _dump(each) for key, each in sorted(value.items())}
    return [_dump(each) for each in value] if isinstance(value, (list, tuple)) else value


def _parse(hint: Any, data: Any, where: str) -> Any:
    """Return the value of type ``hint`` that ``data`` stands for; raises `_WrongError` if it stands for none."""
    parse, about = _parser(hint)
    return parse(about, data, where)


@cache
def _parser(hint: Any) -> tuple[_Parser, Any]:
    """Return the function that reads values of this type, and its knowledge of the type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is not None:
        return _BY_ORIGIN[origin], arguments
    if is_dataclass(hint):
        return _parse_record, (hint, get_type_hints(hint))
    if isinstance(hint, enum.EnumMeta):
        return _pick, hint.__members__
    return {float: _parse_float, Any: _parse_any}.get(hint, _expect), (hint,)


def _expect(kinds: Sequence[type], data: Any, where: str) -> Any:
    """Return ``data`` if it is of one of these kinds (a bool is no int), else raise `_WrongError`."""
    if type(data) not in kinds:
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise _WrongError(where, f"expected {expected}, found {type(data).__name__}")
    return data


def _pick(values: Mapping[str, Any], data: Any, where: str) -> Any:
    if type(data) is not str or data not in values:
        expected = ", ".join(map(repr, values))
        raise _WrongError(where, f"expected one of {expected}, found {reprlib.repr(data)}")
    return values[data]


def _parse_any(_: Any, data: Any, where: str) -> Any:
    del where
    return data


def _parse_float(_: Any, data: Any, where: str) -> float:
    """Accept 30 where other programs write 30.0."""
    try:
        return float(_expect((float, int), data, where))
    except OverflowError:
        raise _WrongError(where, "expected float, found a larger number") from None


def _parse_literal(arguments: Sequence[Any], data: Any, where: str) -> Any:
    return _pick({each: each for each in arguments}, data, where)


def _parse_list(arguments: Sequence[Any], data: Any, where: str) -> Any:
    _expect((list,), data, where)
    return tuple([_parse(arguments[0], each, f"{where}[{index}]") for index, each in enumerate(data)])


def _parse_tuple(arguments: Sequence[Any], data: Any, where: str) -> Any:
    if arguments[1:] == (Ellipsis,):
        return _parse_list(arguments, data, where)
    if len(_expect((list,), data, where)) != len(arguments):
        raise _WrongError(where, f"expected {len(arguments)} values, found {len(data)}")
    return tuple([_parse(hint, data[at], f"{where}[{at}]") for at, hint in enumerate(arguments)])


def _parse_mapping(arguments: Sequence[Any], data: Any, where: str) -> Any:
    _expect((dict,), data, where)
    places = {key: f"{where}[{key!r}]" for key in data}
    keys = {key: _parse_key(arguments[0], key, place) for key, place in places.items()}
    return {keys[key]: _parse(arguments[1], each, places[key]) for key, each in data.items()}


def _parse_key(kind: type, data: str, where: str) -> Any:
    """Return a whole number as a key.  JSON keys are strings; "01" is refused, since it would equal "1"."""
    with suppress(ValueError):
        key = kind(data)
        if str(key) == data:
            return key
    raise _WrongError(where, "expected a whole number as key")


def _parse_record(about: tuple[Any, Mapping[str, Any]], data: Any, where: str) -> Any:
    kind, hints = about
    _expect((dict,), data, where)
    if kind in _TAGGED:
        _pick({kind.__name__: kind}, data.get("is"), f"{where}.is")
        data = {name: each for name, each in data.items() if name != "is"}
    data = {**_ADDED.get(kind, {}), **data}
    for name in hints:
        if name not in data:
            raise _WrongError(f"{where}.{name}", "missing")
    for name in data:
        if name not in hints:
            raise _WrongError(f"{where}[{name!r}]", "unknown field")
    return kind(**{name: _parse(hint, data[name], f"{where}.{name}") for name, hint in hints.items()})


def _parse_union(members: Sequence[Any], data: Any, where: str) -> Any:
    rest = [each for each in members if each is not NoneType]
    if data is None and len(rest) < len(members):
        return None
    if len(rest) == 1:
        return _parse(rest[0], data, where)
    if not is_dataclass(rest[0]):
        return _expect(rest, data, where)
    tag = _expect((dict,), data, where).get("is")
    return _parse(_pick({each.__name__: each for each in rest}, tag, f"{where}.is"), data, where)


_BY_ORIGIN: Mapping[Any, _Parser] = {
    Literal: _parse_literal,
    Mapping: _parse_mapping,
    Sequence: _parse_list,
    Union: _parse_union,
    UnionType: _parse_union,
    tuple: _parse_tuple,
}
