"""A FUSE mount that denies a name right after it has said that it is taken."""

from __future__ import annotations

from racecheck.model.nouns import Raised, Returned
from racecheck.sessions.session import Session
from tests.support.showing import show, stale, values


def test_makedirs_that_may_find_the_directory_raises(session: Session) -> None:
    outcome = show(session, "makes_directories", "stale")
    failed = outcome.results[1]
    assert isinstance(failed, Raised)
    assert (failed.type, failed.errno, failed.path) == ("FileExistsError", "EEXIST", "ckpt")
    (denied,) = stale(outcome)
    assert denied.fault == "stale: no entry, although EEXIST was returned 0.0 s ago"


def test_it_need_not(session: Session) -> None:
    assert values(show(session, "makes_directories")) == [None, None]


def test_one_that_makes_it_before_the_others_holds(session: Session) -> None:
    outcome = show(session, "one_makes", "stale")
    assert values(outcome) == [True, True]
    assert not [choice for choice in outcome.schedule if choice.kind == "view"]


def test_unless_they_have_looked_before(session: Session) -> None:
    outcome = show(session, "looks_first", "stale")
    assert outcome.results[0] == Returned(True)
    assert isinstance(outcome.results[1], Raised)


def test_for_no_time_means_never(session: Session) -> None:
    outcome = show(session, "looks_first", "stale", storage="incoherent-fuse(timeout=0)")
    assert values(outcome) == [True, True]


def test_nfs_does_not_do_this(session: Session) -> None:
    for name in ("makes_directories", "looks_first"):
        assert all(isinstance(each, Returned) for each in show(session, name, "stale", storage="nfs").results)


def test_a_call_that_creates_does_not_ask_whether_a_name_is_there(session: Session) -> None:
    outcome = show(session, "creates_after_a_refusal", "stale")
    assert values(outcome) == [True, True]
    assert [op.syscall for op in outcome.ops if "O_EXCL" in op.flags and op.result and op.result.errno == "EEXIST"]
    assert stale(outcome) == []
