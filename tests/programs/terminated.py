"""Scenarios whose rank 0 is asked to end, and has a minute.  Not collected by pytest.

They run under control, where a sleep takes virtual time: nothing here waits.
"""

import signal
import threading
import time

from racecheck import Rank, scenario

FAULT = "term on open asked.0 seconds=60"


def begin(rank: Rank) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    (rank.path / f"asked.{rank.rank}").touch()


@scenario(ranks=1, faults=[FAULT])
def ends_at_once(rank: Rank) -> None:
    begin(rank)


@scenario(ranks=2, faults=[FAULT])
def ends_beside_a_sleeper(rank: Rank) -> None:
    begin(rank)
    if rank.rank == 1:
        time.sleep(300)
        (rank.path / "late").touch()


@scenario(ranks=2, faults=[FAULT])
def ends_with_others(rank: Rank) -> None:
    import torch.distributed as dist

    begin(rank)
    dist.barrier()


@scenario(ranks=1, faults=[FAULT])
def sleeps(rank: Rank) -> None:
    begin(rank)
    time.sleep(300)


@scenario(ranks=1, faults=[FAULT])
def leaves_a_thread(rank: Rank) -> None:
    begin(rank)
    threading.Thread(target=time.sleep, args=(300,)).start()


@scenario(ranks=2, faults=[FAULT])
def waits(rank: Rank) -> None:
    """For one that sleeps longer."""
    import torch.distributed as dist

    begin(rank)
    if rank.rank == 1:
        time.sleep(300)
    dist.barrier()


@scenario(ranks=2, faults=[FAULT], collectives="weakest")
def ends_before_its_peer_comes(rank: Rank) -> None:
    """Rank 0 returns from the broadcast early; racecheck holds it at its end until the other one has come."""
    import torch
    import torch.distributed as dist

    begin(rank)
    if rank.rank == 1:
        time.sleep(300)
    dist.broadcast(torch.zeros(1), src=0)
