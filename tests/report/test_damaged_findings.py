"""Findings that contradict themselves: each is shown, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racecheck.explore.findings import encode
from racecheck.model.errors import UsageError
from racecheck.report.files import load
from racecheck.report.markdown import markdown
from racecheck.report.picture.document import page, picture
from racecheck.report.trace_events import trace_json
from tests.support import pictures

STRANGE = (-1, 0, 1, 3, 10**9, "", "x", [], {}, None)


@cache
def text(name: str) -> str:
    return encode(pictures.ALL[name]())


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        yield path
    for key, inner in items or ():
        yield from leaves(inner, (*path, key))


def shown(file: Path) -> bool:
    """Whether a finding is shown in each way; else it is refused."""
    try:
        found = load(file)
    except UsageError:
        return False
    assert page(found, "").rstrip().endswith("</html>")
    for world in (world for run in picture(found, "")["runs"] for world in run["worlds"]):
        events, lanes = range(len(world["events"])), range(len(world["lanes"]))
        assert all(index in events for index in (*world["story"], *world["arrow"]))
        assert all(each.get("lane", 0) in lanes for each in world["events"])
    assert markdown(found, "").endswith("\n")
    assert json.loads(trace_json(found))
    return True


@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*pictures.ALL]),
    place=st.floats(0, 1, exclude_max=True),
    value=st.sampled_from(STRANGE),
)
def test_a_changed_value_is_shown_or_refused(tmp_path: Path, name: str, place: float, value: Any) -> None:
    data = json.loads(text(name))
    found = [*leaves(data)]
    *way, last = found[int(place * len(found))]
    inner = data
    for step in way:
        inner = inner[step]
    inner[last] = value
    file = tmp_path / "finding.json"
    file.write_text(json.dumps(data))
    shown(file)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"ranks": 10**9}, "it has results of 2 of 1000000000 ranks"),
        ({"nodes": 0}, "2 ranks cannot share 0 nodes"),
        ({"nodes": 10**9}, "2 ranks cannot share 1000000000 nodes"),
    ],
)
def test_a_world_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, int], wrong: str) -> None:
    data = json.loads(text("race"))
    data["outcome"]["world"] |= change
    file = tmp_path / "finding.json"
    file.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=f"damaged finding: {wrong}; create it again with racecheck run"):
        load(file)


@pytest.mark.parametrize("pair", [(-1, 0), (0, -2), (13, 10**9), (0, 0), (1,)])
def test_a_pair_that_cannot_be_is_left_out(tmp_path: Path, pair: tuple[int, ...]) -> None:
    file = tmp_path / "finding.json"
    file.write_text(encode(replace(pictures.race(), pair=pair)))
    assert shown(file)


@pytest.mark.parametrize("name", pictures.ALL)
def test_an_unchanged_finding_is_shown(tmp_path: Path, name: str) -> None:
    file = tmp_path / "finding.json"
    file.write_text(text(name))
    assert shown(file)
