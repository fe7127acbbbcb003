"""The README of the tests shows the recorded cost of the default tests."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.durations import LONG, RECORD, ROOT, named, recorded, shown, table
from tests.support.long_tests import REASONS

JUNIT = """
<testsuites><testsuite>
<testcase classname="tests.room.test_file" name="test_it[a-1]" time="5.5"/>
<testcase classname="tests.room.test_file" name="test_it[b-2]" time="7.25"/>
<testcase classname="tests.room.test_file.TestClass" name="test_quick" time="0.5"/>
<testcase classname="scenarios.test_race" name="test_racy" time="1.0"/>
</testsuite></testsuites>
"""


def test_the_record_names_tests_that_there_are() -> None:
    for name, took in json.loads(RECORD.read_text())["long"].items():
        file, _, function = name.partition("::")
        assert f"def {function.rpartition('::')[2]}(" in (ROOT / file).read_text(), name
        assert took >= LONG


def test_a_test_that_takes_long_has_a_reason() -> None:
    """Make it quicker, or say in `tests.support.long_tests` what its seconds are for."""
    given = [name for names in REASONS.values() for name in names]
    assert len({*given}) == len(given)
    assert [each for each in given if not (ROOT / each.partition("::")[0]).is_file()] == []
    recorded_ = json.loads(RECORD.read_text())["long"]
    assert [each for each in recorded_ if not any(f"{each}::".startswith(f"{name}::") for name in given)] == []


def test_the_readme_shows_the_record() -> None:
    assert shown() == table(json.loads(RECORD.read_text()))


def test_a_run_is_recorded_by_room(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    record = recorded(tmp_path / "junit.xml")
    assert record == {
        "rooms": {"room": [3, 13], "scenarios": [1, 1]},
        "long": {"tests/room/test_file.py::test_it": 7.2},
    }
    assert table(record).splitlines()[-1] == "| all | 4 | 14 |"
    assert named("tests.room.test_file.TestClass", "test_quick") == "tests/room/test_file.py::TestClass::test_quick"
