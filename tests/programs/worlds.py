"""Small scenarios for the tests of the world: collectives, deadlocks, deaths.  Not collected by pytest."""

import ctypes
import os
import signal
import time

from racecheck import Rank, scenario


@scenario(ranks=2)
def every_collective(rank: Rank) -> int:
    """One collective of each kind, synchronous and asynchronous, on the world and on a sub-group; returns how many."""
    import torch
    import torch.distributed as dist

    size, me = rank.world_size, rank.rank
    one, parts = torch.ones(2), [torch.zeros(2) for _ in range(size)]
    dist.barrier()
    dist.all_reduce(one.clone())
    dist.broadcast(one.clone(), src=0)
    dist.reduce(one.clone(), dst=0)
    dist.all_gather(parts, one)
    dist.all_gather_into_tensor(torch.zeros(2 * size), one)
    dist.gather(one, parts if me == 0 else None, dst=0)
    dist.scatter(torch.zeros(2), parts if me == 0 else None, src=0)
    dist.all_to_all_single(torch.zeros(2 * size), torch.ones(2 * size))
    dist.all_to_all(parts, [torch.ones(2) for _ in range(size)])
    dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2 * size))
    dist.reduce_scatter(torch.zeros(2), [torch.ones(2) for _ in range(size)])
    dist.monitored_barrier()
    dist.all_gather_object([None] * size, {"rank": me})
    dist.broadcast_object_list([me], src=1)
    dist.gather_object(me, [None] * size if me == 0 else None, dst=0)
    dist.scatter_object_list([None], list(range(size)) if me == 0 else None, src=0)
    work = dist.all_reduce(one.clone(), async_op=True)
    assert work is not None
    work.wait()
    return 18


@scenario(ranks=2)
def point_to_point(rank: Rank) -> float:
    import torch
    import torch.distributed as dist

    tensor = torch.full((4,), float(rank.rank))
    if rank.rank == 0:
        dist.send(tensor, dst=1)
        works = [dist.isend(tensor, dst=1, tag=7), dist.irecv(tensor, src=1, tag=8)]
        for work in works:
            assert work is not None
            work.wait()
    else:
        dist.recv(tensor, src=0)
        dist.recv(tensor, src=0, tag=7)
        dist.send(tensor + 1, dst=0, tag=8)
    return float(tensor.sum())


@scenario(ranks=4)
def sub_groups(rank: Rank) -> list[float]:
    """Two groups made on the way; a barrier in each, then one of all."""
    import torch
    import torch.distributed as dist

    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank.rank // 2]
    value = torch.full((1,), float(rank.rank))
    dist.all_reduce(value, group=mine)
    dist.barrier(group=mine)
    (rank.path / f"done{rank.rank}").write_text("x")
    dist.barrier()
    return [float(value), float(len(os.listdir(rank.path)))]


@scenario(ranks=2)
def functional(rank: Rank) -> float:
    """DTensor's collectives go through the dispatcher."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (rank.world_size,))
    tensor = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    return float(tensor.full_tensor().sum())


@scenario(ranks=2)
def one_returns(rank: Rank) -> None:
    """Rank 0 forgets the barrier."""
    import torch.distributed as dist

    (rank.path / str(rank.rank)).mkdir()
    if rank.rank == 1:
        dist.barrier()


@scenario(ranks=2)
def one_raises(rank: Rank) -> None:
    """Rank 1 fails; rank 0 is in the barrier and hears of it."""
    import torch.distributed as dist

    if rank.rank == 1:
        raise ValueError("no such thing")
    dist.barrier()


@scenario(ranks=2)
def crossed(rank: Rank) -> None:
    """Each receives before it sends."""
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(1), src=1 - rank.rank)
    dist.send(torch.zeros(1), dst=1 - rank.rank)


@scenario(ranks=2)
def mismatched(rank: Rank) -> None:
    import torch
    import torch.distributed as dist

    if rank.rank == 0:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(1))


@scenario(ranks=2)
def other_root(rank: Rank) -> None:
    import torch
    import torch.distributed as dist

    dist.broadcast(torch.ones(1), src=rank.rank)


@scenario(ranks=2)
def crashes(rank: Rank) -> None:
    if rank.rank == 1:
        ctypes.string_at(0)


@scenario(ranks=2)
def leaves(rank: Rank) -> None:
    if rank.rank == 1:
        os._exit(3)


@scenario(ranks=2, timeout=1.0)
def spins(rank: Rank) -> None:
    while rank.rank == 1:
        pass


@scenario(ranks=2, max_ops=200)
def polls(rank: Rank) -> None:
    """It may give up some day, for it looks at a clock."""
    while rank.rank == 1 and time.monotonic() > 0 and not (rank.path / "never").exists():
        time.sleep(1)


@scenario(ranks=2)
def writes_outside(rank: Rank) -> None:
    outside = rank.path.parent.parent / "outside"
    with outside.open("w") as file:
        file.write("x")
    outside.unlink()


@scenario(ranks=2)
def sleeps(rank: Rank) -> None:
    time.sleep(3600)
    (rank.path / str(rank.rank)).mkdir()


@scenario(ranks=2)
def unclosed(rank: Rank) -> None:
    """A file that is never closed gets its bytes when the process ends."""
    global kept
    kept = open(rank.path / f"latest{rank.rank}", "w")  # noqa: SIM115
    kept.write("step 6")


@scenario(ranks=2)
def puts_back_handlers(rank: Rank) -> int:
    """As Lightning's Trainer does at the end of a fit."""
    before = {each: signal.getsignal(each) for each in signal.valid_signals()}
    for number, handler in before.items():
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    (rank.path / str(rank.rank)).mkdir()
    return len(before)


@scenario(ranks=2)
def one_is_killed(rank: Rank) -> None:
    (rank.path / str(rank.rank)).mkdir()
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@scenario(ranks=2)
def dies_of_a_stack(rank: Rank) -> None:
    """Its process ends when it is asked for its stack."""
    ctypes.CDLL(None).signal(62, 0)
    (rank.path / str(rank.rank)).mkdir()


@scenario(ranks=2)
def returns_nonsense(rank: Rank) -> object:
    return object()


@scenario(ranks=2)
def locks(rank: Rank) -> None:
    """Mutual exclusion by flock: with it, nobody sees the other's file."""
    import fcntl

    with (rank.path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mine = rank.path / "inside"
        mine.mkdir()
        mine.rmdir()


@scenario(ranks=2)
def random_names(rank: Rank) -> list[str]:
    import random
    import tempfile
    import uuid

    handle, name = tempfile.mkstemp()
    os.close(handle)
    return [str(uuid.uuid4()), str(random.random()), os.path.basename(name)]


@scenario(ranks=2)
def large_broadcast(rank: Rank) -> float:
    """More than any socket buffer holds: the root really waits for the others."""
    import torch
    import torch.distributed as dist

    tensor = torch.full((4_000_000,), float(rank.rank + 1))
    if rank.rank == 1:
        (rank.path / "late").mkdir()
        (rank.path / "later").mkdir()
    dist.broadcast(tensor, src=0)
    if rank.rank == 0:
        (rank.path / "sent").mkdir()
    return float(tensor.sum())


@scenario(ranks=2)
def subprocesses(rank: Rank) -> list[str]:
    import subprocess

    mine = rank.path / str(rank.rank)
    mine.mkdir()
    (mine / "a").write_text("hello")
    copy = rank.path / f"copy{rank.rank}"
    subprocess.run(["cp", "-r", str(mine), str(copy)], check=True)
    subprocess.run(f"echo more > '{copy}/b'; rm '{copy}/b'", shell=True, check=True)
    return os.listdir(copy)


@scenario(ranks=1)
def bad_setup(rank: Rank) -> None:
    pass


@bad_setup.setup
def divide(path: object) -> None:
    1 / 0  # noqa: B018


@scenario(ranks=1)
def hangs(rank: Rank) -> None:
    """Starts a process that detaches itself and waits forever; then runs forever."""
    import signal

    if os.fork() == 0:
        os.setsid()
        signal.pause()
    (rank.path / "detached").mkdir()
    while True:
        pass


@scenario(ranks=1)
def writes_much(rank: Rank) -> None:
    (rank.path / "much").write_bytes(bytes(2 << 20))


@scenario(ranks=2)
def many_open_files(rank: Rank) -> int:
    """More open files than the supervisor may have in the test, fewer than the rank may."""
    files = [(rank.path / f"{rank.rank}.{number}").open("w") for number in range(150)]
    return len(files)


@scenario(ranks=2)
def broadcast_to_nobody(rank: Rank) -> None:
    import torch
    import torch.distributed as dist

    if rank.rank == 0:
        dist.broadcast(torch.ones(4), src=0)


@scenario(ranks=3)
def survivors_go_on(rank: Rank) -> str:
    """Rank 2 forgets the barrier; the others hear of it and make the same directory."""
    import torch.distributed as dist

    if rank.rank == 2:
        return "early"
    try:
        dist.barrier()
    except RuntimeError:
        if not (rank.path / "fallback").exists():
            (rank.path / "fallback").mkdir()
        return "alone"
    return "together"


@scenario(ranks=2)
def handler_fails(rank: Rank) -> None:
    """Rank 1 never comes, and rank 0 fails in another way when it hears of that."""
    import torch.distributed as dist

    if rank.rank == 1:
        return
    try:
        dist.barrier()
    except RuntimeError:
        raise ValueError("no fallback") from None


@scenario(ranks=2)
def polls_what_has_failed(rank: Rank) -> str:
    """Rank 1 never comes; rank 0 asks until its part is over, and then how."""
    import torch
    import torch.distributed as dist

    if rank.rank == 1:
        return "early"
    work = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        time.sleep(0.1)
    try:
        work.wait()
    except RuntimeError:
        return "alone"
    return "together"


@scenario(ranks=2)
def fails_at_the_top(rank: Rank) -> None:
    """Rank 0 makes the watched directory, rank 1 removes what there is not in its TMPDIR."""
    if rank.rank == 0:
        os.mkdir(rank.path)
    else:
        os.unlink(os.path.join(os.environ["TMPDIR"], "none"))


@scenario(ranks=2)
def fails_before_backward(rank: Rank) -> None:
    """Rank 1 never comes to the all-reduce that is in DDP's backward."""
    import torch

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(1, 4)).sum()
    if rank.rank:
        raise ValueError("no such thing")
    loss.backward()


@scenario(ranks=2)
def link_twice(rank: Rank) -> None:
    os.symlink("target", rank.path / "link")


@scenario(ranks=2)
def unseeded(rank: Rank) -> list[float]:
    """Drawn by generators that nobody has seeded."""
    import random

    import numpy as np
    import torch

    return [random.random(), float(np.random.rand()), float(torch.rand(1))]


@scenario(ranks=2)
def ddp(rank: Rank) -> float:
    """Two steps of training; the reducer's collectives are C++'s own."""
    import torch

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(sum(each.sum() for each in model.parameters()))


@scenario(ranks=2)
def lock_kept_to_the_end(rank: Rank) -> str:
    """Nobody gives the lock back: it goes with the process."""
    import fcntl

    fcntl.flock(os.open(rank.path / "lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
    with (rank.path / "order").open("a") as file:
        file.write(str(rank.rank))
    return (rank.path / "order").read_text()


@scenario(ranks=2)
def one_leaves_the_group(rank: Rank) -> bool:
    """Rank 1 leaves the group and makes a file; rank 0 hears that it has left, and looks for the file."""
    import torch.distributed as dist

    dist.barrier()
    if rank.rank == 1:
        dist.destroy_process_group()
        (rank.path / "file").touch()
        return True
    try:
        dist.barrier()
    except RuntimeError:
        return (rank.path / "file").exists()
    return False


@scenario(ranks=2)
def group_made_again(rank: Rank) -> list[float]:
    """Process groups of the same name, one after the other; rank 1 comes late to their collectives, with a file."""
    import torch
    import torch.distributed as dist

    store, sums = dist.distributed_c10d._get_default_store(), []
    for turn in range(3):
        dist.destroy_process_group()
        own = dist.PrefixStore(str(turn), store)
        dist.init_process_group("gloo", store=own, rank=rank.rank, world_size=rank.world_size)
        if rank.rank == 1:
            (rank.path / str(turn)).touch()
        one = torch.ones(1)
        dist.all_reduce(one)
        assert (rank.path / str(turn)).exists()
        sums.append(one.item())
    return sums
