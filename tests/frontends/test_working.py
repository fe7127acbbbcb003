"""What is said while something lasts, where nobody looks at a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.status import Status

from racecheck.frontends import working
from racecheck.frontends.working import Counter


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(working.time, "monotonic", lambda: now)
    with working.display("starting") as show:
        for second in range(40):
            now = float(second)
            show(f"second {second}")
    assert capsys.readouterr().err == "second 30\n"


def test_what_is_soon_over_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with working.display("starting") as show:
        show("done")
    assert capsys.readouterr() == ("", "")


def test_a_count_says_how_long_it_takes_at_most() -> None:
    assert Counter("schedule", "distinct", 100).left == ""
    assert Counter("schedule", "distinct", 100, done=9, seconds=5.0).left == "", "too few to tell"
    assert Counter("schedule", "distinct", 100, done=10, seconds=5.0).left == "at most 45 s more"
    assert Counter("schedule", "distinct", 100, done=10, seconds=5.0, limit=20.0).left == "at most 15 s more"
    assert Counter("schedule", "distinct", 100, done=99, seconds=99.0, limit=200.0).left == "at most 1 s more"
    assert Counter("race", "tried", 0, done=3, seconds=1.0).left == ""
    assert Counter("schedule", "distinct", 100, done=100, seconds=9.0, limit=5.0).left == "at most 0 s more"


def test_a_live_line_is_one_line() -> None:
    status = Status("", console=Console(file=StringIO(), width=30, force_terminal=True))
    working._Live(status)("5 of 100 schedules, 3 distinct, 20 s left, 2 outcomes, INCOMPLETE")
    assert str(status.status) == "5 of 100 schedules, 3 di..."
