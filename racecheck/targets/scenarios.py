"""Scenarios: functions that every rank runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, overload

from racecheck import faults
from racecheck.invariants import DEFAULT
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Fault, Invariant, Size, Verdict, World

BACKENDS = ("gloo", "nccl", "auto")
COLLECTIVES = ("gloo", "weakest")
_MOST_SKEW = 10 * 365 * 86400.0
_LARGEST_SIZE = 1_000_000
_MOST_RANKS = 1024
LONGEST = 1_000_000
"""The largest time limit in seconds."""

Tell = Callable[[Literal["saved", "loaded", "acked", "trained"], Any, int, "str | Path"], None]
"""Takes the deed ("saved"), the state, its step and the checkpoint's path."""


@dataclass(frozen=True, slots=True)
class Rank:
    """The argument of a scenario's function: its rank, its node, the watched directory, the sizes.

    ``path`` is the watched directory: the same on every rank, and empty except for the files of the setup.
    ``sizes`` are the world's sizes by name.
    """

    rank: int
    world_size: int
    path: Path
    node: int = 0
    local_rank: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)
    tell: Tell = field(default=lambda *_: None, repr=False, compare=False)

    def saved(self, state: Any, *, step: int = 0, at: str | Path = "") -> None:
        """Declare that the checkpoint ``at`` must hold ``state`` (tensors in dicts and lists) for ``step``.

        The digest of a DTensor is that of the whole tensor, which takes a collective: all ranks must call this.
        """
        self.tell("saved", state, step, at)

    def loaded(self, state: Any, *, step: int = -1, at: str | Path = "") -> None:
        """Declare that ``state`` was loaded, of ``step``; -1 means any step that was saved."""
        self.tell("loaded", state, step, at)

    def acked(self, *, step: int, at: str | Path = "") -> None:
        """Declare that the save of ``step`` has returned here (for an asynchronous save: that its future is done).

        From now on the job counts on that step: once all ranks have declared it, it must survive every crash.  So every
        rank calls this, including one that only waited for the others.
        """
        self.tell("acked", {}, step, at)

    def trained(self, state: Any, *, step: int) -> None:
        """Declare that ``state`` is what training has come to after ``step`` steps, in the run and in the recovery.

        `racecheck.resume_equals` compares the recovery's with those of a run that nobody interrupted: tensors, arrays
        and bytes bit for bit, numbers and texts; another entry makes the verdict UNKNOWN.  A recovery declares the
        state that it loads, too, with the steps that it has behind it.
        """
        self.tell("trained", state, step, "")


class Scenario:
    """A function that every rank runs, with its setup, world and invariants.

    Made by `scenario`; calling it calls the function.
    """

    def __init__(
        self,
        run: Callable[[Rank], Any],
        *,
        world: World,
        invariants: Sequence[Invariant],
        report: str,
        expected: Verdict,
        breaks: str,
    ) -> None:
        self.run = run
        self.world = world
        self.invariants = tuple(invariants)
        self.report = report
        self.expected = expected
        self.breaks = breaks
        self.before: Callable[[Path], Any] | None = None
        self._recovery: Callable[[Rank], Any] | None = None
        self.recovering: dict[str, int | None] = {}
        self.name: str = run.__name__
        self.module: str = run.__module__
        self.__doc__ = run.__doc__

    @functools.cached_property
    def file(self) -> Path:
        """The file that it is defined in."""
        return Path(self.run.__code__.co_filename).resolve()

    def __call__(self, rank: Rank) -> Any:
        return self.run(rank)

    def setup(self, function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        """Decorate ``function(path)``, which fills the watched directory before the ranks start.

        It runs in a process of its own and is not controlled.
        """
        self.before = function
        return function

    def recover(
        self, function: Callable[[Rank], Any] | None = None, *, ranks: int | None = None, nodes: int | None = None
    ) -> Any:
        """Decorate a function that every rank of a fresh world runs after the run, on the disk that the run left.

        That world is as large as the run's, or has ``ranks`` ranks on ``nodes`` nodes.
        """

        def decorate(function: Callable[[Rank], Any]) -> Callable[[Rank], Any]:
            self._recovery, self.recovering = function, {"ranks": ranks, "nodes": nodes}
            return function

        return decorate if function is None else decorate(function)

    @property
    def has_recovery(self) -> bool:
        """Return whether something runs after it."""
        return self._recovery is not None

    def resume(self, rank: Rank) -> Any:
        """Call the recovery."""
        assert self._recovery is not None
        return self._recovery(rank)

    def fresh_world(self, world: World) -> World:
        """Return the world of the recovery after a run in that one.

        It has no faults, and is as large unless the recovery says how large; it has as many nodes as share the ranks
        evenly.
        """
        changes = dict(self.recovering)
        if changes.get("ranks") and not changes.get("nodes"):
            changes["nodes"] = math.gcd(changes["ranks"] or 1, world.nodes)
        return make_world(replace(world, faults=()), **changes)

    def fitted(self, world: World) -> World:
        """Return a world with this scenario's sizes, if it was made for another scenario, or none.

        Sizes that it already has keep their values.
        """
        known = {each.name: each for each in world.sizes}
        return replace(world, sizes=tuple(known.get(each.name, each) for each in self.world.sizes))

    @property
    def sources(self) -> tuple[Path, ...]:
        """Return the files on which it depends."""
        return (self.file,)

    @property
    def reference(self) -> str:
        """Return the target with the file's full path."""
        return f"{self.file}::{self.name}"

    @property
    def target(self) -> str:
        """How the command line names this scenario: ``path/to/file.py::name``."""
        try:
            shown = self.file.relative_to(Path.cwd())
        except (ValueError, FileNotFoundError):
            shown = self.file
        return f"{shown}::{self.name}"


@overload
def scenario(run: Callable[[Rank], Any], /) -> Scenario: ...


@overload
def scenario(
    *,
    ranks: int = 2,
    invariants: Sequence[Invariant] = DEFAULT,
    report: str = "",
    expected: Verdict = Verdict.PASS,
    breaks: str = "",
    sizes: Mapping[str, int] | None = None,
    **world: Any,
) -> Callable[[Callable[[Rank], Any]], Scenario]: ...


def scenario(
    run: Callable[[Rank], Any] | None = None,
    /,
    *,
    ranks: int = 2,
    invariants: Sequence[Invariant] = DEFAULT,
    report: str = "",
    expected: Verdict = Verdict.PASS,
    breaks: str = "",
    sizes: Mapping[str, int] | None = None,
    **world: Any,
) -> Scenario | Callable[[Callable[[Rank], Any]], Scenario]:
    """Make a function of one `Rank` a scenario: ``@scenario`` or ``@scenario(ranks=4)``.

    ``ranks`` and the other fields of `World` are its default world.  ``sizes`` are numbers that the function asks for
    as ``rank.sizes["steps"]``: a search makes a failure small by making them smaller, and a world may have others.
    ``report`` names the published
    report that it stands for, ``expected`` the verdict that a search must reach, and ``breaks`` the
    invariant that must then be broken.  The function's result must be JSON data.
    """

    def decorate(run: Callable[[Rank], Any]) -> Scenario:
        return Scenario(
            run,
            world=make_world(World(sizes=_sizes({} if sizes is None else sizes)), ranks=ranks, **world),
            invariants=invariants,
            report=report,
            expected=expected,
            breaks=breaks,
        )

    if run is None or callable(run):
        return decorate if run is None else decorate(run)
    raise UsageError(f"scenario takes a function, not {run!r}: write @scenario(ranks={run!r})")


def make_world(base: World, **changes: Any) -> World:
    """Return ``base`` with some fields changed; raises `UsageError` for a value that no world can have.

    ``faults`` may be given as text, and ``sizes`` by name: those that are not there keep their value.
    """
    if changes.get("faults") is not None:
        given = changes["faults"]
        every = [given] if isinstance(given, (str, Fault)) else given
        changes["faults"] = tuple(each if isinstance(each, Fault) else faults.parse(str(each)) for each in every)
    if changes.get("sizes") is not None:
        changes["sizes"] = _resized(base.sizes, _sizes(changes["sizes"]))
    _check_names(changes)
    world = replace(base, **{name: value for name, value in changes.items() if value is not None})
    if world.backend not in BACKENDS:
        raise UsageError(f"unknown backend {world.backend!r}; known: {', '.join(BACKENDS)}")
    if world.collectives not in COLLECTIVES:
        raise UsageError(f"unknown collectives {world.collectives!r}; known: {', '.join(COLLECTIVES)}")
    if not 1 <= world.ranks <= _MOST_RANKS:
        raise UsageError(f"ranks must be from 1 to {_MOST_RANKS}, not {world.ranks}")
    _sizes({each.name: each.value for each in world.sizes})
    if world.nodes < 1 or world.ranks % world.nodes:
        raise UsageError(f"{world.ranks} ranks do not divide evenly among {world.nodes} nodes")
    faults.check(world)
    if "skew" not in changes:
        world = replace(world, skew=world.skew[: world.ranks])
    _check_skew(world)
    if not 0 < world.timeout <= LONGEST:
        raise UsageError(f"timeout must be more than 0 and at most {LONGEST} seconds, not {world.timeout}")
    if world.max_ops < 1:
        raise UsageError(f"max_ops must be at least 1, not {world.max_ops}")
    return world


def checked_seed(seed: int | str) -> str:
    """Return a seed as text; raises `UsageError` for text that is no text: bytes that are not UTF-8."""
    try:
        return str(seed).encode().decode()
    except UnicodeEncodeError:
        raise UsageError(f"the seed {seed!r} is not UTF-8: use a number or a word") from None


def _check_names(changes: Iterable[str]) -> None:
    known = [each.name for each in fields(World)]
    for name in changes:
        if name not in known:
            raise UsageError(f"World has no field {name!r}; fields: {', '.join(known)}")


def _check_skew(world: World) -> None:
    if len(world.skew) > world.ranks:
        raise UsageError(f"skew names rank {len(world.skew) - 1}, but the world has {world.ranks} ranks")
    if not all(math.isfinite(each) and abs(each) <= _MOST_SKEW for each in world.skew):
        raise UsageError(f"a skew must be at most {_MOST_SKEW:.0f} seconds, not {world.skew}")


def _sizes(given: Any) -> tuple[Size, ...]:
    """Return sizes by name; raises `UsageError` for an invalid size."""
    if not isinstance(given, Mapping):
        raise UsageError(f"sizes must be a mapping, such as {{'steps': 3}}, not {given!r}")
    for name, value in given.items():
        is_name = isinstance(name, str) and name.isidentifier()
        if not is_name or type(value) is not int or not 1 <= value <= _LARGEST_SIZE:
            raise UsageError(f"a size must be a name and a number from 1 to {_LARGEST_SIZE}, not {name}={value!r}")
    return tuple(Size(*each) for each in given.items())


def _resized(known: tuple[Size, ...], changed: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return changed sizes; raises `UsageError` for a size that the scenario does not ask for."""
    values, new = ({each.name: each.value for each in sizes} for sizes in (known, changed))
    for name in new.keys() - values.keys():
        raise UsageError(f"unknown size {name!r}; the scenario has: {', '.join(values) or 'none'}")
    return tuple(Size(*each) for each in (values | new).items())
