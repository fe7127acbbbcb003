"""Pages that list: one HTML file each, in the style of the picture, without a script."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from racecheck.model.errors import UsageError
from racecheck.report import words
from racecheck.report.decisive import decisive
from racecheck.report.files import load
from racecheck.report.picture.document import joined, write
from racecheck.report.sentence import plain, sentence

_FILTER = '<p class="filter"><label><input type="checkbox" id="bad-only"> only what failed or is unknown</label></p>'
_TABLE = '<div class="wide"'
_COLUMNS = ("found (UTC)", "scenario", "violated", "what happened", "claim")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def list_page(title: str, body: str, about: str = "") -> str:
    """Return an HTML file with this title and body, and a line at its end; all are HTML already.

    A box before the first table leaves only those rows in which something failed or is unknown.
    """
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>\n{joined(('common.css', 'list.css'))}\n</style>",
    ]
    main = ["<main>", body.replace(_TABLE, f"{_FILTER}\n{_TABLE}", 1), "</main>"]
    foot = [f"<footer><p>{about}</p></footer>"] if about else []
    parts = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *main, *foot]
    return "\n".join([*parts, "</body>", "</html>"]) + "\n"


@dataclass(frozen=True, slots=True)
class Listed:
    """A finding in the list: its file and its page, when it was made, what it is about; or why it cannot be shown."""

    file: Path
    page: Path | None = None
    made: str = ""
    target: str = ""
    invariants: tuple[str, ...] = ()
    said: str = ""
    claim: str = ""
    wrong: str = ""


def findings_below(directory: Path, tell: Callable[[str], None]) -> list[Listed]:
    """Return the findings below a directory, the latest first, and draw those that have no page or an older one."""
    files = sorted(directory.glob("*/*.json"))
    found: list[Listed] = []
    for number, file in enumerate(files, 1):
        tell(f"{number} of {words.count(len(files), 'finding')}")
        found += _listed(file)
    return sorted(found, key=lambda each: (each.made, each.target), reverse=True)


def _listed(file: Path) -> Iterator[Listed]:
    if file.name.endswith(".trace.json"):
        return
    try:
        finding = load(file)
        page = file.with_suffix(".html")
        if not page.exists() or page.stat().st_mtime_ns < file.stat().st_mtime_ns:
            write(file, page)
    except UsageError as error:
        if '"format" is not' not in str(error):
            yield Listed(file, wrong=str(error))
        return
    evidence, violations = finding.evidence, finding.judgement.violations
    found = decisive(finding.outcome, violations, finding.pair)
    yield Listed(
        file, page, evidence.made if evidence is not None else "", finding.subject,
        tuple(dict.fromkeys(each.invariant for each in violations)),
        plain(sentence(finding.outcome, violations, found)), evidence.claim if evidence is not None else "",
    )  # fmt: skip


def index(listed: Sequence[Listed], start: Path, more: str = "") -> str:
    """Return the page that lists findings; its links are relative to the directory ``start``.

    ``more`` is HTML that stands below the list.
    """
    rows = "\n".join(_row(each, start) for each in listed if not each.wrong)
    header = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    table = f'<table class="stacked">\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>'
    shown = table if rows else "<p>No findings yet.</p>"
    wrong = "".join(f"<p>{_text(each.wrong)}</p>" for each in listed if each.wrong)
    number = words.count(sum(not each.wrong for each in listed), "finding")
    damaged = f"<h2>Not shown</h2>{wrong}" if wrong else ""
    return list_page("racecheck findings", f"<h1>{number}</h1>\n{shown}\n{damaged}{more}")


def _row(listed: Listed, start: Path) -> str:
    made = listed.made[:16].replace("T", " ") or "earlier"
    broken = "<br>".join(map(_text, listed.invariants))
    link = f'<a href="{href(listed.page, start)}">{_text(listed.said)}</a>' if listed.page else _text(listed.said)
    target = re.sub("(/|::)", r"\1<wbr>", f"{_text(listed.target)}")
    cells = (_text(made), f"<code>{target}</code>", broken, link, _text(listed.claim))
    inner = "".join(
        f'<td data-name="{name}"{" class=nowrap" * (number in {0, 2})}>{cell}</td>'
        for number, (name, cell) in enumerate(zip(_COLUMNS, cells, strict=True))
    )
    return f"<tr>{inner}</tr>"


def href(page: Path, start: Path) -> str:
    """Return the address of a page in a page in the directory ``start``."""
    return html.escape(quote(os.path.relpath(page.absolute(), start.absolute()), errors="surrogateescape"))


def _text(text: str) -> str:
    return html.escape(words.escape(text))
