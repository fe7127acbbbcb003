"""How long the default tests take, by room, and which of them take long.

pytest -q -n 2 -m "not slow" --junitxml=junit.xml   # on two idle cores
python -m tests.support.durations junit.xml         # writes tests/durations.json and the table of tests/README.md
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "tests" / "durations.json", ROOT / "tests" / "README.md"
LONG = 5.0
"""Seconds after which a test takes long."""


def recorded(junit: Path) -> dict[str, Any]:
    """The record of a run: tests and worker seconds by room, and the seconds of each function that takes long."""
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    long: dict[str, float] = {}
    for each in ET.parse(junit).iter("testcase"):
        name, took = named(each.attrib["classname"], each.attrib["name"]), float(each.attrib["time"])
        room = name.partition("::")[0].rpartition("/")[0].removeprefix("tests/")
        tests[room] += 1
        seconds[room] += took
        if took >= LONG:
            long[name] = max(long.get(name, 0.0), round(took, 1))
    rooms = {room: [tests[room], round(seconds[room])] for room, _ in seconds.most_common()}
    return {"rooms": rooms, "long": dict(sorted(long.items()))}


def named(classname: str, name: str) -> str:
    """The name of a test without parameters: ``tests/room/test_file.py::test_it``."""
    words = classname.split(".")
    last = next(number for number, word in enumerate(words) if word.startswith("test_"))
    inside = [*words[last + 1 :], name.partition("[")[0]]
    return "::".join(["/".join(words[: last + 1]) + ".py", *inside])


def table(record: dict[str, Any]) -> str:
    """The rows of the record by room, most seconds first."""
    rows = [f"| `{room}` | {tests} | {seconds} |" for room, (tests, seconds) in record["rooms"].items()]
    total = [sum(column) for column in zip(*record["rooms"].values(), strict=True)]
    head = ["| room | tests | worker seconds |", "|---|---|---|"]
    return "\n".join([*head, *rows, f"| all | {total[0]} | {total[1]} |"])


def shown() -> str:
    """The table that the page shows."""
    found = re.search(r"<!-- durations -->\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


if __name__ == "__main__":
    made = recorded(Path(sys.argv[1]))
    RECORD.write_text(json.dumps(made, indent=1) + "\n")
    PAGE.write_text(PAGE.read_text().replace(shown(), table(made)))
