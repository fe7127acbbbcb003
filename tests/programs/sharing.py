"""Programs whose outcome depends on the order of one rank's threads and processes, or on the store.

Sleeps are in virtual time and take none.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import queue
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from racecheck import Rank, scenario


def _thread(rank: Rank, name: str = "file") -> threading.Thread:
    """A thread that makes a directory."""
    thread = threading.Thread(target=(rank.path / name).mkdir)
    thread.start()
    return thread


@scenario(ranks=1)
def is_alive(rank: Rank) -> bool:
    thread = _thread(rank)
    alive = thread.is_alive()
    thread.join()
    return alive


@scenario(ranks=1)
def future_done(rank: Rank) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit((rank.path / "file").mkdir).done()


@scenario(ranks=1)
def event_is_set(rank: Rank) -> bool:
    told = threading.Event()
    thread = threading.Thread(target=lambda: ((rank.path / "file").mkdir(), told.set()))
    thread.start()
    was_told = told.is_set()
    thread.join()
    return was_told


@scenario(ranks=1)
def queue_empty(rank: Rank) -> bool:
    items: queue.Queue[None] = queue.Queue()
    thread = threading.Thread(target=lambda: items.put((rank.path / "file").mkdir()))
    thread.start()
    empty = items.empty()
    thread.join()
    return empty


@scenario(ranks=1)
def process_poll(rank: Rank) -> bool:
    child = subprocess.Popen([sys.executable, "-S", "-c", f"import os; os.mkdir({str(rank.path / 'file')!r})"])
    running = child.poll() is None
    child.wait()
    return running


@scenario(ranks=1)
def waited_without_hang(rank: Rank) -> bool:
    child = os.fork()
    if not child:
        (rank.path / "file").mkdir()
        os._exit(0)
    running = os.waitpid(child, os.WNOHANG) == (0, 0)
    if running:
        os.waitpid(child, 0)
    return running


@scenario(ranks=1)
def two_threads(rank: Rank) -> bool:
    """Which of two ops of one rank comes first is a choice."""
    thread = _thread(rank)
    seen = (rank.path / "file").exists()
    thread.join()
    return seen


@scenario(ranks=1)
def changed_beside_a_sleep(rank: Rank) -> bool:
    """The main thread sleeps, then changes what its other thread names its second directory after."""
    changed = [False]

    def work() -> None:
        (rank.path / "first").mkdir()
        (rank.path / f"{changed[0]}").mkdir()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    changed[0] = True
    thread.join()
    return (rank.path / "True").exists()


@scenario(ranks=1)
def daemon_cut(rank: Rank) -> None:
    """The interpreter may end before, between and after the two ops of a daemon thread."""
    threading.Thread(
        target=lambda: ((rank.path / "first").mkdir(), (rank.path / "second").mkdir()), daemon=True
    ).start()


@scenario(ranks=1)
def killed_child(rank: Rank) -> None:
    child = os.fork()
    if not child:
        (rank.path / "first").mkdir()
        (rank.path / "second").mkdir()
        os._exit(0)
    os.kill(child, 9)
    os.waitpid(child, 0)


@scenario(ranks=2)
def steers_a_collective(rank: Rank) -> None:
    """Rank 0 goes into a barrier only if its thread is done in time; rank 1 always does."""
    thread = _thread(rank, f"file{rank.rank}")
    if rank.rank or not thread.is_alive():
        dist.barrier()
    thread.join()


@scenario(ranks=1)
def unchanged_for_a_second(rank: Rank) -> bool:
    """A file whose size stays the same for a second is taken for complete: it may not be."""
    path = rank.path / "file"
    path.write_bytes(b"x")
    thread = threading.Thread(target=lambda: path.write_bytes(b"xy"))
    thread.start()
    before = path.stat().st_size
    time.sleep(1)
    stable = path.stat().st_size == before
    whole = path.stat().st_size == 2
    thread.join()
    return stable and not whole


@scenario(ranks=2)
def gives_up(rank: Rank) -> bool:
    """Rank 1 asks three times whether rank 0 has made a directory, and then does without."""
    if rank.rank == 0:
        (rank.path / "file").mkdir()
        return True
    for _ in range(3):
        if (rank.path / "file").exists():
            return True
        time.sleep(0.1)
    return False


@scenario(ranks=3)
def two_sets(rank: Rank) -> str:
    store = dist.distributed_c10d._get_default_store()
    if rank.rank < 2:
        store.set("key", str(rank.rank))
        return ""
    return str(store.get("key").decode())


@scenario(ranks=3)
def two_sets_of_a_tcp_store(rank: Rank) -> str:
    store = dist.TCPStore("localhost", 29501, 3, rank.rank == 0)
    if rank.rank < 2:
        store.multi_set(["key", f"other{rank.rank}"], [str(rank.rank), ""])
        return ""
    return str(store.get("key").decode())


@scenario(ranks=2)
def waits_for_a_key(rank: Rank) -> str:
    """Rank 0 gets its key before or after what its other thread does, whenever rank 1 sets it."""
    store = dist.distributed_c10d._get_default_store()
    if rank.rank == 1:
        store.set("key", "")
        return ""
    order = []
    thread = threading.Thread(target=lambda: ((rank.path / "file").mkdir(), order.append("file")))
    thread.start()
    store.get("key")
    order.append("key")
    thread.join()
    return " ".join(order)


@scenario(ranks=2)
def compared(rank: Rank) -> str:
    store = dist.distributed_c10d._get_default_store()
    return str(store.compare_set("key", "", str(rank.rank)).decode())


@scenario(ranks=2)
def deleted(rank: Rank) -> bool:
    store = dist.distributed_c10d._get_default_store()
    if rank.rank == 0:
        store.set("key", "")
        return store.delete_key("key")
    return store.check(["key"])


@scenario(ranks=2)
def torn_mapping(rank: Rank) -> str:
    """Rank 1 maps a file and reads it later; rank 0 overwrites it meanwhile."""
    path = rank.path / "file"
    if rank.rank == 0:
        path.write_bytes(b"old.old.")
    dist.barrier()
    if rank.rank == 0:
        with path.open("r+b") as file:
            file.write(b"new.new.")
        return ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as mapped:
        first = mapped[:4]
        (rank.path / "other").mkdir()
        return (first + mapped[4:]).decode()


@scenario(ranks=2)
def mapped_after_writing(rank: Rank) -> str:
    path = rank.path / "file"
    if rank.rank == 0:
        path.write_bytes(b"old.old.")
    dist.barrier()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as mapped:
        return mapped[:].decode()


@scenario(ranks=2)
def moved_working_directory(rank: Rank) -> str:
    """Rank 1 asks where it is while rank 0 renames its directory."""
    if rank.rank == 1:
        (rank.path / "before").mkdir()
        os.chdir(rank.path / "before")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "before").rename(rank.path / "after")
        return ""
    return os.path.basename(os.getcwd())


@scenario(ranks=2)
def moved_beside_a_link(rank: Rank) -> str:
    """Rank 1 asks a link of /proc what its directory is called."""
    if rank.rank == 1:
        (rank.path / "before").mkdir()
        opened = os.open(rank.path / "before", os.O_RDONLY)
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "before").rename(rank.path / "after")
        return ""
    return os.path.basename(os.readlink(f"/proc/self/fd/{opened}"))


@scenario(ranks=2)
def executed_while_written(rank: Rank) -> int:
    """Rank 1 executes a script that rank 0 appends to."""
    path = rank.path / "script"
    if rank.rank == 1:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o700)
    dist.barrier()
    if rank.rank == 0:
        with path.open("a") as file:
            file.write("exit 0\n")
        return 0
    try:
        return subprocess.run([str(path)], check=False).returncode
    except OSError as error:
        return -(error.errno or 0)


@scenario(ranks=2, nodes=2, storage="nfs")
def two_append(rank: Rank) -> None:
    with (rank.path / "file").open("ab") as file:
        file.write(b"x")


@scenario(ranks=2, nodes=2, storage="nfs")
def replaced_link(rank: Rank) -> None:
    """Rank 1 follows a link that rank 0 replaces."""
    latest = rank.path / "latest"
    if rank.rank == 0:
        for name in ("a", "b"):
            (rank.path / name).mkdir()
        latest.symlink_to("a")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "new").symlink_to("b")
        (rank.path / "new").rename(latest)
    else:
        os.listdir(latest)


@scenario(ranks=2, nodes=2, storage="nfs")
def moved_aside(rank: Rank) -> None:
    """Rank 1 opens a file that rank 0 renames."""
    path = rank.path / "file"
    if rank.rank == 0:
        path.touch()
    dist.barrier()
    if rank.rank == 0:
        path.rename(rank.path / "moved")
    elif path.exists():
        with suppress(FileNotFoundError):
            path.read_bytes()


@scenario(ranks=2)
def limited_key(rank: Rank) -> str:
    """Rank 0 waits half a second for a key that nobody sets."""
    if rank.rank:
        return ""
    try:
        dist.distributed_c10d._get_default_store().wait(["key"], timedelta(seconds=0.5))
    except RuntimeError:
        return "timed out"
    return "set"


@scenario(ranks=2, sizes={"seconds": 3})
def key_beside_a_sleep(rank: Rank) -> str:
    """Rank 0 waits some seconds for a key that rank 1 sets after ten."""
    store = dist.distributed_c10d._get_default_store()
    if rank.rank:
        time.sleep(10)
        store.set("key", "")
        return ""
    try:
        store.wait(["key"], timedelta(seconds=rank.sizes["seconds"]))
    except RuntimeError:
        return "timed out"
    return "set"


@scenario(ranks=2, sizes={"seconds": 3})
def barrier_beside_a_sleep(rank: Rank) -> str:
    """Rank 0 waits some seconds in a barrier to which rank 1 comes after ten."""
    if rank.rank:
        time.sleep(10)
    try:
        dist.barrier(async_op=True).wait(timedelta(seconds=rank.sizes["seconds"]))
    except RuntimeError:
        return "timed out"
    return "met"


@scenario(ranks=2)
def no_number(rank: Rank) -> str:
    store = dist.distributed_c10d._get_default_store()
    store.set(f"key{rank.rank}", "a")
    try:
        store.add(f"key{rank.rank}", 1)
    except RuntimeError:
        return "refused"
    return "added"


@scenario(ranks=2)
def limited_wait(rank: Rank) -> None:
    dist.barrier(async_op=True).wait(timedelta(seconds=1))


@scenario(ranks=2)
def looks_at_a_future(rank: Rank) -> None:
    work = dist.barrier(async_op=True)
    work.get_future().done()
    work.wait()


@scenario(ranks=2)
def signals_a_peer(rank: Rank) -> None:
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    if rank.rank == 0:
        os.kill(pids[1], signal.SIGCONT)


@scenario(ranks=2)
def sends_datagrams(rank: Rank) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))


@scenario(ranks=1)
def limited_pipe(rank: Rank) -> bool:
    """A thread writes to a pipe for which the main one waits a while."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=lambda: ((rank.path / "file").mkdir(), os.write(writing, b"x")))
    thread.start()
    found = bool(select.select([reading], [], [], 30)[0])
    thread.join()
    return found


@scenario(ranks=2)
def sub_group(rank: Rank) -> None:
    dist.barrier(group=dist.new_group([0, 1]))


@scenario(ranks=2)
def impatient_functional(rank: Rank) -> None:
    """C++ waits for this collective, and so the limit of the group does not end it in virtual time."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if rank.rank == 0:
        time.sleep(4)
    functional.wait_tensor(functional.all_reduce(torch.zeros(1), "sum", group))


def _meet(rank: Rank, late: float, group: dist.ProcessGroup | None = None) -> None:
    """Have rank 0 come to a barrier ``late`` seconds after the other one."""
    if rank.rank == 0:
        time.sleep(late)
    dist.barrier(group=group)


@scenario(ranks=2)
def impatient_group(rank: Rank) -> None:
    _meet(rank, 4, dist.new_group([0, 1], timeout=timedelta(seconds=3)))


@scenario(ranks=2)
def patient_group(rank: Rank) -> None:
    _meet(rank, 2, dist.new_group([0, 1], timeout=timedelta(seconds=3)))


@scenario(ranks=2)
def uploads_for_an_hour(rank: Rank) -> None:
    """The default group waits for half an hour."""
    _meet(rank, 3600)


@scenario(ranks=2)
def issues_and_works(rank: Rank) -> None:
    """The limit begins with the issue, not with the wait."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=5))
    if rank.rank == 0:
        time.sleep(7)
    work = dist.all_reduce(torch.zeros(1), group=group, async_op=True)
    if rank.rank == 1:
        time.sleep(4)
    work.wait()


@scenario(ranks=2)
def waits_for_nobody(rank: Rank) -> None:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=3))
    if rank.rank == 0:
        dist.barrier(group=group)


@scenario(ranks=2)
def nobody_comes(rank: Rank) -> str:
    """Rank 1 issues no part; rank 0 waits for a while."""
    work = dist.all_reduce(torch.zeros(1), async_op=True) if rank.rank == 0 else None
    try:
        return "nothing" if work is None else str(work.wait(timedelta(seconds=20)))
    except RuntimeError:
        return "gave up"


@scenario(ranks=2)
def reads_before_the_wait(rank: Rank) -> None:
    work = dist.all_reduce(torch.zeros(1), async_op=True)
    (rank.path / str(rank.rank)).mkdir()
    work.wait()


@scenario(ranks=2)
def never_waits(rank: Rank) -> None:
    dist.all_reduce(torch.zeros(1), async_op=True)
    dist.barrier()


@scenario(ranks=2)
def waits_in_a_thread(rank: Rank) -> float:
    """gloo's own threads make calls, too, just when the program starts a thread."""
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, async_op=True)
    thread = threading.Thread(target=work.wait)
    thread.start()
    thread.join()
    return tensor.item()


@scenario(ranks=1)
def uses_a_store(rank: Rank) -> list[object]:
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    store.set("a", "1")
    store.queue_push("queue", "first")
    found = [store.list_keys(), store.num_keys(), store.queue_len("queue"), store.queue_pop("queue").decode()]
    found += [store.clone().get("a").decode(), str(store.timeout)]
    store.set_timeout(timedelta(seconds=1))
    try:
        store.get("never")
    except dist.DistStoreError:
        return [*found, "timed out"]
    return found


@scenario(ranks=1)
def outlived_by_a_child(rank: Rank) -> None:
    """The child is busy for a while when its parent has gone."""
    if os.fork():
        signal.pause()
    os.kill(os.getppid(), signal.SIGKILL)
    for _ in range(10**6):
        pass
    (rank.path / "left").mkdir()
    os._exit(0)


@scenario(ranks=2)
def locked_until_an_exec(rank: Rank) -> str:
    """Rank 0's child takes a lock and executes a program, which closes the file."""
    if rank.rank == 0 and not os.fork():
        descriptor = os.open(rank.path / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.execvp("sh", ["sh", "-c", f"mkdir {rank.path}/begun; sleep 3"])
    while not (rank.path / "begun").exists():
        time.sleep(0.1)
    descriptor = os.open(rank.path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return "got it"


@scenario(ranks=2)
def reads_a_random_device(rank: Rank) -> list[str]:
    found = []
    for name in ("/dev/urandom", "/dev/random"):
        with Path(name).open("rb") as device:
            found.append(device.read(8).hex())
            assert len(device.read(1 << 20)) == 1 << 20
    (rank.path / str(rank.rank)).write_text(found[0])
    return found


@scenario(ranks=2)
def keeps_a_database(rank: Rank) -> int:
    """SQLite draws the numbers of its journals from /dev/urandom."""
    with closing(sqlite3.connect(rank.path / f"{rank.rank}.db")) as database:
        database.execute("create table steps (step)")
        database.execute("insert into steps values (1)")
        database.commit()
        return int(database.execute("select count(*) from steps").fetchone()[0])
