"""``racecheck guide``."""

from __future__ import annotations

from pathlib import Path

import pytest

import racecheck
from racecheck.frontends.cli.guide import pages
from tests.support.command_line import Cli

GUIDE = Path(racecheck.__file__).parent / "guide"


def test_without_a_page_it_lists_them(cli: Cli) -> None:
    assert cli("guide") == 0
    assert cli.out.startswith("# The guide\n")
    assert all(f"[{name}]" in cli.out for name in pages())


@pytest.mark.parametrize("name", pages())
def test_a_page_is_printed_plain_in_a_pipe(cli: Cli, name: str) -> None:
    assert cli("guide", name) == 0
    assert cli.out.rstrip("\n") == (GUIDE / f"{name}.md").read_text().rstrip("\n")


def test_an_unknown_page_is_a_line(cli: Cli) -> None:
    assert cli("guide", "../README") == 2
    assert cli.err == f"racecheck: unknown page '../readme'; pages: {', '.join(pages())}\n"
