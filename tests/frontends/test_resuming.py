"""A resumed job is compared with the job that nobody interrupted, and told to end: launch commands of real loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHED, TORCHRUN, Racecheck

KILLED = ("--watch", "out", "--explain", 0, "--schedules", 2, "--fault", "kill-job on rename job.tmp nth=4")
LOST = {
    "loader": "takes training step 7 on the batch of step 5",
    "epoch": "takes training step 7 on the batch of step 3",
    "random": "other random numbers: torch (from step 7 on)",
    "scheduler": "scheduler.last_epoch is that of save 1",
    "optimizer": "without the optimizer's exp_avg and exp_avg_sq and step",
    "scaler": "scaler.scale is that of save 1",
}
"""The part that a job does not restore, with the words of the report about it."""


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


def named(file: str) -> list[str]:
    """Return the names of the loops in a file."""
    return re.findall(r"^@loop\ndef (\w+)", (LAUNCHED / file).read_text(), re.MULTILINE)


LOSSY = {
    "shuffled_by_accelerate": "on the batch of",
    "one_file_for_the_places_of_all_ranks": "with other parameters",
    "an_epoch_dropped_at_its_boundary": "on a batch that no step has had",
    "moments_loaded_into_a_fresh_optimizer": "without the optimizer's exp_avg and exp_avg_sq and step",
    "gradients_that_were_not_zeroed": "of the optimizer",
    "the_scheduler_steps_twice": "with lr ",
    "accumulation_cut_in_the_middle": "with other parameters",
}
"""The loops that resume as another job, and what is said of each."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSY)
def test_a_loop_that_resumes_as_another_job_is_found(racecheck: Racecheck, name: str) -> None:
    assert [*LOSSY] == named("lossy_loops.py")
    each = ("--fault", "kill-job nth=each", "--schedules", 60, "--explain", 0)
    status, text = racecheck("run", "--watch", "out", *each, "--", *TORCHRUN, "lossy_loops.py", name)
    assert status == 1, text
    (line,) = (each for each in text.splitlines() if "resume-equals: " in each)
    assert LOSSY[name] in line, text


@pytest.mark.slow
@pytest.mark.parametrize("name", named("sound_loops.py"))
def test_a_loop_that_resumes_as_the_same_job_passes(racecheck: Racecheck, name: str) -> None:
    each = ("--fault", "kill-job nth=each", "--schedules", 8, "--explain", 0)
    status, text = racecheck("run", "--watch", "out", *each, "--", *TORCHRUN, "sound_loops.py", name)
    assert status == 0, text
    assert "so a resumed job is not compared" not in text


PREEMPTED = ("--watch", "out", "--explain", 0, "--schedules", 2)


def test_a_preempted_job_saves_what_it_has(racecheck: Racecheck) -> None:
    """It is told at its fourth step, and both ranks save once more."""
    told = ("--fault", "preempt on open job.pt.tmp rank=0")
    status, text = racecheck("run", *PREEMPTED, *told, "--", *TORCHRUN, "preempted.py", "good")
    assert status == 0, text
    assert "no recovery trained" not in text


def test_a_job_that_looks_too_late_is_killed_when_its_time_is_over(racecheck: Racecheck, programs: Path) -> None:
    del programs
    told = ("--fault", "preempt on sleep seconds=40")
    status, text = racecheck("run", *PREEMPTED, *told, "--", *TORCHRUN, "preempted.py", "evaluation")
    assert status == 1, text
    for rank in (0, 1):
        assert f"ends-in-time: rank {rank} handles SIGTERM, but had not ended 40 s later, when SIGKILL came" in text
    assert "died by SIGKILL" in text


def test_a_last_save_with_the_number_of_another_step_is_found(racecheck: Racecheck) -> None:
    told = ("--fault", "preempt on stat job.pt rank=0")
    status, text = racecheck("run", *PREEMPTED, *told, "--", *TORCHRUN, "preempted.py", "behind")
    assert status == 1, text
    assert "resume-equals: resumed from save 1 of job.pt.tmp, rank 0 takes training step 3" in text


BUSY = ("--watch", "out", "--explain", 0, "--schedules", 1, "--fault", "preempt on rmdir rank=1")
"""A preemption while the workers of a loader have work: they remove the sockets of batches that they have sent."""


@pytest.mark.slow
def test_workers_that_the_signal_ends_take_their_rank_with_them(racecheck: Racecheck) -> None:
    status, text = racecheck("run", *BUSY, "--", *TORCHRUN, "loading.py", "bare")
    assert status == 1, text
    assert "handles SIGTERM, but fails before its last save: a worker of it got the signal, too" in text


@pytest.mark.slow
def test_workers_that_ignore_the_signal_let_their_rank_save(racecheck: Racecheck) -> None:
    status, text = racecheck("run", *BUSY, "--", *TORCHRUN, "loading.py", "shielded")
    assert status == 0, text
    assert "not controlled: nothing" in text


def test_a_node_is_told_alone(racecheck: Racecheck) -> None:
    """The rank of the other node is not, and waits for the first one."""
    told = ("--fault", "preempt on open job.pt.tmp rank=0", "--show-passing", "--full")
    for nodes, ranks in ((1, 2), (2, 1)):
        status, text = racecheck("run", *PREEMPTED, "--nodes", nodes, *told, "--", *TORCHRUN, "preempted.py", "good")
        assert status == 0, text
        assert text.count("SIGTERM") == ranks, text


def test_the_launcher_sends_nothing_more_once_it_was_told_to_end(racecheck: Racecheck) -> None:
    """Rank 1 dies of the first signal at once; otherwise the launcher would end the others then."""
    told = (
        "--fault",
        "preempt on open begun",
        "--show-passing",
        "--full",
        "--resume-with",
        "torchrun preempted.py good",
    )
    _, text = racecheck("run", *PREEMPTED, *told, "--", *TORCHRUN, "preempted.py", "deaf")
    assert "rank 1  died by SIGTERM" in text, text
    assert text.count("SIGTERM") == 3, text  # to each rank, and in the end of rank 1
    assert "rank 0  returned" in text
