"""Programs that save into the working directory, where their own code and data are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.support.launching import TORCHRUN, Racecheck
from tests.support.outside import snapshot

MODEL = """
import helper, torch
def build(step):
    return {"w": torch.full((3,), float(step) * helper.SCALE), "step": step}
"""
LOOP = """
import os, sys, torch, torch.distributed as dist
import package.deep
from model import build
dist.init_process_group("gloo")
open("data/numbers").read()
begun = torch.load("model.pt")["step"] + 1 if os.path.exists("model.pt") else 0
dist.barrier()
for step in range(begun, begun + 2):
    if dist.get_rank() == 0 or "racy" in sys.argv:
        with open("model.tmp", "wb") as file:
            torch.save(build(step), file)
            if "sync" in sys.argv:
                file.flush()
                os.fsync(file.fileno())
        os.replace("model.tmp", "model.pt")
        if "sync" in sys.argv:
            directory = os.open(".", os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
    dist.barrier()
"""
CONDITION = "files in the working directory that the first run left as they were are not controlled"
UNSEEN = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(rank == 0)  # in the first run, in which nothing is ordered yet, rank 1 comes first
if rank == 1 and os.path.exists("0.pt"):
    open("data/numbers", "a").write("1")
    open("met", "w").close()
torch.save({}, f"{rank}.pt")
dist.barrier()
if rank == 0 and os.path.exists("met"):
    open("data/numbers", "a").write("0")
"""


@pytest.fixture
def here(programs: Path) -> Path:
    """Return the working directory of a project."""
    for name, text in {
        "model.py": MODEL, "helper.py": "SCALE = 2", "loop.py": LOOP, "unseen.py": UNSEEN, "data/numbers": "1 2 3",
        "package/__init__.py": "", "package/deep.py": "import helper",
    }.items():  # fmt: skip
        (programs / name).parent.mkdir(exist_ok=True)
        (programs / name).write_text(text)
    return programs


def test_a_race_in_the_working_directory(here: Path, racecheck: Racecheck) -> None:
    before = snapshot(here)
    status, text = racecheck("run", "--json", "--explain", 0, "--", *TORCHRUN, "loop.py", "racy")
    found = json.loads(text)
    assert (status, found["violations"][0]["invariant"]) == (1, "no-file-errors"), text
    finding = Path(found["violations"][0]["finding"])
    launch = json.loads(finding.read_text())["launch"]
    assert launch["watched"] == str(here)
    assert {"data", "helper.py", "loop.py", "package", "__pycache__"} <= {*launch["kept"]}
    assert "model.pt" not in launch["kept"]
    paths = {
        place["path"]
        for event in json.loads(finding.read_text())["outcome"]["trace"]
        for place in event.get("places", ())
    }
    assert paths == {"model.pt", "model.tmp"}, "imports and data are no ops"
    (here / "model.pt").write_text("a user's own")
    status, text = racecheck("replay", finding, "--times", 3, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 3), text
    (here / "model.pt").unlink()
    assert snapshot(here) == before


def test_naming_it_is_the_same(here: Path, racecheck: Racecheck) -> None:
    for watch in ([], ["--watch", "."], ["--watch", str(here)]):
        status, text = racecheck("run", *watch, "--schedules", 2, "--", *TORCHRUN, "loop.py")
        assert (status, CONDITION in text) == (
            0,
            True,
        )


def test_a_checkpoint_that_is_there_is_what_each_run_begins_with(here: Path, racecheck: Racecheck) -> None:
    asked = ["run", "--watch", ".", "--json", "--strategy", "random", "--schedules", 3, "--", *TORCHRUN, "loop.py"]
    status, text = racecheck(*asked)
    assert (status, json.loads(text)["observed"]) == (0, {"saves": 2, "loads": 0}), text
    torch.save({"step": 5}, here / "model.pt")
    before = snapshot(here)
    status, text = racecheck(
        "run", "--watch", ".", "--json", "--strategy", "random", "--schedules", 3, "--", *TORCHRUN, "loop.py"
    )
    assert (status, json.loads(text)["observed"]) == (0, {"saves": 2, "loads": 1}), text
    assert snapshot(here) == before


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("words", [["crash"], ["kill-job on any nth=each"]])
def test_recoveries_see_the_program_s_own_files(here: Path, racecheck: Racecheck, words: list[str], ranks: int) -> None:
    """Of one rank, many states are loaded in one process, each in a directory that stands in for the watched one."""
    again = ["--resume-with", f"torchrun --nproc-per-node={ranks} loop.py sync"]
    asked = ["run", "--json", "--explain", 0, "--schedules", 24, "--fault", *words, *again, "--", *TORCHRUN, "loop.py"]
    status, text = racecheck(*asked, "sync")
    assert (status, json.loads(text)["violations"]) == (0, []), text
    status, text = racecheck(*asked)
    broken = [each["invariant"] for each in json.loads(text)["violations"]]
    assert broken == (["durable-after-ack"] if words == ["crash"] else []), text


def test_what_only_another_schedule_writes_is_named(here: Path, racecheck: Racecheck) -> None:
    status, text = racecheck("run", "--", *TORCHRUN, "unseen.py")
    assert (status, "INCOMPLETE" in text, "not controlled: nothing; not tried: " in text) == (0, True, True), text
    assert f"ops of several ranks on {here}/data/numbers, outside the watched directory (1)" in text
    assert (here / "data" / "numbers").read_text() == "1 2 3"


def test_storage_that_needs_another_directory(here: Path, racecheck: Racecheck) -> None:
    status, text = racecheck("run", "--nodes", 2, "--storage", "node-local", "--", *TORCHRUN, "loop.py")
    assert (status, "racecheck: --storage node-local: the working directory itself is watched" in text) == (2, True), (
        text
    )
