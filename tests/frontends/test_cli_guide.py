"""``racecheck guide`` and ``racecheck explain``: there is a text about every name that a report can print."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import racecheck
from racecheck import invariants
from racecheck.frontends.cli.explain import section
from racecheck.model.nouns import Verdict
from racecheck.report import results
from racecheck.report.guide import pages
from racecheck.scheduling import claims, strategies
from racecheck.scheduling.strategies import dpor, staged
from racecheck.supervisor.run import unseen
from racecheck.supervisor.state import coverage
from racecheck.targets.suite import CHECKS
from tests.support.command_line import Cli

PACKAGE = Path(racecheck.__file__).parent
ROOT, GUIDE = PACKAGE.parent, PACKAGE / "guide"


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
    assert cli.err == f"racecheck: unknown page '../readme'; known: {', '.join(pages())}\n"


# racecheck explain


def test_every_invariant_has_a_section_and_its_own_words(cli: Cli) -> None:
    for each in invariants.ALL:
        assert cli("explain", invariants.name_of(each)) == 0
        assert f"Holds if: {(inspect.getdoc(each) or '').splitlines()[0]}" in cli.out
        assert "* Why: " in cli.out
        assert "* Repair: " in cli.out


def test_every_invariant_of_a_check_is_explained(cli: Cli) -> None:
    for each in {each for check in CHECKS.values() for each in check.invariants}:
        assert cli("explain", invariants.name_of(each)) == 0, cli.err
        assert f"Holds if: {(inspect.getdoc(each) or '').splitlines()[0]}" in cli.out


def test_every_invariant_is_a_name_of_the_package() -> None:
    assert [each for each in invariants.ALL if getattr(racecheck, each.__name__) is not each] == []


def test_a_scenario_that_an_invariant_names_breaks_it() -> None:
    for each in invariants.ALL:
        for file in re.findall(r"`(scenarios/[\w/]+\.py)`", section(invariants.name_of(each))):
            assert f'breaks="{invariants.name_of(each)}"' in (ROOT / file).read_text()


def said_by_runs() -> list[str]:
    """What a run may name as not controlled or not tried: the literal arguments of `Ledger.hole` and `Ledger.untried`,
    and the texts of the modules that pass theirs in a variable.
    """
    found: list[str] = []
    for file in (PACKAGE / "supervisor").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMING:
                found += filter(None, map(_literal, node.args[:1]))
    texts = [unseen.__dict__[name] for name in vars(unseen) if re.fullmatch(r"_[A-Z]+", name)]
    return [*found, *(each for each in texts if isinstance(each, str)), *coverage._NOT_MODELLED.values()]


_NAMING = {"hole", "untried"}


def _literal(node: ast.expr) -> str:
    """The text of a literal, or what an f-string begins with."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return str(first.value) if isinstance(first, ast.Constant) else ""


@pytest.mark.parametrize("name", said_by_runs())
def test_every_gap_has_a_section(cli: Cli, name: str) -> None:
    assert cli("explain", name) == 0, cli.err
    assert cli.out.partition("\n\n")[2].startswith(("Not tried. ", "Not controlled. "))


@pytest.mark.parametrize(
    "name",
    [
        *strategies.NAMES,
        *CHECKS,
        *(each.name for each in Verdict),
        "EXHAUSTED",
        "INCOMPLETE",
        *claims._CONDITIONS.values(),
        claims._ONE_RECOVERY,
        staged.CONDITION,
        dpor._SLEEPS,
        dpor._TIMES,
        dpor._POLLS,
        *dpor._ASKS.values(),
        *(each.rstrip(": ") for each in results._HINTS),
    ],
)
def test_every_name_of_a_report_has_a_section(cli: Cli, name: str) -> None:
    assert cli("explain", *name.split()) == 0, cli.err
    assert cli.out.strip()


def test_a_whole_line_of_a_report_is_enough(cli: Cli) -> None:
    assert cli("explain", "never reached: EIO on write nth=7") == 0
    assert cli.out.startswith("never reached\n")
    assert cli("explain", "no_file_errors") == 0
    assert cli("explain", "EXHAUST") == 0


def test_an_unknown_name_is_a_line_with_what_is_close(cli: Cli) -> None:
    assert cli("explain", "no-dedlock") == 2
    assert cli.err == "racecheck: unknown name 'no-dedlock': did you mean no-deadlock?\n"
    assert cli("explain", "qwertz") == 2
    assert cli.err == "racecheck: unknown name 'qwertz': racecheck explain lists the names\n"


def test_without_a_name_it_lists_them_by_what_they_are(cli: Cli) -> None:
    assert cli("explain") == 0
    groups = dict(each.split("\n  ", 1) for each in cli.out.split("\n\n") if "\n  " in each)
    assert [*groups][:2] == ["invariants", "words"]
    for group, name in (
        ("invariants", "no-deadlock"), ("words", "ENOSPC"), ("verdicts", "EXHAUSTED"), ("strategies", "pct"),
        ("checks of the gate", "power-loss@nfs"), ("conditions", "for gloo"),
    ):  # fmt: skip
        listed = " ".join(groups[group].split())
        assert f", {name}," in f", {listed}," or f"\n  {name}\n" in f"\n  {groups[group]}\n"


@pytest.mark.parametrize("name", ["ENOENT", "FileNotFoundError", "minimised", "traces", "the pair", "EOFError"])
def test_words_of_a_report_are_explained(cli: Cli, name: str) -> None:
    assert cli("explain", name) == 0, cli.err
    assert cli.out.startswith(f"{name}\n\n")


def test_a_check_says_what_it_asks_and_what_repairs(cli: Cli) -> None:
    assert cli("explain", "power-loss") == 0
    assert "\nIt asks: " in cli.out
    assert "durable-after-ack" in cli.out
    assert "* durable-after-ack: fsync every file" in cli.out


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """The pipe is closed before the first byte, so that every write fails."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "racecheck", "guide", "gaps"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
