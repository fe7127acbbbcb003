"""What is said while something lasts, where nobody looks at a terminal."""

from __future__ import annotations

import pytest

from racecheck.report import progress


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.display("starting") as show:
        for second in range(40):
            now = float(second)
            show(f"second {second}")
    assert capsys.readouterr().err == "second 15\nsecond 30\n"


def test_what_is_soon_over_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.display("starting") as show:
        show("done")
    assert capsys.readouterr() == ("", "")
