"""The README and the guide are true: examples run, output is as shown, tables are generated from the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from racecheck import storage
from racecheck.crash.models import MODELS
from racecheck.frontends import pytest_plugin
from racecheck.model import config
from racecheck.report.guide import page, pages
from racecheck.scheduling import strategies
from racecheck.targets import suite
from tests.support.pages import (
    GUIDE,
    PAGES,
    README,
    ROOT,
    block,
    every_command,
    files,
    is_shown,
    marked_tables,
    output,
    run,
    shown,
    tables,
)

ALL = "\n".join(each.read_text() for each in PAGES)
SHOWN = [pytest.param(*each, marks=() if each[0] == "README.md" else pytest.mark.slow, id=each[1]) for each in shown()]
"""Those of the guide are ``slow``."""


@pytest.mark.parametrize(("where", "command"), SHOWN)
def test_what_a_page_shows_is_printed(where: str, command: str, tmp_path: Path) -> None:
    printed = run(where, command, tmp_path)
    assert is_shown(output(where, command), printed), printed


def test_a_page_that_shows_something_else_is_noticed() -> None:
    assert is_shown("a\n ...\nd 1.0 s", "a\nb\nc\nd 2.5 s")
    assert is_shown("a\n ...", "a")
    assert not is_shown("a\n ...\nd", "a\nb\nd\ne")
    assert not is_shown("a", "a\nb")
    assert not is_shown("b\n ...", "a\nb")


@pytest.mark.parametrize(("where", "name", "text"), marked_tables())
def test_tables_are_those_of_the_code(where: str, name: str, text: str) -> None:
    assert text == tables()[name], f"{where}: write it with python -m tests.support.pages"


@pytest.mark.parametrize(
    ("where", "file", "details"),
    [
        (
            "racecheck/guide/scenarios.md",
            "test_readme.py",
            ', report="openpi #868", expected=racecheck.Verdict.FAIL, breaks="no-file-errors"',
        ),
        (
            "racecheck/guide/crashes.md",
            "test_readme_crash.py",
            '    expected=racecheck.Verdict.FAIL,\n    breaks="durable-after-ack",\n',
        ),
    ],
)
def test_an_example_is_the_scenario_that_is_shipped(where: str, file: str, details: str) -> None:
    """But for what only a test of it has to know."""
    shipped = (ROOT / "scenarios" / file).read_text()
    assert details in shipped
    example = files(where)[f"scenarios/{file}"].partition("\n")[2]
    assert shipped.replace(details, "").startswith(example.rstrip())


def test_the_picture_in_the_readme_is_drawn_by_racecheck(tmp_path: Path) -> None:
    command = block("run", "bash").splitlines()[-1].partition("/bin/")[2]
    printed = run("README.md", command, tmp_path)
    finding = re.search(r"^Replay:  racecheck replay (\S+)$", printed, re.MULTILINE)
    assert finding is not None, printed
    text = run("README.md", f"racecheck report {finding[1]} --markdown", tmp_path)
    assert f"```mermaid\n{block('picture', 'mermaid')}\n```" in text, text


def test_the_fix_of_the_readme_is_the_script_that_is_shipped() -> None:
    found = re.search(r"```diff\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    before = "".join(line[1:] + "\n" for line in found[1].splitlines() if line[0] in " -")
    after = "".join(line[1:] + "\n" for line in found[1].splitlines() if line[0] in " +")
    racy, guarded = ((ROOT / "scenarios" / name).read_text() for name in ("train.py", "train_guarded.py"))
    assert before in racy
    assert racy.replace(before, after) == guarded


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 180


def test_every_command_and_option_is_in_a_page() -> None:
    for name, command in every_command().items():
        assert f"racecheck {name}" in ALL
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(option in ALL for option in parameter.opts), parameter.opts


def test_every_scenario_is_listed() -> None:
    listed = (ROOT / "scenarios" / "README.md").read_text()
    there = [each.relative_to(ROOT) for each in (ROOT / "scenarios").rglob("test_*.py")]
    assert [str(each) for each in there if str(each) not in listed and "readme" not in each.name] == []


def test_every_page_is_in_the_index_and_in_the_readme() -> None:
    for name in pages():
        assert f"({name}.md)" in page()
        assert f"(racecheck/guide/{name}.md)" in README.read_text()


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            there = file.parent / path if path else file
            assert there.exists(), target
            assert not anchor or anchor in anchors(there.read_text()), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_that_a_page_names_exist(file: Path) -> None:
    for name in re.findall(r"`((?:tests|scenarios|racecheck)/[\w./-]+)`", file.read_text()):
        assert (ROOT / name).exists(), name


def test_the_workflow_says_what_the_command_line_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```yaml\n(# \.github/workflows/.*?)```", (GUIDE / "pytest-and-ci.md").read_text(), re.DOTALL)
    assert found is not None
    steps = yaml.safe_load(found.group(1))["jobs"]["gate"]["steps"]
    run = [shlex.split(step["run"]) for step in steps if "run" in step]
    (upload,) = (step["with"] for step in steps if step.get("uses", "").startswith("actions/upload-artifact@"))
    monkeypatch.chdir(tmp_path)
    known = every_command()
    asked = {words[1]: known[words[1]].make_context(words[1], words[2:]) for words in run if words[0] == "racecheck"}
    assert asked.keys() == {"doctor", "gate"}
    names = {each.opts[0]: each.name for each in known["gate"].params}
    junit, html, markdown = (str(asked["gate"].params[names[each]]) for each in ("--junit", "--html", "--markdown"))
    assert set(upload["path"].split()) == {junit, html, ".racecheck/"}
    assert markdown in next(words for words in run if words[0] == "cat")
    # On PyPI that name is another project's.
    assert not any("racecheck" in words for words in run if words[:2] == ["pip", "install"])


def test_the_marked_commands_name_what_there_is() -> None:
    for name in ("run", "test"):
        assert "-c tests/constraints.txt" in block(name, "bash")
    assert (ROOT / "tests" / "constraints.txt").exists()


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("checkpointers.md", [*suite.NAMES]),
        ("crashes.md", [*MODELS]),
        ("storage.md", [*storage.NAMES]),
        ("faults.md", ["full", "short", "torn", "slow", "kill", "kill-node", "kill-job", "term", "preempt", "crash"]),
        ("strategies.md", [*strategies.NAMES]),
        ("commands.md", re.findall(r'environ\.get\("(\w+)"\)', Path(config.__file__).read_text())),
        ("pytest-and-ci.md", re.findall(r'"(--racecheck-\w+)"', Path(pytest_plugin.__file__).read_text())),
    ],
)
def test_a_page_names_all_there_is(file: str, names: list[str]) -> None:
    assert names
    text = (GUIDE / file).read_text().partition("\n## Results")[0]  # there a name counts for nothing
    assert [each for each in names if not re.search(rf"`{re.escape(each)}\b", text)] == []


def test_the_number_of_checks_is_that_of_the_suite() -> None:
    mine = [each for each in suite.CHECKS.values() if not each.of_training]
    always = len([each for each in mine if each.needs != "save_async"])
    assert f"{always} checks for any class" in README.read_text()
    assert f"There are {always} checks, and {len(mine)} for a" in (GUIDE / "gate.md").read_text()
