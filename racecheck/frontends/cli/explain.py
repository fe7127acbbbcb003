"""``racecheck explain``: the section of the guide about one name that a report prints."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence

import click

from racecheck import invariants
from racecheck.frontends.cli.options import Command
from racecheck.frontends.printing import say
from racecheck.gate.plan import PLAN, CommandCheck
from racecheck.invariants import name_of
from racecheck.invariants.failures import first_line
from racecheck.model.errors import UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import Invariant
from racecheck.report.guide import pages, repair, sections_of, written
from racecheck.targets.suite import CHECKS, Check


def sections() -> dict[str, str]:
    """Return the text about each name, by the name as `plain` writes it."""
    found = {plain(name): f"{name}\n\n{text}" for name, text in written().items()}
    holds = {name_of(each): _holds_if(each) for each in invariants.ALL}
    found |= {name: text.replace("\n\n", f"\n\n{holds[name]}\n\n", 1) for name, text in found.items() if name in holds}
    found |= {plain(name): f"{name}\n\n{_of_check(each)}" for name, each in CHECKS.items()}
    found |= {plain(name): f"{name}\n\n{_of_plan(each)}" for name, each in PLAN.items()}
    own = {each for check in CHECKS.values() for each in check.invariants if name_of(each) not in found}
    return found | {name_of(each): f"{name_of(each)}\n\n{_holds_if(each)}\n\n{_BY_THE_GATE}" for each in own}


def _of_check(check: Check) -> str:
    """Describe a check: its work, its invariants, and the repairs."""
    names = [name_of(each) for each in check.invariants]
    repairs = [f"* {name}: {text}" for name in names if (text := repair(name, check.storage.partition("(")[0]))]
    lines = [f"A check of the gate: {check.about}.", f"It asks: {', '.join(names)}."]
    return "\n\n".join([*lines, *(["Repairs:\n\n" + "\n".join(repairs)] if repairs else [])])


def _of_plan(check: CommandCheck) -> str:
    """Describe a check of launch commands."""
    faults = "".join(f"\n    --fault '{each}'" for each in check.faults)
    lines = [f"A check of the gate for launch commands: {check.about}."]
    return "\n\n".join([*lines, *([f"As options of racecheck run:\n{faults}"] if faults else [])])


def names() -> str:
    """Return the explained names in groups, the invariants first."""
    pages_ = ["invariants", "words", *(each for each in pages() if each not in {"invariants", "words"})]
    groups = {each: [*sections_of(each)] for each in pages_} | {"checks of the gate": [*CHECKS, *PLAN]}
    lines = (f"{title}\n  {_listed(found)}" for title, found in groups.items() if found)
    return "\n\n".join([*lines, "racecheck explain NAME shows one."])


def _listed(found: Sequence[str]) -> str:
    """Return words in a few lines, texts in a line each."""
    return "\n  ".join(found if any("," in each for each in found) else textwrap.wrap(", ".join(found), _WIDTH))


_WIDTH = 110
_BY_THE_GATE = "An invariant of the gate's checks (racecheck guide gate)."


def _holds_if(invariant: Invariant) -> str:
    return f"Holds if: {first_line(inspect.getdoc(invariant) or '')}"


def plain(name: str) -> str:
    """Return a name as it is compared: lower case, with dashes, without quotes."""
    return re.sub(r"[_\s]+", "-", name.strip(" `\"'").lower())


def section(name: str) -> str:
    """Return the section about a name, or about the longest name that it begins with.

    Raise `UsageError` if there is none.
    """
    known, wanted = sections(), plain(name)
    begun = [each for each in known if wanted.startswith(each) or (len(wanted) > 3 and each.startswith(wanted))]
    if wanted in known:
        return known[wanted]
    if begun:
        return known[max(begun, key=len)]
    raise UsageError(f"unknown name {name!r}: {meant(wanted, known, 'racecheck explain lists the names')}")


@click.command(
    "explain",
    cls=Command,
    examples=("racecheck explain", "racecheck explain no-file-errors", "racecheck explain INCOMPLETE"),
)
@click.argument("name", nargs=-1)
def explain(name: tuple[str, ...]) -> None:
    """Explain a NAME that a report prints: an invariant, a check, a strategy, a verdict, a condition or a gap.

    Without a NAME, list the names.
    """
    say(section(" ".join(name)) if name else names())
