"""A resumed job is compared with the job that nobody interrupted: by launch commands of real training loops."""

from __future__ import annotations

import pytest

from tests.support.launching import TORCHRUN, Racecheck

KILLED = ("--watch", "out", "--explain", 0, "--schedules", 2, "--fault", "kill-job on rename job.tmp nth=4")
LOST = {
    "loader": "takes training step 7 on the batch of step 5",
    "epoch": "takes training step 7 on the batch of step 3",
    "random": "other random numbers: torch (from step 7 on)",
    "scheduler": "scheduler.last_epoch is that of save 1",
    "optimizer": "without the optimizer's exp_avg and exp_avg_sq and step",
    "scaler": "scaler.scale is that of save 1",
}
"""What a job does not restore, and what is said of it."""


def test_a_job_that_restores_all_passes(racecheck: Racecheck) -> None:
    """It saves the time, too, which is another one in each run."""
    status, text = racecheck("run", *KILLED, "--", *TORCHRUN, "resuming.py")
    assert status == 0, text
    assert "two undisturbed runs differ in time, which are not compared after a resume" in text
    assert "no recovery trained" not in text


@pytest.mark.parametrize("lost", LOST)
def test_what_a_job_does_not_restore_is_named(racecheck: Racecheck, lost: str) -> None:
    status, text = racecheck("run", *KILLED, "--", *TORCHRUN, "resuming.py", lost)
    assert status == 1, text
    (line,) = (each for each in text.splitlines() if "resume-equals: " in each)
    assert LOST[lost] in line, text
    assert "resumed from save 3 of " in line
