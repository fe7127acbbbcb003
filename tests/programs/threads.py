"""Scenarios whose ranks have threads and child processes.  Not collected by pytest."""

import ctypes
import hashlib
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from racecheck import Rank, scenario


def fill(path: Path, pieces: int = 3) -> str:
    with path.open("wb", buffering=0) as file:
        for piece in range(pieces):
            file.write(bytes([piece]))
    return path.name


@scenario(ranks=2)
def two_writers(rank: Rank) -> list[int]:
    """Two threads of each rank write a file each, and the main one lists."""
    threads = [threading.Thread(target=fill, args=(rank.path / f"{rank.rank}{name}",)) for name in "ab"]
    for each in threads:
        each.start()
    found = len(os.listdir(rank.path))
    for each in threads:
        each.join()
    return [found <= 4, len(os.listdir(rank.path)) >= 2]


@scenario(ranks=2)
def pool(rank: Rank) -> list[str]:
    """More work than workers."""
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(lambda name: fill(rank.path / f"{rank.rank}{name}"), "abcde"))


@scenario(ranks=2)
def nested(rank: Rank) -> None:
    """A thread that starts threads."""

    def branch(depth: int, name: str) -> None:
        (rank.path / name).touch()
        if depth:
            children = [threading.Thread(target=branch, args=(depth - 1, f"{name}{each}")) for each in "xy"]
            for child in children:
                child.start()
            for child in children:
                child.join()

    branch(2, str(rank.rank))


@scenario(ranks=2)
def children(rank: Rank) -> list[str]:
    """Programs and a forked process, as parts of their rank."""
    source, target = rank.path / f"from{rank.rank}", rank.path / f"to{rank.rank}"
    source.mkdir()
    for name in "ab":
        (source / name).write_text(name)
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["rm", "-rf", source], check=True)
    pid = os.fork()
    if pid == 0:
        (target / "forked").touch()
        os._exit(0)
    os.waitpid(pid, 0)
    code = "import sys; open(sys.argv[1] + '/python', 'w').close()"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, target], check=True)
    return sorted(os.listdir(target))


@scenario(ranks=2)
def async_save(rank: Rank) -> list[str]:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {f"own{rank.rank}": torch.full((64,), float(rank.rank)), "common": torch.ones(64)}
    future = dcp.async_save(state, checkpoint_id=rank.path / "ckpt")
    future.result()
    return sorted(os.listdir(rank.path / "ckpt"))


@scenario(ranks=2)
def random_in_threads(rank: Rank) -> list[str]:
    """What threads draw comes from the seed, for each its own."""
    found: dict[int, str] = {}

    def draw(number: int) -> None:
        found[number] = f"{uuid.uuid4()} {os.urandom(4).hex()} {random.SystemRandom().random()}"
        (rank.path / found[number].split()[0]).touch()

    threads = [threading.Thread(target=draw, args=(each,)) for each in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [found[each] for each in range(3)]


@scenario(ranks=2)
def same_group_in_two_threads(rank: Rank) -> None:
    """Which of two threads comes first with a collective differs from rank to rank."""
    import torch
    import torch.distributed as dist

    def save() -> None:
        (rank.path / f"shard{rank.rank}").touch()
        dist.barrier()

    thread = threading.Thread(target=save)
    thread.start()
    (rank.path / f"log{rank.rank}").touch()
    dist.all_reduce(torch.ones(1))
    thread.join()


@scenario(ranks=1)
def deadlock_in_threads(rank: Rank) -> None:
    """A thread waits for a lock that is never given back."""
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    (rank.path / "x").touch()
    thread.join()


@scenario(ranks=4)
def destroyed_groups(rank: Rank) -> None:
    """Destroying a group waits for a thread of gloo's, which looks around a hundred times a second."""
    import torch
    import torch.distributed as dist

    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank.rank // 2]
    dist.all_reduce(torch.ones(1), group=mine)
    dist.destroy_process_group(mine)
    dist.barrier()


@scenario(ranks=2)
def polled_child(rank: Rank) -> int:
    """Whether a child has ended is asked again and again."""
    child = subprocess.Popen(["cp", "/proc/version", rank.path / f"copy{rank.rank}"])
    asked = 0
    while child.poll() is None:
        asked += 1
        (rank.path / f"asked{rank.rank}").touch()
    return child.returncode


@scenario(ranks=3)
def lock_beside_a_sleeper(rank: Rank) -> int:
    """A rank that sleeps for an hour lets no time limit of the others run out."""
    import filelock

    if rank.rank == 2:
        time.sleep(3600)
        return 0
    with filelock.FileLock(rank.path / "lock", timeout=10):
        (rank.path / "file").touch()
    return 1


def put(queue: "multiprocessing.Queue[int]") -> None:
    queue.put(7)


@scenario(ranks=2)
def queue_of_processes(rank: Rank) -> int:
    """Its semaphores are files in /dev/shm, which no other process knows."""
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=put, args=(queue,))
    process.start()
    got = queue.get()
    process.join()
    return got


@scenario(ranks=1)
def unseen_grandchild(rank: Rank) -> int:
    """A shell starts another, which does nothing that is seen; both have ended before the rank starts the next."""
    subprocess.run(["sh", "-c", "(:); :"], check=True)
    return subprocess.run(["touch", rank.path / "later"], check=True).returncode


@scenario(ranks=1)
def busy_child(rank: Rank) -> None:
    """A process that works for a while before it does anything that is seen; the rank does something meanwhile."""
    child = os.fork()
    if child == 0:
        sum(range(10_000_000))
    (rank.path / f"of {'child' if child == 0 else 'rank'}").touch()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@scenario(ranks=1)
def thread_of_c(rank: Rank) -> None:
    """A thread that knows nothing of Python removes a directory."""
    (rank.path / "old").mkdir()
    process, thread = ctypes.CDLL(None), ctypes.c_ulong()
    path = ctypes.create_string_buffer(os.fsencode(rank.path / "old"))
    process.pthread_create(ctypes.byref(thread), None, process.remove, path)  # unlink, then rmdir
    process.pthread_join(thread, None)


@scenario(ranks=2)
def waits_beyond_the_end(rank: Rank) -> None:
    """A daemon thread would wait for an hour: it ends with its process."""

    def wait() -> None:
        (rank.path / f"f{rank.rank}").touch()
        begun.set()
        threading.Event().wait(3600)
        (rank.path / "never").touch()

    begun = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    begun.wait()


@scenario(ranks=2)
def uploads(rank: Rank) -> None:
    """torch.save keeps the GIL while its file is opened and written, and the main thread wants it."""
    import torch
    import torch.distributed as dist

    path = rank.path / "checkpoint"
    path.mkdir(exist_ok=True)
    state = {"w": torch.full((4,), float(rank.rank))}
    upload = threading.Thread(target=torch.save, args=(state, path / f"shard{rank.rank}.pt"))
    upload.start()
    if rank.rank == 0:
        upload.join()
    dist.barrier()
    upload.join()


@scenario(ranks=2)
def three_savers(rank: Rank) -> None:
    """Several threads want the GIL at once."""
    import torch

    with ThreadPoolExecutor(3) as workers:
        paths = [rank.path / f"{rank.rank}{name}.pt" for name in "abc"]
        list(workers.map(lambda path: torch.save({"w": torch.ones(2)}, path), paths))


@scenario(ranks=2)
def changes_after_waking(rank: Rank) -> None:
    """The main thread wakes another, works without the GIL for a while, and then changes what the other reads."""
    told, begun, value = threading.Event(), threading.Event(), [0]

    def save() -> None:
        begun.set()
        told.wait()
        (rank.path / f"{rank.rank}-{value[0]}").touch()

    thread = threading.Thread(target=save)
    thread.start()
    begun.wait()
    told.set()
    hashlib.sha256(bytes(1 << 25))
    value[0] = 1
    (rank.path / f"main{rank.rank}").touch()
    thread.join()


@scenario(ranks=1)
def computes(rank: Rank) -> None:
    """A thread computes until the main one, which it has woken, tells it to stop."""
    ready, told = threading.Event(), list[bool]()

    def work() -> None:
        ready.set()
        while not told:
            pass

    worker = threading.Thread(target=work)
    worker.start()
    ready.wait()
    told.append(True)
    worker.join()


@scenario(ranks=1)
def interval(rank: Rank) -> tuple[bool, int]:
    """The switch interval and the processors that a program finds."""
    return sys.getswitchinterval() == 0.005, len(os.sched_getaffinity(0))


@scenario(ranks=1)
def executed_by_a_thread(rank: Rank) -> None:
    """A thread executes a program while the main one is about to make files; the program gets the main one's number."""

    def execute() -> None:
        (rank.path / "before").touch()
        made = str(rank.path / "after")
        os.execv(sys.executable, [sys.executable, "-c", f"open({made!r}, 'w').close()"])

    thread = threading.Thread(target=execute)
    thread.start()
    for number in range(3):
        (rank.path / f"main{number}").touch()
    thread.join()
