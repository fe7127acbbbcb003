"""Files from before the modules moved are read with today's names; what a program wrote is left alone."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from racecheck.explore import former_names
from racecheck.explore.findings import decode, encode
from racecheck.gate import baseline
from racecheck.model.errors import UsageError
from tests.support.builders import raised
from tests.support.sample_finding import FULL


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("racecheck.errors.UsageError", "racecheck.model.errors.UsageError"),
        ("racecheck.checkpointers.dcp:Dcp[kill]", "racecheck.targets.adapters.dcp:Dcp[kill]"),
        ("racecheck.checkpointers.suite", "racecheck.targets.suite.check_scenario"),
        ("lib/racecheck/checkpointers/driving.py", "lib/racecheck/targets/suite/driver.py"),
        (
            "../lib/racecheck/checkpointers/torch_save.py::InPlace[kill]",
            "../lib/racecheck/targets/adapters/torch_save.py::InPlace[kill]",
        ),
        ("racecheck.checkpointers.dcp_own:Saver", "racecheck.checkpointers.dcp_own:Saver"),
        ("my_racecheck.errors.Bad", "my_racecheck.errors.Bad"),
        ("racecheck/errors.python", "racecheck/errors.python"),
    ],
)
def test_names_of_our_own_modules_are_brought_up_to_date(former: str, current: str) -> None:
    assert former_names.current({"target": former, "bases": [former]}) == {"target": current, "bases": [current]}
    assert former_names.current({"target": current}) == {"target": current}, "also when it is done twice"


def test_what_a_program_wrote_keeps_its_words() -> None:
    said = [{"text": "racecheck.errors.UsageError", "places": [{"path": "racecheck/errors.py"}]}]
    assert former_names.current(said) == said


def test_every_new_name_is_a_module() -> None:
    for name in former_names.MODULES.values():
        importlib.import_module(f"racecheck.{name}")


def test_a_finding_from_before_the_move_is_read_with_todays_names() -> None:
    old = replace(FULL, outcome=replace(FULL.outcome, results=(raised("racecheck.errors.UsageError"),)))
    assert decode(encode(old)).outcome.results[0] == raised("racecheck.model.errors.UsageError")


def test_a_baseline_that_does_not_identify_defects_has_to_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"format": "racecheck-baseline", "version": 1, "known": ["a[kill] recovers"]}))
    with pytest.raises(UsageError, match=r"version 1 is older .*recreate it with racecheck gate --update-baseline"):
        baseline.load(path)
