"""Fixtures of the command line."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from racecheck.processes.doctor import examination
from racecheck.processes.session import Session


@pytest.fixture
def shared(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "start", lambda base, slot=None: nullcontext(session))
