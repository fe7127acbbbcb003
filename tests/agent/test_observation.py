"""Observation of the functions that save and load, in the test's own process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from racecheck.agent import observation
from racecheck.targets import programs

Said = list[tuple[str, str, str, int]]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    """The records that an observer of this directory sends: kind, path, series and step."""
    found: Said = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(observation, "_observer", [])
    monkeypatch.setattr(programs, "acknowledging", [])
    observation.observe(
        str(tmp_path),
        ["mine"],
        lambda each: found.append((each["kind"], each["checkpoint"], each["series"], each["step"])),
    )
    return found


def observed(function: Callable[..., Any], *how: Any) -> Callable[..., Any]:
    return observation._observing(function, *how)


SAVE, LOAD = observed(torch.save, True, "obj", "f"), observed(torch.load, False, "", "f")


def test_a_save_counts_when_the_next_of_its_series_begins(said: Said, tmp_path: Path) -> None:
    for step in (1, 2):
        SAVE({"w": torch.ones(2)}, f"model_{step}.pt")
        SAVE({"m": torch.ones(2)}, tmp_path / f"optimizer_{step}.pt")
    assert said == [
        ("saved", "model_1.pt", "model_#.pt", 1),
        ("saved", "optimizer_1.pt", "optimizer_#.pt", 1),
        ("acked", "model_1.pt", "model_#.pt", 1),
        ("saved", "model_2.pt", "model_#.pt", 2),
        ("acked", "optimizer_1.pt", "optimizer_#.pt", 1),
        ("saved", "optimizer_2.pt", "optimizer_#.pt", 2),
    ]
    said.clear()
    programs.acked()
    assert [each[:2] for each in said] == [("acked", "model_2.pt"), ("acked", "optimizer_2.pt")]


def test_other_tensors_are_another_series(said: Said) -> None:
    for step in (1, 2):
        Path(f"{step}").mkdir()
        SAVE({"a": torch.ones(2)}, f"{step}/part_1.pt")
        SAVE({"b": torch.ones(2), "step": step}, f"{step}/part_2.pt")
    assert [each[2:] for each in said if each[0] == "saved"] == [
        ("#/part_#.pt", 1), ("#/part_#.pt (2)", 1), ("#/part_#.pt", 2), ("#/part_#.pt (2)", 2),
    ]  # fmt: skip


def test_what_has_no_path_there_is_not_observed(said: Said, tmp_path: Path) -> None:
    SAVE({"w": torch.ones(2)}, io.BytesIO())
    elsewhere = tmp_path.parent / f"{tmp_path.name}.pt"
    SAVE({"w": torch.ones(2)}, elsewhere)
    assert said == []
    with open("open.pt", "wb") as file:
        SAVE({"w": torch.ones(2)}, file)
    LOAD("open.pt")
    assert [each[:2] for each in said] == [("saved", "open.pt"), ("loaded", "open.pt")]


def test_a_save_that_fails_is_not_acknowledged(said: Said) -> None:
    with pytest.raises(RuntimeError):
        SAVE({"w": torch.ones(2)}, "missing/model.pt")
    programs.acked()
    assert [each[0] for each in said] == ["saved"]


def test_the_files_of_a_checkpoint_are_not_saves_of_their_own(said: Said) -> None:
    writer = dcp.FileSystemWriter("ckpt")

    def inner(state_dict: Any, storage_writer: Any, **named: Any) -> Any:
        Path("ckpt").mkdir()
        SAVE({"w": torch.ones(1)}, "ckpt/part.pt")
        return state_dict_saver._save_state_dict(state_dict, storage_writer, **named)

    observed(inner, True, "state_dict", "storage_writer")({"w": torch.ones(2)}, writer, no_dist=True)
    assert [each[:2] for each in said] == [("saved", "ckpt")]


def test_a_process_that_a_rank_starts_is_not_observed(said: Said) -> None:
    pid = os.fork()
    if pid == 0:
        SAVE({"w": torch.ones(2)}, "child.pt")
        programs.acked()
        os._exit(len(said))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert Path("child.pt").exists()


def test_acked_does_nothing_outside_racecheck(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import racecheck; print(racecheck.acked())"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


def test_a_load_of_tensors_without_bytes_says_nothing_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under FakeTensorMode torch.load returns shapes alone, and on the device "meta" too."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(observation, "_observer", [])
    observation.observe(str(tmp_path), (), found.append)
    SAVE({"w": torch.ones(2), "step": 3}, tmp_path / "model.pt")
    with FakeTensorMode():
        loaded = LOAD(tmp_path / "model.pt")
    assert isinstance(loaded["w"], FakeTensor)
    LOAD(tmp_path / "model.pt", map_location="meta")
    real = LOAD(tmp_path / "model.pt")
    with FakeTensorMode(allow_non_fake_inputs=True):
        SAVE({"w": real["w"]}, tmp_path / "other.pt")
    said = [(each["kind"], sorted(each["tensors"])) for each in found]
    saved, *loads, again = said
    assert saved == ("saved", ["step", "w"])
    assert loads == [("loaded", ["step"]), ("loaded", ["step"]), ("loaded", ["step", "w"])]
    assert again == ("saved", ["w"])
    assert found[-1]["tensors"]["w"] == found[0]["tensors"]["w"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_load_in_part_is_a_load_of_what_the_checkpoint_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(observation, "_observer", [])
    observation.observe(str(tmp_path), (), found.append)
    dcp.save({"model": {"w": torch.ones(4)}, "step": 1}, checkpoint_id=tmp_path / "ckpt", no_dist=True)
    load = observed(state_dict_loader._load_state_dict, False, "state_dict", "storage_reader")
    for is_partial in (True, False):
        state = {"model": {"w": torch.zeros(4)}, "step": 0, **({"head": torch.zeros(2)} if is_partial else {})}
        planner = dcp.DefaultLoadPlanner(allow_partial_load=is_partial)
        load(state, dcp.FileSystemReader(tmp_path / "ckpt"), no_dist=True, planner=planner)
        assert found[-1]["kind"] == "loaded"
        assert sorted(found[-1]["tensors"]) == ["model.w", "step"]


def test_what_is_kept_is_not_observed(said: Said, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    SAVE({"w": torch.zeros(1)}, tmp_path / "mine" / "data.pt")
    LOAD(tmp_path / "mine" / "data.pt")
    assert said == []
    SAVE({"w": torch.zeros(1)}, tmp_path / "mine.pt")
    assert [each[:2] for each in said] == [("saved", "mine.pt")]
