"""The README is true: its example is the scenario that is shipped, and its output is what comes out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from racecheck.frontends.cli.main import commands
from tests.support.readme import README, ROOT, SHOWN, block, run


def is_shipped(file: str, details: str) -> bool:
    """Whether README's example is what stands in a file of scenarios, but for what only a test of it has to know."""
    example = re.search(rf"```python\n# scenarios/{re.escape(file)}\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    shipped = (ROOT / "scenarios" / file).read_text()
    assert details in shipped
    return shipped.replace(details, "").startswith(example.group(1).rstrip())


def alike(text: str) -> str:
    """Without what differs from machine to machine: seconds, and the calls that pass."""
    return re.sub(r"\d+ calls? outside", "N calls outside", re.sub(r"\d+\.\d s", "N s", text))


def test_the_repair_table_is_what_comes_out() -> None:
    """Of torch 2.13's own saver."""
    assert alike(block("crash", "text")) in alike(run("as_it_is", "test_dcp_power_loss.py"))


def test_the_crash_example_is_the_scenario_and_what_helps_is_what_comes_out() -> None:
    assert is_shipped("test_readme_crash.py", '    expected=racecheck.Verdict.FAIL,\n    breaks="durable-after-ack",\n')
    assert block("publish", "text") in run("publish", "test_readme_crash.py")


@pytest.mark.parametrize("name", SHOWN)
def test_the_output_is_what_comes_out(name: str) -> None:
    assert alike(run(SHOWN[name])) == alike(block(name, "text"))


def test_the_example_is_the_scenario() -> None:
    details = ', report="openpi #868", expected=racecheck.Verdict.FAIL, breaks="no-file-errors"'
    assert is_shipped("test_readme.py", details)


def test_every_command_and_option_is_in_the_readme() -> None:
    text = README.read_text()
    assert isinstance(commands, click.Group)
    for name, command in commands.commands.items():
        assert f"racecheck {name}" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(option in text for option in parameter.opts), parameter.opts


def test_the_workflow_says_what_the_command_line_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```yaml\n(# \.github/workflows/.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    steps = yaml.safe_load(found.group(1))["jobs"]["gate"]["steps"]
    run = [shlex.split(step["run"]) for step in steps if "run" in step]
    (upload,) = (step["with"] for step in steps if step.get("uses", "").startswith("actions/upload-artifact@"))
    monkeypatch.chdir(tmp_path)
    assert isinstance(commands, click.Group)
    known = commands.commands
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
