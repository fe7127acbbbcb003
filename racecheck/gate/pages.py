"""The result of a gate for people, as blocks that `layouts` puts on a terminal, into Markdown or into HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from racecheck.gate import baseline, matrix
from racecheck.gate.cells import TOO_LITTLE, Cell
from racecheck.gate.matrix import LEGEND, MARKS, PART, Entry, Kind, Table
from racecheck.gate.result import Result
from racecheck.model.nouns import Verdict
from racecheck.model.package import VERSION
from racecheck.report.words import count, replay_command
from racecheck.targets.suite import CHECKS, Check, applicable, controls, reason_against

_KINDS: dict[Verdict, Kind] = {Verdict.PASS: "budget", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "fail"}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of what follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; ``code`` is a command that ends it, and ``level`` is how far it is indented.

    ``finding`` is the file of the finding that it is about.
    """

    text: str
    code: str = ""
    level: int = 0
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a grid; ``about`` is what to say of it where there is room, ``finding`` the file of its finding."""

    text: str
    kind: Kind | None = None
    about: str = ""
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table."""

    header: tuple[str, ...]
    rows: tuple[tuple[Item, ...], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown as they are, where there is room; ``is_first`` is the one to show if there is room for one."""

    text: str
    is_first: bool = False


Block = Heading | Line | Grid | Listing


def blocks(result: Result) -> Iterator[Block]:
    """Return the verdict; the checks (of one checkpointer) and the matrix; what was found, and how to repeat it."""
    yield Heading(f"{result.verdict.name}  {_headline(result)}")
    if result.interrupted:
        yield Line("interrupted: the same command continues from here (--fresh starts over)")
    for each in result.wrong:
        yield Line(f"UNKNOWN  {each}")
    if not any(each.schedules for each in result.cells):
        yield from (Line(f"{each.row}, {each.check}: {'; '.join(each.reasons)}") for each in result.cells)
        return
    tables = [*matrix.tables(result.cells)]
    if len(result.rows) == 1:
        yield _checks(result.cells)
        yield from _single(tables)
    else:
        yield from _several(tables)
    part = [each for each in result.cells if each.verdict is not Verdict.UNKNOWN and each.is_held and each.is_part]
    used = {each.kind for table in tables for _, row in table.rows for each in row}
    yield from _legend(result, used, is_part=bool(part))
    if part and len(result.rows) > 1:
        yield from _in_part(part)
    yield from _found(result)
    yield from _doubted(result)


def _single(tables: Sequence[Table]) -> Iterator[Block]:
    """Return invariants by storage."""
    found = {
        (name, table.storage): each
        for table in tables
        for name, each in zip(table.columns, table.rows[0][1], strict=True)
    }
    rows = (
        (Item(name), *(_item(found.get((name, table.storage), Entry("not asked"))) for table in tables))
        for name in dict.fromkeys(name for name, _ in found)
    )
    yield Heading("By invariant and storage")
    yield Grid(("invariant", *(table.storage for table in tables)), tuple(rows))


def overview(cells: Sequence[Cell]) -> Iterator[Block]:
    """Return the matrix alone."""
    yield from _several([*matrix.tables(cells)])


def _several(tables: Sequence[Table]) -> Iterator[Block]:
    """Return checkpointers by invariants, for each storage."""
    for table in tables:
        yield Heading(f"Storage: {table.storage}")
        rows = ((Item(row), *map(_item, entries)) for row, entries in table.rows)
        yield Grid(("checkpointer", *table.columns), tuple(rows))


def _item(entry: Entry) -> Item:
    return Item(entry.text, entry.kind, entry.about, entry.finding)


def _headline(result: Result) -> str:
    comparison, seconds = result.comparison, f"{result.seconds:.0f} s, seed {result.terms.seed}"
    parts = [f"{count(len(result.rows), 'checkpointer')}, {count(len(result.cells), 'check')}"]
    if len(result.rows) == 1:
        parts = [f"{result.rows[0]}: {count(len(result.cells), 'check')}"]
    failed = sum(each.verdict is Verdict.FAIL and not each.against for each in result.cells)
    if failed:
        parts[-1] += f", {failed} failed"
    for what, lines in (("new", comparison.new), ("known", comparison.known), ("fixed", comparison.fixed)):
        if lines:
            parts.append(f"{count(len(lines), f'{what} finding')}")
    return "; ".join([*parts, *["interrupted"] * result.interrupted, seconds])


def _checks(cells: Sequence[Cell]) -> Grid:
    def row(cell: Cell) -> tuple[Item, ...]:
        kind: Kind = "not held" if cell.against else "exhausted" if cell.exhaustive else _KINDS[cell.verdict]
        kind = "fail" if cell.verdict is Verdict.FAIL and not cell.against else kind
        broken = cell.violated or cell.why
        part = PART * (kind == "budget" and cell.is_part)
        finding = next(filter(None, (each.finding for each in cell.broken)), "")
        return (
            Item(cell.check), Item(MARKS[kind] + part, kind, cell.against, finding), Item(cell.extent),
            Item(broken or CHECKS[cell.check].about),
        )  # fmt: skip

    return Grid(("check", "verdict", "tried", ""), tuple(map(row, cells)))


def _in_part(part: Sequence[Cell]) -> Iterator[Block]:
    """Explain the marks; for a single checkpointer the table of the checks does that."""
    yield Heading("Partly tried")
    for row in dict.fromkeys(each.row for each in part):
        yield Line(f"{row}: {'; '.join(f'{each.check}: {each.extent}' for each in part if each.row == row)}")


def _legend(result: Result, used: set[Kind], *, is_part: bool) -> Iterator[Block]:
    yield Heading("How to read it")
    for kind, text in LEGEND.items():
        if kind in used:
            yield Line(f"{MARKS[kind]}{' N' * (kind == 'budget')}: {text}")
    if is_part:
        yield Line(f"{PART}: some faults, stale reads or crash states were not tried")
    versions = {f"{name} {each}" for cell in result.cells for name, each in cell.versions.items()}
    yield Line(f"Versions: {', '.join([f'racecheck {VERSION}', *sorted(versions)])}")


def _found(result: Result) -> Iterator[Block]:
    """Return what is broken, with what was expected and seen; first what counts."""
    failing = sorted((each for each in result.cells if each.broken), key=lambda each: not each.is_held)
    if failing:
        yield Heading("Findings")
    for number, cell in enumerate(failing):
        yield Line(f"{cell.row}, {cell.check}: {CHECKS[cell.check].about}")
        if cell.against:
            yield Line(f"not promised: {cell.against}", level=1)
        yield from _broken(cell, result)
        for why in cell.reasons:
            yield Line(why, level=1)
        yield Line("run again: ", f"racecheck run '{cell.target}'{_options(result)}", level=1)
        if cell.text:
            yield Listing(cell.text, is_first=number == 0)
    if any(each.is_held and _is_stood(CHECKS[each.check]) for each in failing):
        yield Line("a checkpointer that passes this check, to copy: ", f"python -m pydoc {controls.__name__}")
    for gone in result.comparison.fixed:
        yield Line(baseline.fixed(gone))


def _is_stood(check: Check) -> bool:
    """Return whether the checkpointer to copy is asked, and passes."""
    return check.name in applicable(controls.Recipe) and not reason_against(controls.Recipe, check)


def _broken(cell: Cell, result: Result) -> Iterator[Block]:
    """Return each invariant that does not hold, with the message and the replay of each defect."""
    last = ""
    for each in cell.broken:
        known = "known, " if baseline.line(cell, each) in result.comparison.known else ""
        what = f"{known}{each.invariant}: {matrix.expected(each.invariant)}"
        if what != last:
            yield Line(what, level=1)
        last = what
        place = f" [{each.defect}]" if each.defect else ""
        yield Line(f"seen: {each.message}{place}", level=2)
        if each.finding:
            yield Line("replay: ", replay_command(each.finding, cell.target), level=2, finding=each.finding)
        elif each.unkept:
            yield Line(f"no finding was kept: {each.unkept}", level=2)


def _doubted(result: Result) -> Iterator[Block]:
    doubted = [each for each in result.cells if each.verdict is Verdict.UNKNOWN]
    if doubted:
        yield Heading("Not judged")
    for cell in doubted:
        if not cell.is_short:
            yield Line(f"{cell.row}, {cell.check}: {cell.why}")
    for row in result.rows:
        short = [each.check for each in doubted if each.row == row and each.is_short]
        if short:
            yield Line(f"{row}, {', '.join(short)}: {TOO_LITTLE}; raise --seconds or name fewer checks")


def _options(result: Result) -> str:
    weak = f" --collectives {result.terms.collectives}" if result.terms.collectives != "gloo" else ""
    ranks = f" --ranks {result.terms.ranks}" if result.terms.ranks is not None else ""
    seed = f" --seed {result.terms.seed}" if result.terms.seed != "0" else ""
    return ranks + weak + seed
