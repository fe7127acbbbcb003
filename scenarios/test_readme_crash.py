import os

import torch

import racecheck


@racecheck.scenario(
    ranks=1,
    faults=("crash",),
    invariants=(*racecheck.DEFAULT, racecheck.durable_after_ack, racecheck.old_survives),
    expected=racecheck.Verdict.FAIL,
    breaks="durable-after-ack",
)
def publish(rank):
    for step in (1, 2):
        state = {"weight": torch.full((4,), float(step))}
        rank.saved(state, step=step)  # what the checkpoint is to hold
        torch.save(state, rank.path / "new.pt")
        os.replace(rank.path / "new.pt", rank.path / "model.pt")
        rank.acked(step=step, at=rank.path / "model.pt")  # from here on the job counts on it


@publish.recover
def resume(rank):  # on each disk that a crash can leave
    if (rank.path / "model.pt").exists():
        state = torch.load(rank.path / "model.pt")
        rank.loaded(state, step=int(state["weight"][0]))


@racecheck.scenario(ranks=1, faults=("crash",), invariants=publish.invariants)
def synced(rank):
    for step in (1, 2):
        state = {"weight": torch.full((4,), float(step))}
        rank.saved(state, step=step)
        with open(rank.path / "new.pt", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(rank.path / "new.pt", rank.path / "model.pt")
        directory = os.open(rank.path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        rank.acked(step=step, at=rank.path / "model.pt")


synced.recover(resume)


def test_publish(racecheck):
    racecheck.finds(publish)


def test_synced(racecheck):
    racecheck.check(synced)
