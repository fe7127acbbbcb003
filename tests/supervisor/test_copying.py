"""The kernel's own copying (sendfile, copy_file_range), where only one end is watched."""

from __future__ import annotations

import hashlib

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Op
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.one_run import Supervisor
from tests.support.targets import TARGETS, target


def test_what_comes_from_outside_is_known(session: Session) -> None:
    """Or no crash could be judged: which bytes were written would have gone unseen."""
    scenario, data = target("copying", "from_outside"), (TARGETS / "copying.py").read_bytes()
    recorder = Recorder(session.slot.path / "blobs", 1 << 20)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    supervisor = Supervisor(session, scenario.reference, scenario.world, lambda _: 0, seed="0", recorder=recorder)
    outcome = supervisor.run()
    recorder.close()
    copies = [event.result for event in outcome.trace if isinstance(event, Op) and event.call == "copy"]
    assert [each.size for each in copies if each is not None and each.known] == [len(data), 0]
    assert outcome.disk["copy"].digest == hashlib.sha256(data).hexdigest()
    assert not recorder.problem
