"""What a rank tells of each step of its training."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, dataloader

from racecheck.agent import training
from racecheck.agent.contents.weight_digests import digest_of_own

SMALL, LARGE = (4, 2), (300, 300)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The steps that this process tells, and how many saves it says that it has begun."""
    found: list[dict[str, Any]] = []
    saves = [0]
    iterator: Any = vars(dataloader)["_BaseDataLoaderIter"]
    monkeypatch.setattr(iterator, "__next__", iterator.__next__)
    before = dict(vars(optimizers)["_global_optimizer_pre_hooks"])
    training.observe(lambda: saves[0], found.append)
    yield found, saves
    hooks = vars(optimizers)["_global_optimizer_pre_hooks"]
    for each in hooks.keys() - before.keys():
        del hooks[each]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor | None = None) -> None:
    optimizer.zero_grad()
    given = torch.ones(1, next(model.parameters()).shape[1]) if inputs is None else inputs
    model(given).sum().backward()
    optimizer.step()


def test_a_step_is_told_before_it_changes_anything_and_draws_nothing(told: Any) -> None:
    found, _ = told
    model = nn.Linear(*SMALL)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    generators = torch.get_rng_state(), random.getstate()
    before = training.digest_of_parts(*model.parameters())
    step(model, optimizer)
    step(model, optimizer)
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]
    first, second = (each["parts"] for each in found)
    assert first["parameters"] == before != second["parameters"]
    assert first["setting lr"] == "0.25"
    assert first["setting betas"] == "(0.9, 0.999)"
    assert {name for name in second if name.startswith("state ")} == {"state exp_avg", "state exp_avg_sq", "state step"}
    assert not any(name.startswith("state ") for name in first)
    assert first["random torch"] == second["random torch"]
    assert "batch" not in first


def test_the_last_batch_is_told_but_not_that_of_an_evaluation(told: Any) -> None:
    found, _ = told
    model = nn.Linear(*SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.arange(16.0).reshape(4, 4)
    for batch in DataLoader(rows, batch_size=2):  # type: ignore[arg-type]  # a tensor is a dataset
        with torch.no_grad():
            list(DataLoader(torch.zeros(2, 4)))  # type: ignore[arg-type]  # the same
        step(model, optimizer, batch)
    assert [each["parts"]["batch"] for each in found] == [digest_of_own(rows[:2]), digest_of_own(rows[2:])]


def test_a_batch_of_other_things_has_no_digest() -> None:
    assert digest_of_own([object()]) == ""
    assert digest_of_own({"text": "a", "number": 1}) != digest_of_own({"text": "b", "number": 1}) != ""


def test_large_parameters_are_told_after_the_start_and_after_a_save(told: Any) -> None:
    found, saves = told
    for shape, where in ((LARGE, [0, 3]), (SMALL, [0, 1, 2, 3, 4])):
        found.clear()
        model = nn.Linear(*shape)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        saves[0] = 100 + shape[0]
        for number in range(5):
            saves[0] += number == 3
            step(model, optimizer)
        assert [index for index, each in enumerate(found) if "parameters" in each["parts"]] == where


def test_a_step_that_only_makes_room_for_state_is_not_told(told: Any) -> None:
    found, _ = told
    model = nn.Linear(*SMALL)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.step()
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert found == []
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    optimizer.step()
    assert len(found) == 1, "a schedule may begin with a learning rate of 0"


def test_a_process_that_the_rank_has_started_tells_nothing(told: Any) -> None:
    found, _ = told
    model = nn.Linear(*SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    child = os.fork()
    if not child:
        for each in model.parameters():
            each.grad = torch.ones_like(each)
        optimizer.step()
        os._exit(len(found))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
