"""Findings survive the round trip through text, and nothing else is taken for one."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from enum import EnumMeta
from functools import cache
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racecheck.explore import findings, runner
from racecheck.explore.findings import Finding, Reference, Versions, decode, encode, load, save, source_hash
from racecheck.explore.requests import RunRequest
from racecheck.model import package
from racecheck.model.errors import UsageError
from racecheck.model.nouns import (
    Coverage,
    Outcome,
    World,
)
from racecheck.scheduling.strategies import RoundRobin
from racecheck.sessions.session import Session
from racecheck.supervisor.state.store import Store
from tests.support.builders import (
    died,
    outcome,
)
from tests.support.sample_finding import FULL
from tests.support.targets import target


def data_of(finding: Finding) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(encode(finding))
    return data


def refusal(text: str) -> str:
    """The message with which a text is refused: one line."""
    with pytest.raises(UsageError) as caught:
        decode(text)
    message = str(caught.value)
    assert message.isprintable(), "one line, and no character that a terminal could choke on"
    return message


# Random findings.

TEXTS = st.text(max_size=6) | st.binary(max_size=6).map(os.fsdecode)
BASIC: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False),
    str: TEXTS,
    bool: st.booleans(),
    NoneType: st.none(),
}
BASIC[Any] = st.recursive(
    st.one_of(*BASIC.values()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type that occurs in findings, so that no field of the model can be forgotten here."""
    if is_dataclass(hint):
        kind: Any = hint  # an outcome has a recovery, which is an outcome
        return st.deferred(
            lambda: st.builds(kind, **{name: values(each) for name, each in get_type_hints(kind).items()})
        )
    if isinstance(hint, EnumMeta):
        return st.sampled_from(list(hint))
    origin, arguments = get_origin(hint), get_args(hint)
    return BY_ORIGIN[origin](*arguments) if origin else BASIC[hint]


def any_of(*hints: Any) -> st.SearchStrategy[Any]:
    """The simplest first: None."""
    return st.one_of(*map(values, sorted(hints, key=lambda hint: hint is not NoneType)))


def sequences(item: Any, *_: Any) -> st.SearchStrategy[Any]:
    return st.lists(values(item), max_size=2).map(tuple)


def tuples(*items: Any) -> st.SearchStrategy[Any]:
    return sequences(*items) if Ellipsis in items else st.tuples(*map(values, items))


BY_ORIGIN: dict[Any, Callable[..., st.SearchStrategy[Any]]] = {
    Literal: lambda *texts: st.sampled_from(texts),
    Mapping: lambda key, value: st.dictionaries(values(key), values(value), max_size=2),
    Sequence: sequences,
    Union: any_of,
    UnionType: any_of,
    tuple: tuples,
}


@given(values(Finding))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_finding_survives_the_round_trip(finding: Finding) -> None:
    text = encode(finding)
    assert decode(text) == finding
    assert encode(decode(text)) == text
    assert text.isascii(), "also where paths are not UTF-8"


def test_a_finding_with_something_in_every_field_survives_it_too() -> None:
    assert decode(encode(FULL)) == FULL


# What it looks like.


def test_the_text_does_not_depend_on_the_order_of_mappings() -> None:
    disk = dict(reversed([*FULL.outcome.disk.items()]))
    turned = replace(FULL, outcome=replace(FULL.outcome, disk=disk))
    assert [*disk] != [*FULL.outcome.disk]
    assert encode(turned) == encode(FULL)


def test_events_choices_and_files_take_one_line_each() -> None:
    lines = [line.strip().rstrip(",") for line in encode(FULL).splitlines()]
    expected = data_of(FULL)["outcome"]
    for each in [*expected["trace"], *expected["schedule"], *expected["results"]]:
        assert json.dumps(each) in lines
    assert '"latest": {"kind": "symlink", "size": 0, "digest": "", "target": "ckpt/\\udcff\\udcfe"}' in lines
    assert '"timeout": 1.5' in lines
    assert max(map(len, lines)) < 600


def test_numbers_as_keys_are_in_order_of_numbers() -> None:
    assert [*data_of(FULL)["outcome"]["trace"][1]["stacks"]] == ["0", "2", "10"]


def test_what_a_reader_looks_for_first_comes_first() -> None:
    data = data_of(FULL)
    assert [*data][:4] == ["format", "version", "scenario", "seed"]
    assert (data["format"], data["version"]) == ("racecheck-finding", findings.VERSION)
    assert data["judgement"]["verdict"] == "FAIL"
    assert [each["is"] for each in data["outcome"]["trace"]] == ["Op", "Collective", "Op"]
    assert [each["is"] for each in data["outcome"]["results"]] == ["Returned", "Raised", "Died", "Stopped"]


# What is refused.


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 100_000, "9" * 5_000, '{"a": 1, "a": 1}', "\ufeff{}"])
def test_what_is_not_json_is_refused(text: str) -> None:
    assert refusal(text).startswith("not a finding: not JSON: ")


@pytest.mark.parametrize("text", ["null", "42", "[]", "{}", '"racecheck-finding"', '{"format": ["racecheck-finding"]}'])
def test_foreign_json_is_refused(text: str) -> None:
    assert refusal(text).startswith('not a finding: "format" is not "racecheck-finding"; create it again')


@pytest.mark.parametrize("version", [findings.VERSION + 1, 10**60])
def test_a_later_version_asks_for_an_upgrade(version: int) -> None:
    message = refusal(json.dumps({**data_of(FULL), "version": version, "new": 1}))
    assert message.startswith("version ")
    assert message.endswith(f"is newer than this racecheck reads ({findings.VERSION}): upgrade racecheck")
    assert len(message) < 120


def test_the_version_before_is_read_and_has_no_evidence() -> None:
    older = {name: each for name, each in data_of(FULL).items() if name != "evidence"}
    found = decode(json.dumps({**older, "version": 7}))
    assert found == replace(FULL, evidence=None)
    assert found.address == FULL.address


def test_an_earlier_version_has_to_be_made_again() -> None:
    assert "older than this racecheck reads" in refusal(json.dumps({**data_of(FULL), "version": 1}))


@pytest.mark.parametrize("version", [0, -1, 1.0, "1", True, None, [1]])
def test_a_version_that_never_was_is_refused(version: Any) -> None:
    assert refusal(json.dumps({**data_of(FULL), "version": version})).startswith("unknown version ")


WRONG = [
    (("outcome", "trace", 0, "places", 1, "inode"), "3", "expected int, found str"),
    (("outcome", "trace", 0, "time"), 1.0, "expected int, found float"),
    (("outcome", "trace", 0, "result", "known"), 1, "expected bool, found int"),
    (("outcome", "trace", 0, "stack"), {}, "expected list, found dict"),
    (("outcome", "trace", 0, "stack", 0, "file"), None, "expected str, found NoneType"),
    (("outcome", "trace", 1), "barrier", "expected dict, found str"),
    (("outcome", "trace"), None, "expected list, found NoneType"),
    (("outcome", "disk"), [], "expected dict, found list"),
    (("outcome", "world", "timeout"), "1", "expected float or int, found str"),
    (("outcome", "world", "timeout"), True, "expected float or int, found bool"),
    (("outcome", "world", "timeout"), 10**400, "expected float, found a larger number"),
    (("outcome", "results", 3, "kind"), ["lock"], "expected one of 'collective', 'lock', 'asleep',"),
    (
        ("outcome", "results", 3, "is"),
        "Fell",
        "expected one of 'Returned', 'Raised', 'Died', 'Stopped', found 'Fell'",
    ),
    (("judgement", "verdict"), 2, "expected one of 'PASS', 'UNKNOWN', 'FAIL', found 2"),
    (("seed",), None, "expected int or str, found NoneType"),
    (("run",), True, "expected int, found bool"),
    (("invariants",), "no-file-errors", "expected list, found str"),
]


@pytest.mark.parametrize(("steps", "wrong", "complaint"), WRONG)
def test_a_field_of_the_wrong_type_is_named(steps: tuple[Any, ...], wrong: Any, complaint: str) -> None:
    data = data_of(FULL)
    at(data, steps[:-1])[steps[-1]] = wrong
    assert refusal(json.dumps(data)).startswith(f"damaged finding: {shown(steps)}: {complaint}")


@pytest.mark.parametrize("key", ["01", "+1", "1.0", " 1", "1_0", "", "one", "\u0661", "x" * 5_000])
def test_a_key_that_is_no_plain_number_is_refused(key: str) -> None:
    data = data_of(FULL)
    data["outcome"]["mismatch"]["calls"] = {key: "barrier()"}
    message = refusal(json.dumps(data))
    assert message.startswith(f"damaged finding: outcome.mismatch.calls['{key[:100]}")
    assert message.endswith("expected a whole number as key; create it again with racecheck run")
    assert len(message) < 400


def test_no_key_can_break_the_line() -> None:
    data = data_of(FULL)
    data["outcome"]["outside"] = {"a\nb\x1b[31m\ud800": 3}
    assert refusal(json.dumps(data)).startswith(
        "damaged finding: outcome.outside['a\\nb\\x1b[31m\\ud800']: expected str"
    )


def test_no_value_can_flood_the_line() -> None:
    data = data_of(FULL)
    data["outcome"]["results"][3]["kind"] = "x" * 5_000
    assert len(refusal(json.dumps(data))) < 400


def test_a_key_that_occurs_twice_is_refused() -> None:
    text = encode(FULL).replace('"seed": 7', '"seed": 7, "seed": 8')
    assert "an object has a duplicate key" in refusal(text)


def test_no_field_may_be_missing_and_none_may_be_added() -> None:
    tried = 0
    for steps in records(data_of(FULL), ()):
        for name in at(data_of(FULL), steps):
            data = data_of(FULL)
            del at(data, steps)[name]
            if name in {"series", "evidence"}:  # a finding of an earlier racecheck has none
                assert findings.decode(json.dumps(data))
                continue
            assert name in refusal(json.dumps(data))
            tried += 1
        data = data_of(FULL)
        at(data, steps)["colour"] = "red"
        assert shown((*steps, "colour")).replace(".colour", "") in refusal(json.dumps(data))
        assert "['colour']: unknown field" in refusal(json.dumps(data))
    assert tried > 100, "the walk has come to all kinds of records"


def at(data: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        data = data[step]
    return data


def shown(steps: tuple[Any, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


TABLES = {
    "sources",
    "bad",
    "judged",
    "args",
    "clock",
    "stacks",
    "calls",
    "contents",
    "disk",
    "outside",
    "holes",
    "notes",
    "untried",
    "tensors",
    "value",
    "issued",
    "left",
}


def records(data: Any, steps: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Where in a finding there are objects with fixed fields."""
    if isinstance(data, dict):
        yield steps
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, inner in items:
        if step not in TABLES:
            yield from records(inner, (*steps, step))


def test_a_truncated_text_is_refused_wherever_it_ends() -> None:
    text = encode(FULL)
    for length in range(len(text) - 1):
        with pytest.raises(UsageError):
            decode(text[:length])
    assert decode(text[:-1]) == FULL, "only the line's end is missing"


@given(st.integers(0, len(encode(FULL)) - 1), st.integers(0, 7))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_gives_a_usage_error_or_a_finding(tmp_path: Path, position: int, bit: int) -> None:
    raw = bytearray(encode(FULL).encode())
    raw[position] ^= 1 << bit
    (tmp_path / "flipped").write_bytes(raw)
    try:
        found = load(tmp_path / "flipped")
    except UsageError:
        return
    assert decode(encode(found)) == found


@pytest.mark.parametrize("depth", [50, 500, 2000, 100_000])
def test_a_recovery_of_a_recovery_and_so_on_is_refused(depth: int) -> None:
    text, plain = encode(FULL), json.dumps(data_of(replace(FULL, outcome=outcome())))
    inner = json.dumps(data_of(replace(FULL, outcome=outcome()))["outcome"])
    head, tail = inner.split('"recovery": null')
    nested = f'{head}"recovery": ' * depth + inner + tail * depth
    found = plain.replace(inner, nested)
    assert found != plain
    assert text != found
    if depth < 150:
        assert decode(found).outcome.recovery is not None
    else:
        assert "damaged finding" in refusal(found) or "not JSON" in refusal(found)


# Files.


def test_a_finding_is_found_again(tmp_path: Path) -> None:
    path = save(FULL, tmp_path / "findings")
    assert re.fullmatch("findings/unguarded-[0-9a-f]{4}/[0-9a-f]{10}[.]json", str(path.relative_to(tmp_path)))
    assert load(path) == FULL
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_one_run_has_one_address() -> None:
    slower = replace(FULL.outcome, seconds=9.0, coverage=Coverage(3, 7), results=(died(output="at 0x7f"),))
    again = replace(FULL, outcome=slower, versions=Versions("", "", "", ""))
    assert again.address == FULL.address


@pytest.mark.parametrize(
    "other",
    [
        replace(FULL, seed=8),
        replace(FULL, run=13),
        replace(FULL, scenario=replace(FULL.scenario, source="1" * 64)),
        replace(FULL, scenario=replace(FULL.scenario, target="a.py::unguarded")),
        replace(FULL, invariants=("no-deadlock",)),
        replace(FULL, outcome=replace(FULL.outcome, schedule=())),
        replace(FULL, outcome=replace(FULL.outcome, world=World(ranks=3))),
    ],
)
def test_another_run_has_another_address(other: Finding) -> None:
    assert other.address != FULL.address


def test_the_same_run_replaces_its_finding(tmp_path: Path) -> None:
    later = replace(FULL, versions=Versions("0.2.0", "3.12.0", "", "6.2.0"))
    assert save(FULL, tmp_path) == save(later, tmp_path)
    assert load(save(later, tmp_path)) == later


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = save(FULL, tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device; set RACECHECK_FINDINGS"):
        save(replace(FULL, strategy="pct"), tmp_path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert load(path) == FULL


def test_a_directory_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory; set RACECHECK_FINDINGS"):
        save(FULL, tmp_path / "file")


@pytest.mark.parametrize("name", ["../../up", "/etc/x", "..", "", "a\0b\udcff"])
def test_a_strange_name_does_not_lead_elsewhere(tmp_path: Path, name: str) -> None:
    path = save(replace(FULL, scenario=Reference(f"x.py::{name}", "")), tmp_path / "findings")
    assert path.resolve().parent.parent == tmp_path / "findings"


def test_what_cannot_be_loaded_is_a_usage_error_with_its_path(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\x80\x04pickle")
    with large.open("wb") as file:
        file.truncate(256 * 1024**2 + 1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "waits").symlink_to("/proc/kmsg")
    for name in ("missing", ".", "pipe", "endless", "waits", "binary", "large", "x" * 300):
        with pytest.raises(UsageError) as caught:
            load(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
    with pytest.raises(UsageError, match="more than 256 MiB"):
        load(large)


def test_a_finding_with_more_values_than_any_has_is_refused_before_they_fill_the_memory() -> None:
    begun = time.monotonic()
    assert "it has more than 2,000,000 values" in refusal(
        '{"format":"racecheck-finding","a":[' + "[]," * 3_000_000 + "1]}"
    )
    assert time.monotonic() - begun < 5


# Around it.


def test_the_name_of_a_scenario_is_the_end_of_its_target() -> None:
    assert Reference("dir/a.py::guarded", "").name == "guarded"
    assert Reference("package.module:guarded", "").name == "guarded"


def test_a_source_has_the_hash_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"pass\r\n")
    assert source_hash(tmp_path / "a.py") == hashlib.sha256(b"pass\r\n").hexdigest()
    with pytest.raises(UsageError, match="a scenario must be defined in a file"):
        source_hash(tmp_path / "b.py")


def test_versions_are_read_without_importing_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise ImportError
    found = findings.versions()
    assert found.torch == importlib.metadata.version("torch")
    assert found.racecheck == package.VERSION
    assert (found.python, found.kernel) == (platform.python_version(), os.uname().release)


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert findings.versions().torch == ""


def of_run(made: Outcome) -> Finding:
    return replace(FULL, outcome=made, pair=(), constraints=())


def test_the_result_of_every_operation_on_the_store_comes_back(session: Session) -> None:
    strategy = RoundRobin()
    strategy.begin(Random(0))
    scenario = target("stores", "every_operation")
    ran = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
    assert {op.syscall for op in ran.ops if op.call == "store"} == {
        each
        for each in Store()._operations
        if not each.startswith("queue")  # these are at once, and no ops
    }
    finding = of_run(ran)
    assert decode(encode(finding)) == finding
