"""Names that differ between two runs of one schedule."""

from __future__ import annotations

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Outcome, Raised, Verdict, World
from racecheck.model.ops.unstable_names import Names, learn
from racecheck.sessions.session import Session
from tests.support.builders import op
from tests.support.targets import target


def outcome(*labels: str) -> Outcome:
    return Outcome(World(), tuple(op(each) for each in labels), (), ())


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["a.tmpXy3", "a.tmpQ4b", "a.tmp0_-"], r"a\.tmp([0-9A-Za-z_-]{3,3})"),
        (["run-1999", "run-2000", "run-12"], r"run\-([0-9]+)"),
        (["1041.log", "1042.log", "1043.log"], r"([0-9]+)\.log"),
        (["beef-x", "cafe-x"], r"([0-9a-f]{4,4})\-x"),
        (["a b", "a c!"], None),
        (["same", "samest"], None),
    ],
)
def test_a_pattern_fits_what_it_was_learnt_from(names: list[str], pattern: str | None) -> None:
    assert learn([outcome(f"0 open dir/{each}") for each in names]) == ((pattern,) if pattern else ())


def test_threads_are_compared_each_for_itself() -> None:
    """In which order they came does not matter."""
    one, other = outcome("0 open x1", "1 open y"), outcome("1 open y", "0 open x2")
    assert learn([one, other]) == ("x([0-9]+)",)


def test_a_name_is_shown_by_the_first_thread_that_used_it() -> None:
    names = Names([r"\.tmp([0-9]+)"])
    for thread, path in [("0", "d/.tmp11"), ("1", "d/.tmp22/f"), ("1", "d/.tmp11"), ("0", "d/.tmp33")]:
        names.meet(thread, path)
    assert names.show("d/.tmp11") == "d/.tmp<0:1>"
    assert names.show("d/.tmp22/f") == "d/.tmp<1:1>/f"
    assert names.show("d/.tmp33") == "d/.tmp<0:2>"
    assert names.show("d/.tmp44") == "d/.tmp44", "nobody has mentioned it"
    failed = Raised("OSError", "no such file: '/x/d/.tmp22/f'", path="d/.tmp22/f")
    assert names.cover(failed) == Raised("OSError", "no such file: '/x/d/.tmp<1:1>/f'", path="d/.tmp<1:1>/f")


@pytest.mark.parametrize("name", ["process_numbers", "safetensors_save"])
def test_a_search_learns_names_and_continues(session: Session, name: str) -> None:
    scenario = target("naming", name)
    search = Search(scenario, scenario.world, scenario.invariants, schedules=4)
    report = explore(session, search)
    assert report.verdict is Verdict.PASS, report.reasons
    assert report.outcome is not None
    assert report.outcome.names
    assert any("<0:1>" in each.path for each in report.outcome.ops)
    assert not any(each.path.endswith("<") for each in report.outcome.ops)
