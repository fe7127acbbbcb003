"""Programs: a launch command starts one on every rank, and it is a scenario like any other."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import os
import tarfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from racecheck.invariants import DEFAULT, name_of, no_lost_writes, nothing_outside
from racecheck.kernel import given_files
from racecheck.kernel.real_files import real
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Invariant, Verdict, World
from racecheck.targets import surroundings
from racecheck.targets.scenarios import Rank, Scenario

IDENTITY = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
)  # fmt: skip
"""The variables that say which rank a process is, and of how many (torchrun sets them)."""
ABSENT = "absent"
"""The value of `Launch.start` where the watched directory does not exist when a run begins."""
ASKED = (*(each for each in DEFAULT if each is not nothing_outside), no_lost_writes)
"""The invariants that judge a program, beside those for the saves and loads that are observed."""


def sharing(invariants: Sequence[Invariant], patterns: Sequence[str]) -> tuple[Invariant, ...]:
    """Return invariants that allow several ranks to write files whose paths match one of these shell patterns.

    Raises `UsageError` if none of them asks about that.
    """
    if name_of(no_lost_writes) not in map(name_of, invariants):
        raise UsageError(
            "--shared is for launch commands: no invariant of this scenario is about files of several ranks"
        )
    allowed = partial(no_lost_writes, shared=tuple(patterns))
    return tuple(allowed if name_of(each) == name_of(no_lost_writes) else each for each in invariants)


_ON_CPUS = "accelerate starts one process on CPUs; here it is as many ranks as were asked for"
_FORMAT, _VERSION = "racecheck-launch", 1
_MOST_BYTES, _MOST_FILES = 64 << 20, 20_000


@dataclass(frozen=True, slots=True)
class Launch:
    """The program of a launch command: ``script``, or ``module`` (-m), with ``arguments``, on ``ranks`` ranks.

    ``command`` is as people typed it, ``directory`` the working directory, ``environment`` the variables that the
    launcher sets beside `IDENTITY`.  ``watched`` is the watched directory, ``start`` its contents when a run begins: an
    archive (see `pack`), or `ABSENT`.  ``spawns``: the program itself starts its ranks, with ``multiprocessing``;
    it ``forks`` them.
    ``asks`` are the user's own invariants that judge it, as ``path/to/file.py::name``.  ``kept`` are entries of the
    watched directory that are not watched: it is the working directory, where the program's own code is.
    ``unset`` are variables that a command before the launcher removes.  ``in_script``: the command is a script, which
    may do more than start the ranks.  ``identity`` are the variables by which the launcher tells a rank its number,
    each with the one of `IDENTITY` that it equals; {} if it sets these.  ``local_rank`` is the option by which it
    passes the local rank, before the ``arguments``; "" for none.  ``before`` are the files that a script
    has made and removed outside the watched directory before its ranks (`racecheck.targets.surroundings`), "" if those
    are not known.
    """

    command: tuple[str, ...]
    script: str
    module: str
    arguments: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    ranks: int
    watched: str
    start: str = ABSENT
    spawns: bool = False
    asks: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    in_script: bool = False
    identity: Mapping[str, str] = field(default_factory=dict)
    local_rank: str = ""
    before: str = ""
    forks: bool = False

    @property
    def processes(self) -> int:
        """Return how many processes run: the ranks, and the one that starts them if it is no launcher."""
        return self.ranks + self.spawns

    def restarts(self, resumed: Launch | None) -> bool:
        """Return whether the launcher starts the ranks of a failed job again, as ``resumed``: torchrun may."""
        allowed = self.environment.get("TORCHELASTIC_MAX_RESTARTS", "")
        return resumed is not None and self.command == resumed.command and allowed.isdigit() and int(allowed) > 0

    @property
    def restarted(self) -> Launch:
        """Return the same launch with the variable by which torchrun tells its ranks that it has started them again."""
        return replace(self, environment={**self.environment, "TORCHELASTIC_RESTART_COUNT": "1"})

    @property
    def name(self) -> str:
        """Return a name for people: the script's or the module's."""
        plain = Path(self.script).stem if self.script else self.module.rpartition(".")[2]
        return "".join(each if each.isalnum() or each in "_-" else "_" for each in plain) or "program"

    def runs(self, script: str, module: str) -> bool:
        """Return whether a process that was started with this script, or module, runs the same program."""
        return (Path(script).name, module) == (Path(self.script).name, self.module)

    @property
    def file(self) -> str:
        """Return the script's absolute path, "" for a module."""
        return os.path.normpath(os.path.join(self.directory, self.script)) if self.script else ""

    @property
    def note(self) -> str:
        """Return the remark of each run about the launch, "" for none."""
        if self.spawns and self.ranks:
            return f"rank {self.ranks} is the process that runs {self.script or self.module} and starts the others"
        if self.in_script:
            return self.left_out
        return _ON_CPUS if "ACCELERATE_USE_CPU" in self.environment and self.ranks > 1 else ""

    @property
    def left_out(self) -> str:
        """Return the parts of the command that no run does or controls, "" if there are none."""
        said = " ".join(self.command)
        if self.forks:
            return f"what {self.script or self.module} does before it forks its ranks is as observed"
        when = "after its ranks, and again before a recovery," if self.before else "before and after its ranks"
        return f"what {said} does {when} is no part of the runs" if self.in_script else ""

    @property
    def digest(self) -> str:
        """Return ten digits that stand for it."""
        return hashlib.sha256(json.dumps(_encode(self), sort_keys=True).encode()).hexdigest()[:10]


class Program(Scenario):
    """The scenario of a launch, whose file is ``file``.  A rank runs it by `racecheck.agent.program`.

    ``resumed`` is the launch of the recovery in a fresh world, if there is one: it starts from the disk of the run.
    """

    def __init__(self, launch: Launch, file: Path, resumed: Launch | None = None) -> None:
        super().__init__(
            _run, world=World(ranks=launch.processes), report="", expected=Verdict.PASS, breaks="",
            invariants=ASKED,
        )  # fmt: skip
        self.launch, self.resumed = launch, resumed
        if resumed is not None:
            self.recover(_run, ranks=resumed.processes)
        self.file, self.name = file.resolve(), launch.name
        self.before = self._start

    @property
    def sources(self) -> tuple[Path, ...]:
        """Return the files on which it depends: the script and the modules of its own that it imports."""
        return sources_of(self.launch, self.resumed)

    def _start(self, path: Path) -> None:
        unpack(self.launch.start, path)


def _run(rank: Rank) -> None:
    del rank
    raise AssertionError("a rank runs a program by racecheck.agent.program")


acknowledging: list[Callable[[], None]] = []
"""Functions that `acked` calls.  A rank of a program adds one; elsewhere the list is empty."""


def acked() -> None:
    """Declare, in a program that ``racecheck run -- torchrun ...`` runs, that the saves so far have to survive a crash.

    Without it a save counts when the rank begins the next one of its series, or ends.  Elsewhere it does nothing.
    """
    for each in acknowledging:
        each()


def save(launch: Launch, directory: Path, resumed: Launch | None = None) -> Path:
    """Write a launch, and the one that resumes it, to ``<directory>/<name>/launch-<digest>.json``; returns the path.

    Raises `UsageError`.
    """
    data, digest = {"format": _FORMAT, "version": _VERSION, **_encode(launch)}, launch.digest
    if resumed is not None:
        data["resumed"] = _encode(resumed)
        digest = hashlib.sha256(f"{digest} {resumed.digest}".encode()).hexdigest()[:10]
    path = directory / launch.name / f"launch-{digest}.json"
    try:
        there = real(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        part = there.with_suffix(f".{uuid.uuid4().hex}")
        part.write_text(json.dumps(data, indent=1) + "\n")
        part.replace(there)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; set RACECHECK_FINDINGS") from None
    return path


def load(path: Path) -> Program:
    """Return the program of a launch file; raises `UsageError` for a file that is none."""
    try:
        return _load(path, real(path).stat().st_mtime_ns)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


@cache
def _load(path: Path, changed: int) -> Program:
    del changed
    return Program(*decode(given_files.parse(given_files.read(path).decode()), path))


def decode(data: Any, path: Path) -> tuple[Launch, Path, Launch | None]:
    """Return the launch in JSON data, its file, and the launch that resumes it.

    Raises `UsageError` for anything else.
    """
    try:
        if data.pop("format") != _FORMAT or data.pop("version") != _VERSION:
            raise ValueError
        resumed = data.pop("resumed", None)
        return _decode(data), path, None if resumed is None else _decode(resumed)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(f"{path} is no launch of this racecheck: create it again with racecheck run --watch") from None


def _encode(launch: Launch) -> dict[str, Any]:
    """Return a launch as JSON data; fields that former racechecks did not know are in it only if they say something."""
    return {name: value for name, value in asdict(launch).items() if value or name not in _LATER}


def _decode(data: Any) -> Launch:
    """Return a launch; raises `ValueError` and others for other data."""
    if data.keys() | _LATER != _KEYS:
        raise ValueError
    listed = {name: tuple(data.get(name, ())) for name in ("command", "arguments", "asks", "kept", "unset")}
    made = Launch(**{**data, **listed})
    words = [
        made.script,
        made.module,
        made.directory,
        made.watched,
        made.start,
        *(each for few in listed.values() for each in few),
    ]
    words += [*made.environment, *made.environment.values(), *made.identity, made.local_rank, made.before]
    is_valid = (
        type(made.ranks) is int
        and type(made.spawns) is type(made.in_script) is type(made.forks) is bool
        and made.ranks >= 0
        and made.processes > 0
        and {*made.identity.values()} <= {*IDENTITY}
    )
    if not is_valid or not all(isinstance(each, str) for each in words):
        raise ValueError
    if made.before:
        surroundings.paths(made.before)
    return made


_KEYS = {each.name for each in fields(Launch)}
_LATER = frozenset({"asks", "before", "forks", "identity", "in_script", "kept", "local_rank", "spawns", "unset"})


# What the watched directory holds.


def pack(directory: Path, kept: Collection[str] = ()) -> str:
    """Return an archive of a directory without its entries ``kept``, as text, `ABSENT` if there is none.

    Raises `UsageError` for one that is no directory, is too large for a finding, or holds a socket or the like.
    """
    if not directory.exists():
        return ABSENT
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory")
    total = 0
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz", format=tarfile.PAX_FORMAT) as archive:
        for number, path in enumerate(_below(directory, kept)):
            status = path.lstat()
            total += status.st_size if path.is_file() and not path.is_symlink() else 0
            if total > _MOST_BYTES or number >= _MOST_FILES:
                limit = f"{_MOST_BYTES >> 20} MiB in {_MOST_FILES:,} files"
                raise UsageError(f"{directory} holds more than {limit}: give a smaller start with --from DIR")
            if not (path.is_symlink() or path.is_file() or path.is_dir()):
                raise UsageError(f"{path} is a socket, a pipe or a device: remove it, or give a start with --from DIR")
            archive.add(path, arcname=os.fspath(path.relative_to(directory)), recursive=False, filter=_anonymous)
    return base64.b64encode(data.getvalue()).decode()


def _below(directory: Path, kept: Collection[str] = ()) -> Iterator[Path]:
    for entry in sorted(os.scandir(directory), key=lambda each: each.name):
        if entry.name in kept:
            continue
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(start: str, directory: Path) -> None:
    """Fill an empty directory from an archive; remove it for `ABSENT`."""
    if start == ABSENT:
        directory.rmdir()
        return
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(start)), mode="r:xz") as archive:
        members = archive.getmembers()
        if len(members) > _MOST_FILES or sum(each.size for each in members) > _MOST_BYTES:
            raise UsageError("the start of this launch is too large")
        if not _stay_inside(members):
            raise UsageError("the start of this launch has files outside the watched directory")
        for each in members:
            each.mode &= 0o1777
        # The first releases of Python 3.10 and 3.11 have no filters; others warn of an archive without one.
        archive.extraction_filter = lambda member, _: member
        archive.extractall(directory, members)  # noqa: S202  (members outside the directory are refused above)


def _stay_inside(members: Sequence[tarfile.TarInfo]) -> bool:
    """Return whether an archive has plain files, directories and links only, each once and none beside its directory.

    A symbolic link may lead anywhere, but no member may be reached through one.
    """
    paths = [PurePosixPath(each.name) for each in members]
    links = {path for each, path in zip(members, paths, strict=True) if each.issym()}
    files = {each.name for each in members if each.isreg()}
    if len({*paths}) < len(paths):
        return False
    for each, path in zip(members, paths, strict=True):
        if path.is_absolute() or ".." in path.parts or not links.isdisjoint(path.parents):
            return False
        if not (each.isdir() or each.issym() or each.name in files or (each.islnk() and each.linkname in files)):
            return False
    return True


# What the program consists of.


def sources_of(*launches: Launch | None) -> tuple[Path, ...]:
    """Return the files on which launches depend, each once."""
    return tuple(sorted({file for each in launches if each is not None for file in sources(each)}))


def sources(launch: Launch) -> list[Path]:
    """Return the files on which a program depends, in order.

    They are its code, the files that its arguments name (``conf.yaml``, ``--config=conf.yaml``), and those of its own
    invariants.  Files that its script makes are a part of the launch.
    """
    named = (each for each in _named(launch) if each not in made(launch))
    return sorted({*code(launch), *named, *(Path(each.rpartition("::")[0]) for each in launch.asks)})


@cache
def _made(before: str) -> frozenset[Path]:
    return frozenset(path for path, _ in surroundings.paths(before))


def made(launch: Launch) -> frozenset[Path]:
    """Return the paths outside the watched directory that a launch's script makes or removes before its ranks."""
    return _made(launch.before) if launch.before else frozenset()


def code(launch: Launch) -> list[Path]:
    """Return the script, or the module, and the modules beside it that it imports, also indirectly."""
    roots = [Path(launch.file).parent] if launch.script else [Path(launch.directory)]
    found: dict[Path, None] = {}
    todo = [Path(launch.file)] if launch.script else files_of_module(launch)
    while todo:
        file = todo.pop()
        if file not in found and file not in made(launch) and file.is_file():
            found[file] = None
            todo += [each for name, level in _imported(file) for each in _files_of(name, _bases(file, level) or roots)]
    return sorted(found)


def files_of_module(launch: Launch) -> list[Path]:
    """Return the files of a launch's module in its working directory, none for a module that is installed."""
    roots = [Path(launch.directory)]
    return [*_files_of(launch.module, roots), *_files_of(f"{launch.module}.__main__", roots)]


def _named(launch: Launch) -> Iterator[Path]:
    """Yield the files that arguments or the words of a script name, unless they are watched: these are known anyway."""
    for word in (*launch.arguments, *(launch.command if launch.in_script else ())):
        path = Path(os.path.normpath(os.path.join(launch.directory, word.rpartition("=")[2])))
        with suppress(OSError, ValueError):
            is_small = path.is_file() and path.stat().st_size <= _MOST_BYTES
            if is_small and not is_watched(launch, path):
                yield path


def is_watched(launch: Launch, path: Path) -> bool:
    """Return whether an absolute path is in the watched directory of a launch."""
    watched = Path(launch.watched)
    return path == watched or (watched in path.parents and path.relative_to(watched).parts[0] not in launch.kept)


def _bases(file: Path, level: int) -> list[Path]:
    """Return where a relative import of a file begins: ``level`` counts its dots."""
    return [file.parents[level - 1]] if 0 < level <= len(file.parents) else []


def _imported(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of the modules that a file imports, wherever in it, each with its number of leading dots."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, 0) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = (module, *(f"{module}.{each.name}".lstrip(".") for each in node.names))
            yield from ((each, node.level) for each in names)


def _files_of(name: str, roots: list[Path]) -> Iterator[Path]:
    """Yield the files of a module below some directories, its packages included."""
    parts = [each for each in name.split(".") if each]
    for root in roots:
        for count in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:count])
            yield from (each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file())
