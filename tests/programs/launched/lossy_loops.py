"""Training loops that resume as another job, each in the manner of a report: ``lossy_loops.py NAME``."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sound_loops import EVERY, OUT, STEPS, data, endless, loop, network, reduce, run_loop, save, saved, write
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, wanted = batch
    return nn.functional.mse_loss(model(inputs), wanted)


@loop
def shuffled_by_accelerate() -> None:
    """accelerate #4195: the place in the epoch is restored, the order of the epoch is not."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(3)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(), batch_size=2, shuffle=True))
    done = sorted(int(each.parent.name.split("-")[1]) for each in OUT.glob("step-*/done"))
    accelerator.wait_for_everyone()
    step = done[-1] if done else 0
    if done:
        accelerator.load_state(str(OUT / f"step-{step}"))
    while step < STEPS:
        left = step % len(loader)
        for batch in accelerator.skip_first_batches(loader, left) if left else loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            step += 1
            if step % 3 == 0:
                accelerator.save_state(str(OUT / f"step-{step}"))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    (OUT / f"step-{step}" / "done").touch()
                accelerator.wait_for_everyone()
            if step >= STEPS:
                break


@loop
def one_file_for_the_places_of_all_ranks() -> None:
    """accelerate PR #4164: each rank writes its place in its own data to the same file."""
    rank = dist.get_rank()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job, place = saved(), saved(OUT / "loader.pt")
    step, begins = 0, 8 * rank
    if job:
        model.load_state_dict(job["model"])
        step, begins = job["step"], place["next"] if place else begins
    while step < STEPS:
        optimizer.zero_grad()
        model(torch.full((4,), float(begins))).sum().backward()
        reduce(model)
        optimizer.step()
        step, begins = step + 1, begins + 1
        if step % EVERY == 0:
            for each in range(2):
                if rank == each:
                    write({"next": begins}, OUT / "loader.pt")
                dist.barrier()
            save({"model": model.state_dict(), "step": step})


@loop
def an_epoch_dropped_at_its_boundary() -> None:
    """meta-pytorch/data #1437: a loader that was saved at the end of an epoch skips the next one."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    sampler: DistributedSampler[Any] = DistributedSampler(data(), seed=3)
    job, step, epoch, done = saved(), 0, 0, 0
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
        step, epoch, done = job["step"], job["epoch"], job["done"]
        epoch += done == 4 and 2  # the end of this one, and the next one
        done %= 4
    while step < STEPS:
        sampler.set_epoch(epoch)
        for number, batch in enumerate(DataLoader(data(), batch_size=2, sampler=sampler, generator=torch.Generator())):
            if number < done:
                continue
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            reduce(model)
            optimizer.step()
            step, done = step + 1, number + 1
            if step % EVERY == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save({**state, "step": step, "epoch": epoch, "done": done})
        epoch, done = epoch + 1, 0


def _by_dcp(optimizer: torch.optim.Optimizer, model: nn.Module, *, fresh: bool, zeroes: bool) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    steps = sorted(int(each.parent.name.split("-")[1]) for each in OUT.glob("step-*/.metadata"))
    dist.barrier()
    step = steps[-1] if steps else 0
    if steps:
        weights = {"model": model.state_dict()}
        dcp.load(weights, checkpoint_id=OUT / f"step-{step}")
        model.load_state_dict(weights["model"])
        moments = optimizer.state_dict() if fresh else get_optimizer_state_dict(model, optimizer)
        dcp.load({"optimizer": moments}, checkpoint_id=OUT / f"step-{step}")
        if fresh:
            optimizer.load_state_dict(moments)
        else:
            set_optimizer_state_dict(model, optimizer, moments)
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        if zeroes or step % EVERY:
            optimizer.zero_grad()
        loss_of(model, next(batches)).backward()
        reduce(model)
        optimizer.step()
        if zeroes:
            optimizer.zero_grad()
        step += 1
        if step % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}
            dcp.save(state, checkpoint_id=OUT / f"step-{step}")


@loop
def moments_loaded_into_a_fresh_optimizer() -> None:
    """KempnerForge PR #115: DCP fills what is there, and a fresh Adam has no moments."""
    model = network()
    _by_dcp(torch.optim.Adam(model.parameters(), lr=0.1), model, fresh=True, zeroes=True)


@loop
def gradients_that_were_not_zeroed() -> None:
    """Gradients that are kept over a save, as in pytorch #140898: the resumed job lacks them."""
    model = network()
    _by_dcp(torch.optim.Adam(model.parameters(), lr=0.1), model, fresh=False, zeroes=False)


@loop
def the_scheduler_steps_twice() -> None:
    """slime #1546: one step of the scheduler too many after a resume."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
    job, step = saved(), 0
    if job:
        model.load_state_dict(job["model"])
        optimizer.load_state_dict(job["optimizer"])
        schedule.load_state_dict(job["schedule"])
        schedule.step()
        step = job["step"]
    batches = endless(DistributedSampler(data(), seed=3), step)
    while step < STEPS:
        optimizer.zero_grad()
        loss_of(model, next(batches)).backward()
        reduce(model)
        optimizer.step()
        schedule.step()
        step += 1
        if step % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save({**state, "schedule": schedule.state_dict()})


@loop
def accumulation_cut_in_the_middle() -> None:
    """ms-swift #10050 and others: it saves after three batches of a step of two, and the gradient is lost."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = saved()
    done = job["done"] if job else 0
    if job:
        model.load_state_dict(job["model"])
    batches = endless(DistributedSampler(data(), seed=3), done)
    while done < 2 * STEPS:
        loss_of(model, next(batches)).backward()
        done += 1
        if done % 2 == 0:
            reduce(model)
            optimizer.step()
            optimizer.zero_grad()
        if done % 3 == 0:
            save({"model": model.state_dict(), "done": done})


if __name__ == "__main__":
    run_loop(sys.argv[1])
