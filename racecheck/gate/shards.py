"""A gate in shards: each makes some of the checks, and writes one file; `merged` joins the files.

Checks are dealt out by their estimated cost, which every shard computes for all of them, so that shards take about
equally long.  The files are data: merging runs no code from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from racecheck.explore import findings
from racecheck.explore.findings import Finding, Format, Versions
from racecheck.gate.cells import Broken, Cell
from racecheck.gate.effort import EFFORTS
from racecheck.gate.grouping import leading
from racecheck.gate.parts import Part
from racecheck.gate.tasks import Terms
from racecheck.invariants import name_of
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.report.results import shown_path
from racecheck.targets.suite import CHECKS

FORMAT = Format("racecheck-shard", 1, "a shard of a gate", "make it again with racecheck gate --shard")
_UNMADE = "no shard has this check"
_FILE = re.compile(r"[0-9a-f]{10}\.json")


@dataclass(frozen=True, slots=True)
class Checked:
    """The ``checks`` of a checkpointer, in order, and a digest (``source``) of the files that decide their results."""

    checks: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A finding, and the name of its file."""

    file: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Work:
    """The settings that all shards of a gate share: the checkpointers by name, and how cells are made."""

    checkpointers: Mapping[str, Checked]
    seed: str
    effort: str
    ranks: int | None
    collectives: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class Shard:
    """The result of a shard: its cells as they were first made, and those whose failure was then ``explained``.

    ``wrong`` are checkpointers that could not be asked, each with the reason; ``seconds`` is how long it took.
    """

    part: Part
    work: Work
    cells: tuple[Cell, ...] = ()
    explained: tuple[Cell, ...] = ()
    findings: tuple[Carried, ...] = ()
    wrong: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(slots=True)
class Merged:
    """The cells of all shards, in the order of one gate; ``wrong`` says which shards are not in it, and why."""

    terms: Terms
    cells: list[Cell] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


def file_of(this: Part) -> Path:
    """Return the file that a shard writes, in the current directory."""
    return Path(f"racecheck-shard-{this.number}-of-{this.count}.json")


def carried(cells: Iterable[Cell]) -> Iterator[Carried]:
    """Yield the findings of cells, without those whose files cannot be read."""
    for file in dict.fromkeys(broken.finding for cell in cells for broken in cell.broken if broken.finding):
        with suppress(UsageError):
            yield Carried(Path(file).name, findings.load(Path(file)))


def save(shard: Shard) -> Path:
    """Write a shard; returns the path.  Raises `UsageError`."""
    path = file_of(shard.part)
    return findings.write(FORMAT.encode(shard), path.parent, path.name)


def merged(files: Sequence[Path], directory: Path) -> Merged:
    """Return the result of one gate, and keep the shards' findings below a directory.

    A shard that is missing, given twice, damaged or of other work is named, and its checks are UNKNOWN.  Raises
    `UsageError` if no file is a shard, or a finding cannot be written.
    """
    wrong: list[str] = []
    shards: dict[int, Shard] = {}
    for file in files:
        if not file.exists():
            wrong.append(f"{file}: no such file")
            continue
        try:
            found = _checked(cast("Shard", FORMAT.load(file, Shard)))
        except UsageError as error:
            wrong.append(str(error))
            continue
        first = next(iter(shards.values()), found)
        if other := _differs(first, found):
            wrong.append(f"{file}: its {other} is not that of the shards before it: it is left out")
        elif found.part.number in shards:
            wrong.append(f"{file}: shard {found.part.number} is given twice: this one is left out")
        else:
            shards[found.part.number] = found
    if not shards:
        raise UsageError("; ".join(wrong) or "name the files that racecheck gate --shard has written")
    return _joined(shards, wrong, directory)


def _checked(shard: Shard) -> Shard:
    """Return a shard whose name fits its content; raises `UsageError`."""
    this, cells = shard.part, (*shard.cells, *shard.explained)
    known = {(name, check) for name, each in shard.work.checkpointers.items() for check in each.checks}
    strange = [each.target for each in cells if (each.checkpointer, each.check) not in known]
    unknown = [check for _, check in known if check not in CHECKS]
    if not 1 <= this.number <= this.count or shard.work.effort not in EFFORTS:
        raise UsageError(f"not {FORMAT.noun}: {FORMAT.hint}")
    if strange or unknown or not all(_FILE.fullmatch(each.file) for each in shard.findings):
        raise UsageError(f"damaged shard of a gate: {', '.join([*strange, *unknown]) or 'findings'}; {FORMAT.hint}")
    return shard


def _differs(one: Shard, other: Shard) -> str:
    """Return the difference between the work of two shards, "" for nothing."""
    if one.part.count != other.part.count:
        return f"number of shards ({other.part.count})"
    for name, said in (
        ("seed", "seed"),
        ("effort", "effort"),
        ("ranks", "number of ranks"),
        ("collectives", "kind of collectives"),
    ):
        if getattr(one.work, name) != getattr(other.work, name):
            return f"{said} ({getattr(other.work, name)})"
    if one.work.versions != other.work.versions:
        return f"machine or release ({other.work.versions})"
    return "" if one.work == other.work else "checkpointer, or a file that it uses,"


def _joined(shards: Mapping[int, Shard], wrong: Sequence[str], directory: Path) -> Merged:
    first = next(iter(shards.values()))
    work, count = first.work, first.part.count
    missing = [str(each) for each in range(1, count + 1) if each not in shards]
    named = (
        f"shard{'s' * (len(missing) > 1)} {', '.join(missing)} of {count} {'are' if len(missing) > 1 else 'is'} missing"
    )
    terms = Terms(work.ranks, work.seed, work.effort, findings=directory, collectives=work.collectives)
    done = Merged(terms, wrong=[*wrong, *([named] if missing else [])])
    paths = _kept([each for shard in shards.values() for each in shard.findings], directory)
    raw = {(each.checkpointer, each.check): each for shard in shards.values() for each in shard.cells}
    better = {(each.checkpointer, each.check): each for shard in shards.values() for each in shard.explained}
    for name, asked in work.checkpointers.items():
        cells = [raw[name, each] for each in asked.checks if (name, each) in raw]
        chosen = leading(cells)[: EFFORTS[work.effort].explained]
        found = {each.check: better.get((name, each.check), each) if each.check in chosen else each for each in cells}
        could_run = any(each.schedules for each in cells)  # else one cell says why not, and stands for all
        for check in asked.checks:
            if check in found:
                done.cells.append(_moved(found[check], paths))
            elif could_run:
                done.cells.append(_unmade(cells[0], check, named if missing else _UNMADE))
        if not cells and not missing and not any(shard.wrong for shard in shards.values()):
            done.wrong.append(f"{name}: {_UNMADE}")
    done.wrong += [each for shard in shards.values() for each in shard.wrong if each not in done.wrong]
    done.seconds = sum(each.seconds for each in shards.values())
    return done


def _unmade(like: Cell, check: str, why: str) -> Cell:
    """Return the cell of a check that no shard has made, of the checkpointer of another cell."""
    asked = tuple(name_of(each) for each in CHECKS[check].invariants)
    return Cell(
        like.checkpointer, check, CHECKS[check].storage, like.versions, Verdict.UNKNOWN, asked=asked, reasons=(why,)
    )


def _kept(every: Iterable[Carried], directory: Path) -> dict[str, str]:
    """Keep findings that are not there yet; returns the path of each, as it is shown, by its file's name."""
    paths = {}
    for each in every:
        path = findings.folder_of(each.finding.scenario, directory) / each.file
        if not path.exists():
            findings.save(each.finding, directory, path)
        paths[each.file] = shown_path(path)
    return paths


def _moved(cell: Cell, paths: Mapping[str, str]) -> Cell:
    def there(broken: Broken) -> Broken:
        return replace(broken, finding=paths.get(Path(broken.finding).name, "") if broken.finding else "")

    return replace(cell, broken=tuple(map(there, cell.broken)))
