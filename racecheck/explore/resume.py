"""A search that was cut short, on disk: where DPOR stood and the results of its runs, so that it can be continued.

Like a finding the file is versioned JSON, read strictly, and good for the world and the scenario that it was made with.
racecheck believes its claims about earlier runs, so use only a file from a source whose verdict you would accept.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from racecheck.explore import findings
from racecheck.explore.findings import Format, Reference
from racecheck.explore.recovery.runs import Done
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Coverage, Verdict, Violation, World
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.scheduling.claims import NOTHING_AGAINST, Claim
from racecheck.scheduling.strategies.dpor import DporProgress, Node

FORMAT = Format("racecheck-search", 4, "a search", "start a new one with racecheck run")

Touched = Mapping[str, Mode]


@dataclass(frozen=True, slots=True)
class Branch:
    """A `Node`, with its locations as text."""

    step: int
    options: Mapping[str, str]
    asleep: Mapping[str, Touched]
    chosen: str
    back: tuple[str, ...]
    done: Mapping[str, Touched]


@dataclass(frozen=True, slots=True)
class Known:
    """A violation that was found before the cut, and the file of its finding ("" if none was kept)."""

    violation: Violation
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """The results of the runs before the cut.  A search that is continued starts from them and can only lower them.

    ``claim`` is what the runs let a claim be at most, apart from DPOR's own.  ``begun`` counts the runs that have
    begun, ``fired`` says how often each fault has happened, and ``seen`` has a hash for each distinct run.
    """

    verdict: Verdict = Verdict.PASS
    violations: tuple[Known, ...] = ()
    reasons: tuple[str, ...] = ()
    claim: Claim = NOTHING_AGAINST
    coverage: Coverage = field(default_factory=Coverage)
    begun: int = 0
    runs: int = 0
    seen: tuple[str, ...] = ()
    fired: tuple[int, ...] = ()
    crashes: Done = field(default_factory=Done)


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """The search that was made, and how far it came; ``names`` are patterns of names that differ from run to run."""

    scenario: Reference
    world: World
    seed: str
    names: tuple[str, ...]
    traces: int
    redundant: int
    steps: int
    nodes: tuple[Branch, ...]
    known: tuple[str, ...]
    bounds: tuple[str, ...]
    doubts: tuple[str, ...]
    timed: tuple[str, ...]
    cheap: bool = False
    shared: bool = False
    first: Claim | None = None
    past: Past = field(default_factory=Past)

    @property
    def progress(self) -> DporProgress:
        return DporProgress(
            self.traces, self.redundant, self.steps, [_node(each) for each in self.nodes], [*self.known],
            {*self.bounds}, {*self.doubts}, {*self.timed}, self.cheap, self.shared, self.first,
        )  # fmt: skip


def cut(
    scenario: Reference,
    world: World,
    seed: str,
    names: tuple[str, ...],
    progress: DporProgress,
    past: Past | None = None,
) -> SavedSearch:
    """Return the search as it stands."""
    return SavedSearch(
        scenario, world, seed, names, progress.traces, progress.redundant, progress.steps,
        tuple(_branch(each) for each in progress.nodes), tuple(progress.known),
        tuple(sorted(progress.bounds)), tuple(sorted(progress.doubts)), tuple(sorted(progress.timed)),
        progress.cheap, progress.shared, progress.first, past or Past(),
    )  # fmt: skip


def save(search: SavedSearch, directory: Path) -> Path:
    """Write it to ``<directory>/<scenario>/search.json``; returns the path.  Raises `UsageError`."""
    return findings.write(FORMAT.encode(search), findings.folder_of(search.scenario, directory), "search.json")


def load(path: Path, scenario: Reference, world: World, seed: str) -> SavedSearch:
    """Read one; raises `UsageError` if it is none, or one of another scenario, world or seed."""
    found: SavedSearch = FORMAT.load(path, SavedSearch)
    for what, theirs, ours in (
        ("of another scenario", found.scenario.target, scenario.target),
        ("of another version of the scenario's file", found.scenario.source, scenario.source),
        ("in another world", replace(found.world, parts=world.parts), world),
        ("with another seed", found.seed, seed),
    ):
        if theirs != ours:
            raise UsageError(f"{path} is a search {what}: drop --resume, or use the same scenario, world and seed")
    if not found.progress.left:  # no search is kept that has nothing left to try
        raise UsageError(f"{path}: damaged search: nothing is left to try in it; {FORMAT.hint}")
    return found


def _branch(node: Node) -> Branch:
    return Branch(
        node.step, node.options, {each: _text(touched) for each, touched in node.asleep.items()}, node.chosen,
        tuple(node.back), {each: _text(touched) for each, touched in node.done.items()},
    )  # fmt: skip


def _node(branch: Branch) -> Node:
    return Node(
        branch.step, dict(branch.options), {each: _footprint(text) for each, text in branch.asleep.items()},
        branch.chosen, [*branch.back], {each: _footprint(text) for each, text in branch.done.items()},
    )  # fmt: skip


def _text(footprint: Footprint) -> Touched:
    return {json.dumps([where.kind, where.key]): mode for where, mode in footprint.items()}


def _footprint(touched: Touched) -> Footprint:
    try:
        pairs = [(json.loads(text), mode) for text, mode in touched.items()]
        return {Location(str(kind), _hashable(key)): mode for (kind, key), mode in pairs}
    except (ValueError, TypeError):
        raise UsageError(f"damaged search: its footprints cannot be read; {FORMAT.hint}") from None


def _hashable(value: Any) -> Hashable | Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
