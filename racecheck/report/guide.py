"""The pages of the guide as the package ships them, and their sections about the names that a report prints."""

from __future__ import annotations

import re
from importlib import resources

from racecheck.model.errors import UsageError
from racecheck.model.hints import meant

_PAGES = resources.files("racecheck") / "guide"
_SECTION = re.compile(r"^###? (`.+?`(?:, `.+?`)*)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
"""A section about names has them as its title, in backquotes."""
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_REPAIR = re.compile(r"^\* Repair(?: on (.+?))?: (.*?)(?=^\* |\Z)", re.MULTILINE | re.DOTALL)
INDEX = "README"


def pages() -> list[str]:
    """Return the names of all pages but the index."""
    found = (each.name.removesuffix(".md") for each in _PAGES.iterdir() if each.name.endswith(".md"))
    return sorted(each for each in found if each != INDEX)


def page(name: str = INDEX) -> str:
    """Return the text of a page in Markdown.  Raise `UsageError` if there is no such page."""
    if name != INDEX and name not in pages():
        raise UsageError(f"unknown page {name!r}; {meant(name, pages())}")
    return (_PAGES / f"{name}.md").read_text("utf-8")


def written() -> dict[str, str]:
    """Return the guide's text about each name that has a section: Markdown without its bold marks."""
    return {name: text for each in pages() for name, text in sections_of(each).items()}


def sections_of(name: str) -> dict[str, str]:
    """Return a page's text about each name that has a section there."""
    found: dict[str, str] = {}
    for match in _SECTION.finditer(page(name)):
        found |= dict.fromkeys(match[1].strip("`").split("`, `"), _BOLD.sub(r"\1", match[2].strip()))
    return found


def repair(invariant: str, storage: str = "") -> str:
    """Return the guide's repair of a violation of an invariant, in one paragraph; "" if it says nothing.

    A repair for this storage takes precedence over the general one.
    """
    found = {match[1] or "": match[2] for match in _REPAIR.finditer(written().get(invariant, ""))}
    return " ".join(found.get(storage, found.get("", "")).split())
