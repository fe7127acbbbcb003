"""Observed saves and loads judge a program that contains no line of racecheck."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launching import TORCHRUN, Racecheck

KILLS = ["--explain", "0", "--fault", "kill-job on any nth=each", "--schedules", "30"]


def test_an_old_checkpoint_that_is_lost_without_an_error(programs: Path, racecheck: Racecheck) -> None:
    """The recovery finds no complete checkpoint and begins again: nothing fails, and all work is gone."""
    status, text = racecheck("run", "--watch", "out", "--json", *KILLS, "--", *TORCHRUN, "checkpoints.py", "--one")
    assert status == 1, text
    data = json.loads(text)
    (violation,) = data["violations"]
    assert violation["invariant"] == "old-survives"
    assert violation["message"] == (
        "step 1 was saved on all ranks, step 2 was in progress, but then nothing was loaded"
        " (steps count the saves to only)"
    )
    status, text = racecheck("replay", violation["finding"], "--times", 5, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 5)


@pytest.mark.slow
def test_checkpoints_in_directories_of_their_own_survive(programs: Path, racecheck: Racecheck) -> None:
    status, text = racecheck("run", "--watch", "out", *KILLS, "--", *TORCHRUN, "checkpoints.py", "--sharded")
    assert status == 0, text
    assert "\nobserved: 2 saves, 1 load\n" in text


@pytest.mark.parametrize("acked", [False, True])
def test_a_save_counts_when_the_program_says_so(programs: Path, racecheck: Racecheck, acked: bool) -> None:
    """Without that a single save counts when the script ends, and this one fails before."""
    source = (programs / "resumable.py").read_text().replace("os.fsync", "id").replace("step + 3", "step + 2")
    said = "    racecheck.acked()\n" * acked + "    sys.exit(3)\n"
    source = source.replace("import torch\n", "import racecheck\nimport torch\n", 1)
    renamed = "    os.rename(target, FILE)\n"
    (programs / "once.py").write_text(source.replace(renamed, f"{renamed}{said}"))
    crash = ["--explain", 0, "--schedules", 1, "--fault", "crash model=ext4"]
    again = ["--resume-with", "torchrun --nproc-per-node=1 resumable.py"]
    _, text = racecheck("run", "--watch", "out", *crash, "--json", *again, "--", *TORCHRUN, "once.py")
    endings = json.loads(text)["endings"]
    broken = {each["invariant"] for ending in endings for each in ending["violations"]}
    assert ("durable-after-ack" in broken) is acked, text


def test_the_claim_names_what_could_not_be_judged(programs: Path, racecheck: Racecheck) -> None:
    (programs / "plain.py").write_text("import os\nopen(f'out/{os.environ[\"RANK\"]}', 'x').close()\n")
    words = ["run", "--watch", "out", "--explain", 0]
    status, text = racecheck(*words, "--", *TORCHRUN, "plain.py")
    assert status == 0, text
    assert text.splitlines()[0].endswith("; no save was observed, so no weights are judged")
    assert "\nobserved: 0 saves, 0 loads" in text
    (programs / "forgets.py").write_text(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    torch.save({'w': torch.ones(2)}, 'out/model.pt')\n"
    )
    status, text = racecheck(*words, "--resume-with", "torchrun forgets.py", "--", *TORCHRUN, "forgets.py")
    assert status == 0, text
    assert "; no load was observed in the recovery, so lost saves are not judged" in text.splitlines()[0]


@pytest.mark.slow
def test_what_is_observed_makes_no_op(programs: Path, racecheck: Racecheck) -> None:
    """The ranks of the real launcher are not observed."""
    for program in (["resumable.py"], ["checkpoints.py", "--sharded"]):
        status, text = racecheck("run", "--check-launcher", "--watch", "out", "--", *TORCHRUN, *program)
        assert status == 0, text


SHARDED = [*TORCHRUN, "checkpoints.py", "--sharded"]


def test_a_checkpoint_that_lacks_a_shard_is_found(programs: Path, racecheck: Racecheck) -> None:
    """Nobody loads it, so nothing else fails.  What was there before the run is the user's affair."""
    words = ["run", "--watch", "out", "--json", "--explain", 0, "--schedules", 5]
    status, text = racecheck(*words, "--", *SHARDED, "--prune")
    assert status == 1, text
    (violation,) = json.loads(text)["violations"]
    assert violation["message"] == "002: __1_0.distcp is missing (step, weights)"
    status, text = racecheck("replay", violation["finding"], "--times", 3, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 3)
    (programs / "out" / "old" / "run").mkdir(parents=True)
    (programs / "out" / "old" / "run" / ".metadata").write_bytes(b"broken")
    status, text = racecheck(*words, "--", *SHARDED)
    data = json.loads(text)
    assert (status, data["conditions"]) == (0, ["for gloo"]), text


def test_a_file_that_cannot_be_read_leaves_it_open(programs: Path, racecheck: Racecheck) -> None:
    words = ["run", "--watch", "out", "--explain", 0, "--schedules", 2]
    status, text = racecheck(*words, "--", *SHARDED, "--foreign")
    assert status == 0, text
    assert "a checkpoint has files that racecheck cannot read" in text
