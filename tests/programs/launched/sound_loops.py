"""Training loops that resume as if nothing had happened, each of another kind: ``sound_loops.py NAME``.

Two ranks; each loop saves after every second of eight steps, and a later start continues from its newest save.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

STEPS, EVERY = 8, 2
OUT = Path("out")
LOOPS: dict[str, Callable[[], None]] = {}


def loop(run: Callable[[], None]) -> Callable[[], None]:
    LOOPS[run.__name__] = run
    return run


def data() -> TensorDataset:
    draws = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(16, 4, generator=draws), torch.randn(16, 1, generator=draws))


def network(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 1))


def write(state: Any, path: Path) -> None:
    """Replace a file, and make it last."""
    with open(f"{path}.tmp", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def save(state: Any, path: Path | None = None) -> None:
    """Save by rank 0, while the others wait."""
    dist.barrier()
    if dist.get_rank() == 0:
        write(state, path or OUT / "job.pt")
    dist.barrier()


def saved(path: Path | None = None) -> Any:
    path = path or OUT / "job.pt"
    return torch.load(path, weights_only=False) if path.exists() else None


def resumed(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore a job; return its step, 0 for a new one."""
    job = saved()
    if not job:
        return 0
    model.load_state_dict(job["model"])
    optimizer.load_state_dict(job["optimizer"])
    return int(job["step"])


def reduce(model: nn.Module) -> None:
    """Sum the gradients of all ranks."""
    for each in model.parameters():
        dist.all_reduce(each.grad)


def endless(sampler: DistributedSampler[Any], done: int) -> Iterator[Any]:
    """Yield batches of two from the ``done``-th on, in the order of each epoch."""
    epoch, number = 0, 0
    while True:
        sampler.set_epoch(epoch)
        for batch in DataLoader(sampler.dataset, batch_size=2, sampler=sampler, generator=torch.Generator()):
            if number >= done:
                yield batch
            number += 1
        epoch += 1


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    extra: Callable[[], dict[str, Any]] = dict,
    restore: Callable[[dict[str, Any]], None] = lambda _: None,
    after: Callable[[int, torch.Tensor], None] = lambda *_: None,
) -> None:
    """Train a model in DDP, and keep ``extra`` state with it."""
    job, step = saved(), 0
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
        step = job["step"]
        restore(job)
    parallel = nn.parallel.DistributedDataParallel(model)
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        inputs, wanted = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), wanted)
        loss.backward()
        optimizer.step()
        step += 1
        after(step, loss)
        if step % EVERY == 0:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, **extra()})


@loop
def adam() -> None:
    model = network()
    train(model, torch.optim.Adam(model.parameters(), lr=0.1))


@loop
def sgd_with_momentum_and_groups() -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    train(model, torch.optim.SGD(groups, lr=0.1, momentum=0.9))


@loop
def scheduler() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=STEPS + 1)
    train(
        model, optimizer, lambda: {"schedule": schedule.state_dict()},
        lambda job: schedule.load_state_dict(job["schedule"]), lambda *_: schedule.step(),
    )  # fmt: skip


@loop
def dropout_seeded_by_step() -> None:
    model = network(0.5)
    train(
        model, torch.optim.Adam(model.parameters(), lr=0.1), dict,
        lambda job: torch.manual_seed(job["step"]), lambda step, _: torch.manual_seed(step),
    )  # fmt: skip


@loop
def dropout_with_generators_of_all_ranks() -> None:
    model = network(0.5)
    rank = dist.get_rank()

    def states() -> dict[str, Any]:
        found: list[Any] = [None, None]
        dist.all_gather_object(found, (torch.get_rng_state(), random.getstate()))
        return {"generators": found}

    def restore(job: dict[str, Any]) -> None:
        state, other = job["generators"][rank]
        torch.set_rng_state(state)
        random.setstate(other)

    random.seed(rank)
    torch.manual_seed(rank)
    train(model, torch.optim.Adam(model.parameters(), lr=0.1), states, restore)


@loop
def moving_average() -> None:
    model = network()
    average = torch.optim.swa_utils.AveragedModel(model)
    train(
        model, torch.optim.Adam(model.parameters(), lr=0.1), lambda: {"average": average.state_dict()},
        lambda job: average.load_state_dict(job["average"]), lambda *_: average.update_parameters(model),
    )  # fmt: skip


@loop
def clocks_and_names_of_the_run() -> None:
    """Its saves have entries that differ from run to run: when it began, how long it took, and its name."""
    model, begun, name = network(), time.time(), uuid.uuid4().hex
    train(
        model, torch.optim.Adam(model.parameters(), lr=0.1),
        lambda: {"begun": begun, "took": time.perf_counter(), "since": time.time() - begun, "name": name},
    )  # fmt: skip


@loop
def evaluation_between_steps() -> None:
    model = network()
    losses: list[float] = []

    def evaluate(step: int, _: torch.Tensor) -> None:
        if step % 2 == 0:
            with torch.no_grad():
                losses.extend(float(model(inputs).mean()) for inputs, _ in DataLoader(data(), batch_size=8))

    train(
        model, torch.optim.Adam(model.parameters(), lr=0.1), lambda: {"losses": list(losses)},
        lambda job: losses.extend(job["losses"]), evaluate,
    )  # fmt: skip


@loop
def the_best_one_apart() -> None:
    model, best = network(), [float("inf")]

    def keep(_: int, loss: torch.Tensor) -> None:
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        if float(whole) < best[0]:
            best[0] = float(whole)
            save({"model": model.state_dict(), "loss": best[0]}, OUT / "best.pt")

    train(
        model, torch.optim.Adam(model.parameters(), lr=0.1), lambda: {"best": best[0]},
        lambda job: best.__setitem__(0, job["best"]), keep,
    )  # fmt: skip


@loop
def starts_again_from_nothing() -> None:
    """It never loads: a restarted job is the same job from its first step on."""
    model = network()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    batches = endless(DistributedSampler(data(), seed=3), 0)
    for step in range(1, STEPS + 1):
        inputs, wanted = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(parallel(inputs), wanted).backward()
        optimizer.step()
        if step % EVERY == 0:
            save({"model": model.state_dict(), "step": step})


@loop
def accumulation() -> None:
    model = network()
    job = saved()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
    step = job["step"] if job else 0
    batches = endless(DistributedSampler(data(), seed=3), 2 * step)
    while step < STEPS:
        optimizer.zero_grad()
        for _ in range(2):
            inputs, wanted = next(batches)
            nn.functional.mse_loss(model(inputs), wanted).backward()
        reduce(model)
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})


@loop
def a_step_by_hand() -> None:
    """No optimizer, and no loader."""
    weights = saved() or {"w": torch.ones(4), "step": torch.tensor(0)}
    while int(weights["step"]) < STEPS:
        change = torch.full((4,), float(weights["step"]) + dist.get_rank())
        dist.all_reduce(change)
        weights = {"w": weights["w"] + change * 0.1, "step": weights["step"] + 1}
        if int(weights["step"]) % EVERY == 0:
            save(weights)


@loop
def two_optimizers() -> None:
    one, other = network(), network()
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.1) for each in (one, other)]
    job = saved()
    for part, (model, optimizer) in enumerate(zip((one, other), optimizers, strict=True)):
        if job:
            model.load_state_dict(job["models"][part])
            optimizer.load_state_dict(job["optimizers"][part])
    step = job["step"] if job else 0
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        inputs, wanted = next(batches)
        for model, optimizer in zip((one, other), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), wanted).backward()
            reduce(model)
            optimizer.step()
        step += 1
        if step % EVERY == 0:
            states = {"models": [one.state_dict(), other.state_dict()], "step": step}
            save({**states, "optimizers": [each.state_dict() for each in optimizers]})


@loop
def a_file_for_each_part() -> None:
    """Directories by step, in the manner of Hugging Face's trainer; the two newest are kept."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    rank, step = dist.get_rank(), 0
    whole = sorted(OUT.glob("checkpoint-*/state.json"), key=lambda each: int(each.parent.name.split("-")[1]))
    if whole:
        last = whole[-1].parent
        step = json.loads(whole[-1].read_text())["step"]
        model.load_state_dict(torch.load(last / "model.pt"))
        optimizer.load_state_dict(torch.load(last / "optimizer.pt"))
        torch.set_rng_state(torch.load(last / f"rng_state_{rank}.pth"))
    dist.barrier()
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        inputs, wanted = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs + torch.randn(())), wanted).backward()
        reduce(model)
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            place = OUT / f"checkpoint-{step}"
            place.mkdir(exist_ok=True)
            write(torch.get_rng_state(), place / f"rng_state_{rank}.pth")
            if rank == 0:
                write(model.state_dict(), place / "model.pt")
                write(optimizer.state_dict(), place / "optimizer.pt")
            dist.barrier()
            if rank == 0:
                (place / "state.tmp").write_text(json.dumps({"step": step}))
                os.replace(place / "state.tmp", place / "state.json")
            dist.barrier()


@loop
def shards_by_dcp() -> None:
    """FSDP2 and `torch.distributed.checkpoint`, a directory for each step."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    steps = sorted(int(each.parent.name.split("-")[1]) for each in OUT.glob("step-*/.metadata"))
    dist.barrier()
    step = steps[-1] if steps else 0
    if steps:
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=OUT / f"step-{step}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        inputs, wanted = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=OUT / f"step-{step}")


@loop
def dcp_in_a_thread() -> None:
    """`dcp.async_save`, one at a time: training goes on meanwhile."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    steps = sorted(int(each.parent.name.split("-")[1]) for each in OUT.glob("step-*/.metadata"))
    dist.barrier()
    step = steps[-1] if steps else 0
    optimizer.step()  # without gradients: only makes room for what is loaded
    if steps:
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=OUT / f"step-{step}")
        model.load_state_dict(state["model"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = endless(DistributedSampler(data(), seed=3), step)
    running, others = None, dist.new_group(backend="gloo")
    while step < STEPS:
        inputs, wanted = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), wanted).backward()
        reduce(model)
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            if running is not None:
                running.result()
            state, place = {"model": model.state_dict()}, OUT / f"step-{step}"
            running = dcp.async_save(state, checkpoint_id=place, process_group=others)
    if running is not None:
        running.result()


@loop
def by_accelerate() -> None:
    """Without dropout: an iterator over the data draws from the generator that `load_state` has set."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(3)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
    model, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, DataLoader(data(), batch_size=2), schedule
    )
    done = sorted(int(each.parent.name.split("-")[1]) for each in OUT.glob("step-*/done"))
    accelerator.wait_for_everyone()
    step = done[-1] if done else 0
    if done:
        accelerator.load_state(str(OUT / f"step-{step}"))
    while step < STEPS:
        each_epoch = len(loader)
        rest = accelerator.skip_first_batches(loader, step % each_epoch) if step % each_epoch else loader
        for inputs, wanted in rest:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(inputs), wanted))
            optimizer.step()
            schedule.step()
            step += 1
            if step % EVERY == 0:
                accelerator.save_state(str(OUT / f"step-{step}"))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    (OUT / f"step-{step}" / "done").touch()
                accelerator.wait_for_everyone()
            if step >= STEPS:
                break


class _Counted(IterableDataset[torch.Tensor]):
    """Numbers from where it is told to begin."""

    def __init__(self, begins: int) -> None:
        self.begins = begins

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = self.begins
        while True:
            yield torch.full((4,), float(number * 2 + dist.get_rank()))
            number += 1


@loop
def a_stream() -> None:
    model = network()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    step = resumed(model, optimizer)
    stream: Dataset[torch.Tensor] = _Counted(step)
    for inputs in DataLoader(stream, batch_size=None, generator=torch.Generator()):
        if step == STEPS:
            break
        optimizer.zero_grad()
        model(inputs).mean().backward()
        reduce(model)
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})


@loop
def second_order() -> None:
    """L-BFGS calls its closure several times in a step."""
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    step = resumed(model, optimizer)
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        inputs, wanted = next(batches)

        def closure(inputs: torch.Tensor = inputs, wanted: torch.Tensor = wanted) -> float:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            reduce(model)
            return float(loss)

        optimizer.step(closure)
        step += 1
        if step % EVERY == 0:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})


@loop
def epochs_only() -> None:
    """It saves at the end of an epoch, and shuffles by the generator of torch, which it sets for each epoch."""
    model = network()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    job = saved()
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
    for epoch in range(job["epoch"] if job else 0, 3):
        torch.manual_seed(100 * epoch)
        for inputs, wanted in DataLoader(data(), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), wanted).backward()
            reduce(model)
            optimizer.step()
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1})


@loop
def with_workers() -> None:
    """Two workers load its batches, in an order that is shuffled for each epoch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    job = saved()
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
    sampler: DistributedSampler[Any] = DistributedSampler(data())
    for epoch in range(job["epoch"] if job else 0, 3):
        sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(data(), batch_size=4, sampler=sampler, num_workers=2):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), wanted).backward()
            reduce(model)
            optimizer.step()
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1})


def run_loop(name: str) -> None:
    dist.init_process_group("gloo")
    OUT.mkdir(exist_ok=True)
    LOOPS[name]()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_loop(sys.argv[1])
