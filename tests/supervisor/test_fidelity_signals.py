"""A signal does not make a call happen twice, whenever it comes (see `racecheck.kernel.seccomp`)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.kernel.seccomp import Listener, Notification
from racecheck.model.nouns import Outcome, Returned
from racecheck.scheduling.strategies import RoundRobin
from racecheck.sessions.session import Session
from tests.support.targets import target

ONCE = {
    ("mkdir", "directory"), ("open", "file"), ("link", "linked"), ("symlink", "symbolic"), ("rename", "renamed"), ("mknod", "node"),
    ("mkdir", "directory/inner"), ("flock", "file"), ("rename", "moved"), ("open", "renamed"), ("read", "renamed"),
    ("setxattr", "file"), ("truncate", "node"), ("rmdir", "moved"), ("unlink", "symbolic"), ("read", "file"), ("rmdir", "armed"),
}  # fmt: skip
"""Ops that the rank makes once."""


class Shooter:
    """Sends a signal to the thread that waits, each time right before it is received or answered."""

    def __init__(self, armed: Path, monkeypatch: pytest.MonkeyPatch, moments: tuple[str, ...]) -> None:
        self.armed, self.sent, self.waiting = armed, 0, dict[int, int]()
        self.last = 0
        receive = Listener.receive

        def receiving(listener: Listener) -> Notification | None:
            if "receive" in moments and self.last:
                self.shoot(self.last)
            found = receive(listener)
            if found is not None:
                self.waiting[found.id] = self.last = found.thread
            return found

        monkeypatch.setattr(Listener, "receive", receiving)
        for name in ("answer", "carry_on", "give"):
            if name in moments:
                monkeypatch.setattr(Listener, name, self.before(getattr(Listener, name)))

    def before(self, method: Any) -> Any:
        def shooting(listener: Listener, id_: int, *arguments: Any, **more: Any) -> Any:
            self.shoot(self.waiting[id_])
            return method(listener, id_, *arguments, **more)

        return shooting

    def shoot(self, thread: int) -> None:
        if self.armed.exists():
            os.kill(thread, signal.SIGUSR1)
            self.sent += 1


def run(session: Session, name: str, *, stacks: bool) -> Outcome:
    scenario = target("fidelity_signals", name)
    strategy = RoundRobin()
    strategy.begin(Random(0))
    return runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0", stacks=stacks))


def check(outcome: Outcome, shooter: Shooter) -> None:
    (result,) = outcome.results
    assert isinstance(result, Returned), result
    caught, text = result.value
    assert text == "01234"
    assert shooter.sent > 25
    assert caught > 10
    counted = Counter((op.call, op.path) for op in outcome.ops)
    assert {each: counted[each] for each in ONCE} == dict.fromkeys(ONCE, 1)
    assert counted["write", "file"] == 5
    assert all(op.result is not None and not op.result.errno for op in outcome.ops)
    assert sorted(outcome.disk) == ["directory", "file", "node", "renamed"]
    assert not outcome.coverage.holes


@pytest.mark.parametrize("stacks", [False, True], ids=["", "stacks"])
@pytest.mark.parametrize("name", ["restarting", "interrupting"])
def test_a_signal_between_performing_and_answering(
    session: Session, monkeypatch: pytest.MonkeyPatch, name: str, stacks: bool
) -> None:
    """Whether the handler has calls go on or end: what has been received is not restarted and not ended."""
    shooter = Shooter(session.slot.watched / "armed", monkeypatch, ("answer", "carry_on", "give"))
    check(run(session, name, stacks=stacks), shooter)


@pytest.mark.parametrize("stacks", [False, True], ids=["", "stacks"])
def test_a_signal_before_the_call_is_received(session: Session, monkeypatch: pytest.MonkeyPatch, stacks: bool) -> None:
    """The call starts again as another notification, and is performed once.

    (A handler that has calls end, as Python's own do, gets EINTR here: the filter cannot prevent that.)
    """
    shooter = Shooter(session.slot.watched / "armed", monkeypatch, ("receive",))
    check(run(session, "restarting", stacks=stacks), shooter)


def test_signals_all_the_time(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    shooter = Shooter(session.slot.watched / "armed", monkeypatch, ("receive", "answer", "carry_on", "give"))
    check(run(session, "restarting", stacks=True), shooter)
