"""The result of a gate for people, as blocks that `layouts` puts on a terminal, into Markdown or into HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from racecheck.gate import baseline, matrix
from racecheck.gate.cells import Cell
from racecheck.gate.commands import faults_of
from racecheck.gate.grouping import Defect, grouped, headline
from racecheck.gate.matrix import LEGEND, MARKS, PART, MarkKind, MatrixEntry, Table
from racecheck.gate.plan import KNOWN
from racecheck.gate.result import GateResult
from racecheck.model.nouns import Verdict
from racecheck.model.package import VERSION
from racecheck.report import fault_table
from racecheck.report.words import count, duration, replay_command
from racecheck.targets.suite import CHECKS, Check, applicable, controls, reason_against

_LONGEST = 240
"""Characters of a message; exceptions of torch have more than a thousand."""
_BEGINNING = 40
"""Characters by which a message is found in a sentence that ends with it."""
_KINDS: dict[Verdict, MarkKind] = {Verdict.PASS: "budget", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "fail"}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of the blocks below it."""

    text: str


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of text; ``code`` is a command that ends it, and ``level`` is how far it is indented.

    ``finding`` is the file of the finding that it is about.
    """

    text: str
    code: str = ""
    level: int = 0
    finding: str = ""


@dataclass(frozen=True, slots=True)
class ListItem:
    """A column of a grid; ``about`` is a remark if there is room, ``finding`` the file of its finding."""

    text: str
    kind: MarkKind | None = None
    about: str = ""
    finding: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; on a terminal, only an ``is_first`` one is shown."""

    header: tuple[str, ...]
    rows: tuple[tuple[ListItem, ...], ...]
    title: str = ""
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Card:
    """A defect: its effect, the lines about it, and the run that shows it ("" if there is none)."""

    title: str
    lines: tuple[PageLine, ...]
    listing: str = ""
    counts: bool = True


PageBlock = Heading | PageLine | Grid | Card


def blocks(result: GateResult, *, full: bool = False) -> Iterator[PageBlock]:
    """Return the verdict, the defects with their replays, the checks (of one checkpointer), the matrix and its doubts.

    ``full``: with the whole text of each exception.
    """
    found = grouped(result.cells)
    yield Heading(f"{result.verdict.name}  {_headline(result)}")
    if said := headline(found):
        yield PageLine(said)
    if result.interrupted:
        yield PageLine("interrupted: the same command continues from here (--fresh starts over)")
    for each in result.wrong:
        yield PageLine(f"UNKNOWN  {each}")
    if not any(each.schedules for each in result.cells):
        yield from (PageLine(f"{each.row}, {each.check}: {'; '.join(each.reasons)}") for each in result.cells)
        return
    yield from _found(result, found, full=full)
    tables = [*matrix.tables(result.cells)]
    if len(result.rows) == 1:
        yield Heading("Checks")
        yield _checks(result.cells)
        yield from _single(tables)
    else:
        yield from _several(tables)
    part = [each for each in result.cells if each.verdict is not Verdict.UNKNOWN and each.is_held and each.is_part]
    used = {each.kind for table in tables for _, row in table.rows for each in row}
    yield from _legend(result, used, is_part=bool(part))
    if part and len(result.rows) > 1:
        yield from _in_part(part)
    yield from _faults(result.cells)
    if result.launch:
        yield from _conditions(result.cells)
    yield from _doubted(result)


def _single(tables: Sequence[Table]) -> Iterator[PageBlock]:
    """Return invariants by storage."""
    found = {
        (name, table.storage): each
        for table in tables
        for name, each in zip(table.columns, table.rows[0][1], strict=True)
    }
    rows = (
        (ListItem(name), *(_item(found.get((name, table.storage), MatrixEntry("not asked"))) for table in tables))
        for name in dict.fromkeys(name for name, _ in found)
    )
    yield Heading("By invariant and storage")
    yield Grid(("invariant", *(table.storage for table in tables)), tuple(rows))


def overview(cells: Sequence[Cell]) -> Iterator[PageBlock]:
    """Return the matrix alone."""
    yield from _several([*matrix.tables(cells)])


def _several(tables: Sequence[Table]) -> Iterator[PageBlock]:
    """Return checkpointers by invariants, for each storage."""
    for table in tables:
        yield Heading(f"Storage: {table.storage}")
        rows = ((ListItem(row), *map(_item, entries)) for row, entries in table.rows)
        yield Grid(("checkpointer", *table.columns), tuple(rows))


def _item(entry: MatrixEntry) -> ListItem:
    return ListItem(entry.text, entry.kind, entry.about, entry.finding)


def _headline(result: GateResult) -> str:
    comparison, seconds = result.comparison, f"{result.seconds:.0f} s, seed {result.terms.seed}"
    checks = f"{result.terms.effort}: {count(len(result.cells), 'check')}"
    parts = [f"{result.rows[0] if len(result.rows) == 1 else count(len(result.rows), 'checkpointer')}, {checks}"]
    failed = sum(each.verdict is Verdict.FAIL and not each.against for each in result.cells)
    if failed:
        parts[-1] += f", {failed} failed"
    for what, lines in (("new", comparison.new), ("known", comparison.known), ("fixed", comparison.fixed)):
        if lines:
            parts.append(f"{count(len(lines), f'{what} finding')}")
    return "; ".join([*parts, *["interrupted"] * result.interrupted, seconds])


def _checks(cells: Sequence[Cell]) -> Grid:
    def row(cell: Cell) -> tuple[ListItem, ...]:
        kind: MarkKind = "not held" if cell.against else "exhausted" if cell.exhaustive else _KINDS[cell.verdict]
        kind = "fail" if cell.verdict is Verdict.FAIL and not cell.against else kind
        broken = cell.violated or cell.why
        part = PART * (kind == "budget" and cell.is_part)
        finding = next(filter(None, (each.finding for each in cell.broken)), "")
        return (
            ListItem(cell.check), ListItem(MARKS[kind] + part, kind, cell.against, finding), ListItem(cell.extent),
            ListItem(broken or KNOWN[cell.check].about),
        )  # fmt: skip

    return Grid(("check", "verdict", "tried", ""), tuple(map(row, cells)))


def _in_part(part: Sequence[Cell]) -> Iterator[PageBlock]:
    """Explain the marks; for a single checkpointer the table of the checks does that."""
    yield Heading("Partly tried")
    for row in dict.fromkeys(each.row for each in part):
        yield PageLine(f"{row}: {'; '.join(f'{each.check}: {each.extent}' for each in part if each.row == row)}")


def _legend(result: GateResult, used: set[MarkKind], *, is_part: bool) -> Iterator[PageBlock]:
    yield Heading("How to read it")
    for kind, text in LEGEND.items():
        if kind in used:
            yield PageLine(f"{MARKS[kind]}{' N' * (kind == 'budget')}: {text}")
    if is_part:
        yield PageLine(f"{PART}: some faults, stale reads or crash states were not tried")
    versions = {f"{name} {each}" for cell in result.cells for name, each in cell.versions.items()}
    yield PageLine(f"Versions: {', '.join([f'racecheck {VERSION}', *sorted(versions)])}")


def _found(result: GateResult, found: Sequence[Defect], *, full: bool) -> Iterator[PageBlock]:
    """Return an entry for each defect, in the order of `racecheck.gate.grouping`."""
    if found:
        yield Heading("Defects")
    for number, defect in enumerate(found, 1):
        yield _card(defect, number, result, full=full)
    shown = [each for defect in found if defect.is_held for each in defect.checks]
    if any(_is_stood(CHECKS[each]) for each in shown if each in CHECKS):
        yield PageLine("a checkpointer that passes this check, to copy: ", f"python -m pydoc {controls.__name__}")
    for gone in result.comparison.fixed:
        yield PageLine(baseline.fixed(gone))


def _is_stood(check: Check) -> bool:
    """Return whether the checkpointer to copy is asked, and passes."""
    return check.name in applicable(controls.Recipe) and not reason_against(controls.Recipe, check)


def _card(defect: Defect, number: int, result: GateResult, *, full: bool) -> Card:
    cell, broken = defect.lead
    of = f"{cell.row}: " if len(result.rows) > 1 else ""
    known = all(baseline.line(*each) in result.comparison.known for each in defect.shown)
    place = f", in {broken.place}" if broken.place else ""
    title = f"{number}. {'known: ' * known}{of}{defect.effect}{place}"
    return Card(title, tuple(_about(defect, result, full=full)), defect.text, counts=defect.is_held and not known)


def _about(defect: Defect, result: GateResult, *, full: bool) -> Iterator[PageLine]:
    cell, broken = defect.lead
    if cell.against:
        yield PageLine(f"not promised: {cell.against}", level=1)
    yield PageLine(f"expected: {broken.invariant}: {matrix.expected(broken.invariant)}", level=1)
    yield PageLine(f"seen: {_shown(broken.message, full=full)}", level=1)
    happened = broken.sentence.partition(broken.message[:_BEGINNING])[0].removesuffix(": ")
    if happened:
        yield PageLine(f"run: {_shown(happened, full=full)}", level=1)
    yield PageLine(f"shown by: {', '.join(_by_check(defect, result.comparison.known))}", level=1)
    if cell.repair:
        yield PageLine(f"repair that holds in all crash states that were tried: {cell.repair}", level=1)
    if broken.finding:
        yield PageLine("replay: ", replay_command(broken.finding, cell.target), level=1, finding=broken.finding)
    elif broken.unkept:
        yield PageLine(f"no finding was kept: {broken.unkept}", level=1)
    yield PageLine("run again: ", _again(cell, result), level=1)


def _again(cell: Cell, result: GateResult) -> str:
    """Return the command that makes a check again."""
    if not result.launch:
        return f"racecheck run '{cell.target}'{_options(result)}"
    return " ".join(["racecheck run", *faults_of(cell.check), result.launch])


def _by_check(defect: Defect, known: Collection[str]) -> Iterator[str]:
    """Yield the checks that show a defect, each with how much of it was tried and the invariants that do not hold."""
    for name in defect.checks:
        cell = next(each for each, _ in defect.shown if each.check == name)
        names = dict.fromkeys(
            f"{broken.invariant}{', known' * (baseline.line(each, broken) in known)}"
            for each, broken in defect.shown
            if each.check == name
        )
        harmful = sum(bool(row[-1]) for row in cell.faults)
        of = f"; {harmful} of {count(len(cell.faults), 'fault')}" if cell.faults else ""
        yield f"{name} ({'; '.join(names)}{of})"


def _shown(text: str, *, full: bool) -> str:
    """Return a text in one line, cut if it is longer than most people read."""
    line = " ".join(text.split())
    return line if full or len(line) <= _LONGEST else f"{line[:_LONGEST]}... (--full shows all)"


def _conditions(cells: Sequence[Cell]) -> Iterator[PageBlock]:
    """Return what the passes leave open, each with the checks that do so."""
    passed = [each for each in cells if each.verdict is Verdict.PASS]
    found: dict[str, list[str]] = {}
    for cell in passed:
        for each in cell.claim.conditions:
            found.setdefault(each, []).append(cell.check)
    if found:
        yield Heading("The passes leave open")
    for condition, checks in found.items():
        yield PageLine(condition if len(checks) == len(passed) else f"{condition} ({', '.join(checks)})")


def _faults(cells: Sequence[Cell]) -> Iterator[PageBlock]:
    """Return, for each check that tried one fault after the other and found something, the effect of each."""
    is_first = True
    for cell in cells:
        if any(row[-1] for row in cell.faults):
            rows = ((*map(ListItem, row[:-1]), _breaks(row[-1])) for row in cell.faults)
            yield Grid(fault_table.HEADER, tuple(rows), f"{cell.check}: what each fault does", is_first=is_first)
            is_first = False


def _breaks(names: str) -> ListItem:
    return ListItem(names, "fail" if names and names != "?" else "unknown" if names else "budget")


def _doubted(result: GateResult) -> Iterator[PageBlock]:
    doubted = [each for each in result.cells if each.verdict is Verdict.UNKNOWN]
    if doubted:
        yield Heading("Not judged")
    for cell in doubted:
        if not cell.is_cut:
            yield PageLine(f"{cell.row}, {cell.check}: {cell.why}")
    for row in result.rows:
        cut = [each for each in doubted if each.row == row and each.is_cut]
        if cut:
            names, more = ", ".join(each.check for each in cut), sum(each.needs for each in cut)
            yield PageLine(
                f"{row}, {names}: {cut[0].reasons[0]}; about {duration(more)} more would settle all of these"
            )


def _options(result: GateResult) -> str:
    weak = f" --collectives {result.terms.collectives}" if result.terms.collectives != "gloo" else ""
    ranks = f" --ranks {result.terms.ranks}" if result.terms.ranks is not None else ""
    seed = f" --seed {result.terms.seed}" if result.terms.seed != "0" else ""
    return ranks + weak + seed
