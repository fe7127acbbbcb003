"""A gate in shards: what one machine would have printed, and what is said of shards that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecheck.explore.current_session import Sessions
from racecheck.explore.findings import versions
from racecheck.gate import parts, running, shards
from racecheck.gate.cells import Broken, Cell
from racecheck.gate.effort import EFFORTS, Effort
from racecheck.gate.parts import Part
from racecheck.gate.shards import Checked, Shard, Work
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from tests.support.command_line import Cli
from tests.support.timeless import timeless

pytestmark = pytest.mark.usefixtures("project", "lasting")

FILE = Path(__file__).parents[1] / "programs" / "gated.py"
CHECKS = ("save", "kill", "saves@nfs", "overwrite")


@pytest.fixture
def lasting(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session for all gates here."""

    class Lasting(Sessions):
        def __init__(self) -> None:
            super().__init__()
            self._session = session

        def close(self) -> None: ...

    monkeypatch.setattr(running, "Sessions", Lasting)


def gate(cli: Cli, kind: str, *words: str) -> int:
    asked = [word for name in CHECKS for word in ("--check", name)]
    return cli("gate", f"{FILE}::{kind}", *asked, "--effort", "quick", *words)


def written(cli: Cli, kind: str, count: int, *words: str) -> list[str]:
    """Make all shards; return their files."""
    for number in range(1, count + 1):
        assert gate(cli, kind, "--shard", f"{number}/{count}", *words) == 0, cli.err
    return [f"racecheck-shard-{number}-of-{count}.json" for number in range(1, count + 1)]


@pytest.mark.parametrize(("kind", "count"), [("Careful", 1), ("Careful", 3), ("InPlace", 2), ("InPlace", 4)])
def test_shards_say_what_one_gate_says(cli: Cli, kind: str, count: int) -> None:
    status = gate(cli, kind, "--fresh", "--json")
    alone = timeless(json.loads(cli.out))
    files = written(cli, kind, count)
    assert cli("merge", *reversed(files), "--json") == status
    assert timeless(json.loads(cli.out)) == alone


def test_only_failures_that_one_gate_would_have_explained_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard explains the gravest of its own: of all together only one is among those."""
    monkeypatch.setitem(cast("dict[str, Effort]", EFFORTS), "quick", replace(EFFORTS["quick"], explained=1))
    work = Work({"x": Checked(("save", "kill"), "")}, "0", "quick", None, "gloo", versions())
    files = []
    for number, (check, invariant) in enumerate((("save", "no-deadlock"), ("kill", "consistent-weights")), 1):
        broken = (Broken(invariant, "seen", defect=check),)
        cell = Cell("x", check, "shared", {}, Verdict.FAIL, asked=(invariant,), broken=broken, schedules=1)
        shard = Shard(Part(number, 2), work, (cell,), (replace(cell, text="explained"),))
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(shards.FORMAT.encode(shard))
    found = shards.merged(files, tmp_path)
    assert [(each.check, each.text) for each in found.cells] == [("save", ""), ("kill", "explained")]
    assert found.wrong == []


def test_a_finding_of_a_shard_replays_where_it_is_merged(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(cli, "InPlace", 2)
    there = tmp_path / "there"
    there.mkdir()
    for each in files:
        Path(each).rename(there / each)
    monkeypatch.chdir(there)
    assert cli("merge", *files, "--json") == 1
    found = [each["finding"] for each in json.loads(cli.out)["defects"] if each["finding"]]
    assert found
    assert all(Path(each).is_file() for each in found)
    assert cli("replay", found[0], "--times", "2", "--trust") == 1
    assert "reproduced 2 of 2" in cli.out


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _other_seed(text: str) -> str:
    return text.replace('"seed": "0"', '"seed": "1"', 1)


def _other_source(text: str) -> str:
    return re.sub(r'("source": ")[0-9a-f]{8}', r"\g<1>00000000", text, count=1)


def _outside(text: str) -> str:
    return re.sub(r'("file": ")[^"]*', r"\g<1>../../x.json", text, count=1)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (None, ["shard 2 of 2 is missing"]),
        (_cut, ["racecheck-shard-2-of-2.json: not a shard of a gate: not JSON", "shard 2 of 2 is missing"]),
        (_other_seed, ["racecheck-shard-2-of-2.json: its seed (1) is not that", "shard 2 of 2 is missing"]),
        (_other_source, ["its checkpointer, or a file that it uses, is not that", "shard 2 of 2 is missing"]),
    ],
)
def test_a_shard_that_does_not_fit_is_named(cli: Cli, damage: Callable[[str], str] | None, says: list[str]) -> None:
    one, two = written(cli, "Careful", 2)
    if damage is None:
        Path(two).unlink()
    else:
        Path(two).write_text(damage(Path(two).read_text()))
    assert cli("merge", one, two, "--json") == 3
    data = json.loads(cli.out)
    assert data["verdict"] == "UNKNOWN"
    assert all(any(each in line for line in data["wrong"]) for each in says), data["wrong"]
    unmade = [each for each in data["cells"] if each["reasons"] == ["shard 2 of 2 is missing"]]
    assert unmade
    assert [each["verdict"] for each in unmade] == ["UNKNOWN"] * len(unmade)
    assert sorted(each["check"] for each in data["cells"]) == sorted(CHECKS)


def test_a_check_that_no_shard_has_is_unknown(cli: Cli) -> None:
    one, two = written(cli, "Careful", 2)
    shard = shards.FORMAT.load(Path(one), Shard)
    Path(one).write_text(shards.FORMAT.encode(replace(shard, cells=shard.cells[1:])))
    assert cli("merge", one, two, "--json") == 3
    data = json.loads(cli.out)
    assert [each["reasons"] for each in data["cells"] if each["check"] == shard.cells[0].check] == [
        ["no shard has this check"]
    ]
    for each in (one, two):
        shard = shards.FORMAT.load(Path(each), Shard)
        Path(each).write_text(shards.FORMAT.encode(replace(shard, cells=())))
    assert cli("merge", one, two) == 3


def test_a_finding_that_is_gone_does_not_lose_the_shard(tmp_path: Path) -> None:
    cell = Cell("x", "save", "shared", {}, Verdict.FAIL, broken=(Broken("recovers", "", str(tmp_path / "gone.json")),))
    assert not [*shards.carried([cell])]


def test_no_file_leaves_the_directory_of_findings(cli: Cli) -> None:
    one, two = written(cli, "InPlace", 2)
    for each in (one, two):
        Path(each).write_text(_outside(Path(each).read_text()))
    assert cli("merge", one, two) in (2, 3)
    assert "damaged shard of a gate: findings" in cli.out + cli.err
    assert not Path("../x.json").exists()
    assert not list(Path("..").glob("x.json"))


def test_a_shard_that_is_given_twice_counts_once(cli: Cli) -> None:
    one, two = written(cli, "Careful", 2)
    assert cli("merge", one, two, one) == 3
    assert f"{one}: shard 1 is given twice: this one is left out" in cli.out


def test_wrong_usage(cli: Cli) -> None:
    for each in ("0/2", "3/2", "1", "x/2", "1/0", "-1/2"):
        assert gate(cli, "Careful", "--shard", each) == 2
        assert "--shard takes I/N" in cli.err
    assert gate(cli, "Careful", "--shard", "1/2", "--json") == 2
    assert "to racecheck merge" in cli.err
    assert cli("merge") == 2
    assert "name the files" in cli.err
    assert cli("merge", "nowhere.json") == 2
    assert "nowhere.json: no such file" in cli.err


costs = st.dictionaries(st.text("abcdef", min_size=1), st.floats(0, 1000), max_size=20)


@given(costs, st.integers(1, 8))
def test_each_thing_is_of_one_part(given_: dict[str, float], count: int) -> None:
    taken = [Part(number, count).of(given_) for number in range(1, count + 1)]
    assert sorted(each for part in taken for each in part) == sorted(given_)
    loads = [sum(given_[each] for each in part) for part in taken]
    assert max(loads) - min(loads) <= max(given_.values(), default=0.0) + 1e-6, "no part could give one away"


def test_a_part_is_written_as_i_of_n() -> None:
    assert parts.part("2/3") == Part(2, 3)
    assert shards.file_of(Part(2, 3)) == Path("racecheck-shard-2-of-3.json")
    with pytest.raises(UsageError, match="--shard takes I/N"):
        parts.part("2/1")
