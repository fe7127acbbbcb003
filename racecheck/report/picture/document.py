"""The page of a finding: its data, and the file that shows them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from racecheck.explore import findings
from racecheck.explore.findings import Finding
from racecheck.model.nouns import Event, Op, Outcome
from racecheck.report import words
from racecheck.report.decisive import Decisive, EventRole, decisive, failing
from racecheck.report.files import load, write_text
from racecheck.report.picture import about
from racecheck.report.picture.trees import PathTree, recorded
from racecheck.report.picture.worlds import PageData, Tables, world
from racecheck.report.results import shown_path
from racecheck.report.sentence import sentence
from racecheck.targets.programs import ABSENT

_FILES = resources.files(__package__) / "page"
_SCRIPTS = ("data.js", "rows.js", "lanes.js", "tree.js", "side.js", "cards.js", "moves.js", "start.js")
"""The parts of the page's script, in the order in which they are joined."""


def write(finding: Path, output: Path | None = None) -> Path:
    """Write the page of a finding, beside it if no ``output`` is named; returns its path.  Raises `UsageError`."""
    path = output or finding.with_suffix(".html")
    write_text(page(load(finding), f"racecheck replay {shlex.quote(shown_path(finding))}"), path, finding)
    return path


def page(finding: Finding, replay: str) -> str:
    """Return a finding as an HTML file; ``replay`` is the command that runs it again."""
    data = picture(finding, replay)
    packed = _inside(json.dumps(data, separators=(",", ":")))
    script, style = joined(_SCRIPTS), joined(("common.css", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = (_FILES / "page.html").read_text("utf-8")
    parts = {
        "HASH": digest, "TITLE": html.escape(data["name"]), "STYLE": style, "DATA": packed, "SCRIPT": script,
        "FINDING": findings.packed(finding),
    }  # fmt: skip
    before, *rest = found.split("@@")
    return before + "".join(parts[each] if number % 2 == 0 else each for number, each in enumerate(rest))


def _inside(text: str) -> str:
    """Return JSON as it may stand in HTML: in strings, where alone it has them, HTML's characters are escaped."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def joined(names: Sequence[str]) -> str:
    """Return files of the page as one, without indentation, empty lines and lines that are comments."""
    lines = (line.strip() for name in names for line in (_FILES / name).read_text("utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("// "))


def picture(finding: Finding, replay: str) -> PageData:
    """Return all that the page shows; every text in it is escaped, except that it may contain HTML's own characters."""
    outcome, evidence = finding.outcome, finding.evidence
    violations = finding.judgement.violations
    found = decisive(outcome, violations, finding.pair)
    tables = Tables(evidence.sources if evidence is not None else {})
    worlds = _worlds(outcome, found, tables, _start(finding))
    runs: list[PageData] = [{"name": "Failing", "worlds": worlds}]
    passing = evidence.passing if evidence is not None else None
    if passing is not None:
        runs.append(_passing(finding, passing, found, tables, worlds))
    return {
        "target": words.escape(finding.subject),
        "name": words.escape(finding.scenario.name),
        "verdict": finding.judgement.verdict.name,
        "sentence": [[int(part.is_code), part.text] for part in sentence(outcome, violations, found)],
        "violations": [[words.escape(each.invariant), words.escape(each.message)] for each in violations],
        "runs": runs,
        "strings": tables.strings,
        "stacks": tables.stacks,
        "facts": [[name, words.escape(text)] for name, text in about.facts(finding) if text],
        "orderings": about.orderings(finding, evidence),
        "repairs": about.repairs(evidence),
        "advice": about.advice(finding, found),
        "replay": words.escape(replay),
        "file": re.sub(r"\W+", "-", finding.scenario.name).strip("-") or "finding",
        "gaps": [words.escape(each) for each in about.gaps(finding, worlds)],
    }


def _worlds(outcome: Outcome, found: Decisive, tables: Tables, start: PathTree | None) -> list[PageData]:
    """Return the world of a run, and that of its recovery."""
    worlds = [world(outcome, found, tables, start)]
    if outcome.recovery is not None:
        after = outcome.recovery
        worlds.append(world(after, failing(after), tables, recorded(outcome.disk)))
    return worlds


def _start(finding: Finding) -> PathTree | None:
    """Return the tree before the run, None if the finding does not say."""
    return {} if finding.launch is not None and finding.launch.start == ABSENT else None


def _passing(finding: Finding, passing: Outcome, found: Decisive, tables: Tables, failing_: list[PageData]) -> PageData:
    """Return the run that passes; in both runs the events that end otherwise there are marked.

    ``differs`` is 1 where an event of the other run has the same name and another result, 2 if there is none.
    """
    mine, theirs = _names(finding.outcome.trace), _names(passing.trace)
    there = {name: index for index, name in enumerate(theirs)}
    shown: dict[int, EventRole] = {there[mine[each]]: "shown" for each in found.roles if mine[each] in there}
    pair = sorted(there[mine[each]] for each in finding.pair if 0 <= each < len(mine) and mine[each] in there)
    worlds = _worlds(
        passing, Decisive(dict(sorted(shown.items())), tuple(pair) if len(pair) == 2 else ()), tables, None
    )
    here = {name: index for index, name in enumerate(mine)}
    for names, others, one, other, data in (
        (mine, there, finding.outcome, passing, failing_[0]["events"]),
        (theirs, here, passing, finding.outcome, worlds[0]["events"]),
    ):
        for index, name in enumerate(names):
            differs = 2 if name not in others else _differ(one.trace[index], other.trace[others[name]])
            if differs:
                data[index]["differs"] = differs
    return {"name": "Passing", "worlds": worlds}


def _names(trace: Sequence[Event]) -> list[tuple[Any, ...]]:
    """Return a name of each event that the same event has in another order: the how manieth of its kind it is."""
    seen: Counter[tuple[Any, ...]] = Counter()
    found = []
    for event in trace:
        if isinstance(event, Op):
            key: tuple[Any, ...] = (event.thread, event.call, *(place.path for place in event.places))
        else:
            key = (event.kind, event.group, event.number)
        seen[key] += 1
        found.append((*key, seen[key]))
    return found


def _differ(one: Event, other: Event) -> int:
    return int(isinstance(one, Op) and isinstance(other, Op) and words.result(one) != words.result(other))
