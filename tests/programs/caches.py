"""Scenarios on storage whose nodes have caches.

Sleeps are in virtual time: they take none.  Not collected by pytest.
"""

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

from racecheck import Rank, scenario


def _attempt(do: Callable[[], object]) -> object:
    try:
        return do()
    except OSError as error:
        import errno

        return errno.errorcode[error.errno or 0]


@scenario(ranks=2, nodes=2, storage="nfs")
def asked_before(rank: Rank) -> dict[str, object]:
    """Rank 1 has looked before rank 0 makes the file; then come barriers, and answers of all kinds."""
    import torch.distributed as dist

    path = rank.path / "ckpt" / "done"
    before = path.exists()
    dist.barrier()
    if rank.rank == 0:
        path.write_text("step 1")
    dist.barrier()
    found: dict[str, object] = {"before": before}
    if rank.rank == 1:
        found["exists"] = path.exists()
        found["opens"] = _attempt(path.read_text)
        found["listed"] = os.listdir(path.parent)
        found["then"] = path.exists()
    return found


@asked_before.setup
def a_directory(path: Path) -> None:
    (path / "ckpt").mkdir()


@scenario(ranks=2, nodes=2, storage="nfs")
def waits_a_minute(rank: Rank) -> list[bool]:
    import torch.distributed as dist

    path = rank.path / "done"
    found = [path.exists()]
    dist.barrier()
    if rank.rank == 0:
        path.touch()
    dist.barrier()
    time.sleep(29)
    found.append(path.exists())
    time.sleep(2)
    found.append(path.exists())
    return found


@scenario(ranks=2, nodes=2, storage="nfs")
def each_asks(rank: Rank) -> str:
    """A resume that each rank decides for itself: the classic deadlock."""
    import torch
    import torch.distributed as dist

    path = rank.path / "latest"
    if not path.exists() and rank.rank == 0:
        path.write_text("step 1")
    dist.barrier()
    if path.exists():
        dist.all_reduce(torch.ones(1))
        return "resumed"
    return "from scratch"


@scenario(ranks=2, nodes=2, storage="nfs")
def one_asks(rank: Rank) -> str:
    """The same, where rank 0 asks and tells the others."""
    import torch
    import torch.distributed as dist

    path = rank.path / "latest"
    if not path.exists() and rank.rank == 0:
        path.write_text("step 1")
    dist.barrier()
    answer = [path.exists() if rank.rank == 0 else None]
    dist.broadcast_object_list(answer, src=0)
    if answer[0]:
        dist.all_reduce(torch.ones(1))
        return "resumed"
    return "from scratch"


@scenario(ranks=2, nodes=2, storage="nfs")
def not_flushed(rank: Rank) -> list[object]:
    """Rank 0 writes, and closes only after rank 1 has looked."""
    import torch.distributed as dist

    path = rank.path / "f"
    found: list[object] = []
    if rank.rank == 0:
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(file, b"0123456789")
    dist.barrier()
    if rank.rank == 1:
        found = [path.stat().st_size, path.read_bytes().decode()]
    dist.barrier()
    if rank.rank == 0:
        os.close(file)
    dist.barrier()
    if rank.rank == 1:
        found += [path.read_bytes().decode()]
    return found


@scenario(ranks=2, nodes=2, storage="nfs")
def published_unsynced(rank: Rank) -> str:
    """A pointer is written before the shard that it names has been closed: only the pointer is sent."""
    import torch.distributed as dist

    if rank.rank == 0:
        with (rank.path / "shard").open("wb", buffering=0) as shard:
            shard.write(b"weights")
            (rank.path / "latest").write_text("shard")
            dist.barrier()
            dist.barrier()
        return ""
    dist.barrier()
    found = (rank.path / (rank.path / "latest").read_text()).read_text()
    dist.barrier()
    return found


@scenario(ranks=2, nodes=2, storage="nfs")
def published_closed(rank: Rank) -> str:
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / "shard").write_bytes(b"weights")
        (rank.path / "latest").write_text("shard")
    dist.barrier()
    return (rank.path / (rank.path / "latest").read_text()).read_text() if rank.rank == 1 else ""


@scenario(ranks=2, nodes=2, storage="nfs")
def removed_while_open(rank: Rank) -> dict[str, object]:
    """Each rank has the file open; rank 0 removes it and then the directory."""
    import torch.distributed as dist

    path = rank.path / "d" / "f"
    file = os.open(path, os.O_RDONLY)
    dist.barrier()
    found: dict[str, object] = {}
    if rank.rank == 0:
        path.unlink()
        found["left"] = [each[:4] for each in os.listdir(path.parent)]
        found["rmdir"] = _attempt(path.parent.rmdir)
        found["read"] = _attempt(lambda: os.read(file, 10).decode())
        os.close(file)
        found["after"] = os.listdir(path.parent)
    dist.barrier()
    if rank.rank == 1:
        found["read"] = _attempt(lambda: os.read(file, 10).decode())
    return found


@removed_while_open.setup
def an_old_file(path: Path) -> None:
    (path / "d").mkdir()
    (path / "d" / "f").write_text("old")


@scenario(ranks=2, nodes=2, storage="nfs")
def removed_elsewhere(rank: Rank) -> object:
    """Only rank 1 has it open, and rank 0 replaces it."""
    import torch.distributed as dist

    path = rank.path / "f"
    if rank.rank == 1:
        file = os.open(path, os.O_RDONLY)
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "g").write_text("new")
        (rank.path / "g").replace(path)
    dist.barrier()
    return [_attempt(lambda: os.read(file, 10).decode()), path.read_text()] if rank.rank == 1 else None


@removed_elsewhere.setup
def one_file(path: Path) -> None:
    (path / "f").write_text("old")


@scenario(ranks=2, nodes=2, storage="nfs")
def grows(rank: Rank) -> list[object]:
    """Rank 1 keeps a file open, stats it and reads it again; rank 0 has replaced its bytes meanwhile."""
    import torch.distributed as dist

    path = rank.path / "f"
    if rank.rank == 1:
        file = os.open(path, os.O_RDONLY)
        first = os.pread(file, 10, 0).decode()
        size = os.stat(path).st_size
    dist.barrier()
    if rank.rank == 0:
        path.write_text("newer")
    dist.barrier()
    if rank.rank == 0:
        return []
    return [first, size, os.stat(path).st_size, os.pread(file, 10, 0).decode(), path.read_text()]


@grows.setup
def a_file(path: Path) -> None:
    (path / "f").write_text("old")


@scenario(ranks=2, nodes=2, storage="nfs")
def reads_on(rank: Rank) -> list[str]:
    """Rank 1 has read all, and reads it again in pieces after rank 0 has replaced it."""
    import torch.distributed as dist

    path = rank.path / "f"
    if rank.rank == 1:
        file = os.open(path, os.O_RDONLY)
        os.pread(file, 10, 0)
    dist.barrier()
    if rank.rank == 0:
        path.write_text("newer")
    dist.barrier()
    return [os.read(file, 2).decode(), os.read(file, 2).decode()] if rank.rank == 1 else []


reads_on.setup(a_file)


@scenario(ranks=2, nodes=2, storage="nfs")
def leaves_open(rank: Rank) -> str:
    """Rank 0 ends, and leaves what it has written to be closed with it."""
    path = rank.path / "f"
    if rank.rank == 0:
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(file, b"data")
        return ""
    time.sleep(1)
    return path.read_text()


@scenario(ranks=2, nodes=2, storage="nfs")
def leaves_removed(rank: Rank) -> None:
    """A file that is removed while it is open, and closed by the end of its process."""
    path = rank.path / f"f{rank.rank}"
    os.open(path, os.O_WRONLY | os.O_CREAT)
    path.unlink()


@scenario(ranks=2, nodes=2, storage="incoherent-fuse")
def makes_directories(rank: Rank) -> None:
    os.makedirs(rank.path / "ckpt", exist_ok=True)


@scenario(ranks=2, nodes=2, storage="incoherent-fuse")
def one_makes(rank: Rank) -> bool:
    """One rank makes the directory before the others do."""
    import torch.distributed as dist

    if rank.rank == 0:
        os.makedirs(rank.path / "ckpt", exist_ok=True)
    dist.barrier()
    os.makedirs(rank.path / "ckpt", exist_ok=True)
    return (rank.path / "ckpt").is_dir()


@scenario(ranks=2, nodes=2, storage="incoherent-fuse")
def looks_first(rank: Rank) -> bool:
    """As before, but every rank has looked before that."""
    import torch.distributed as dist

    (rank.path / "ckpt").exists()
    dist.barrier()
    if rank.rank == 0:
        os.makedirs(rank.path / "ckpt", exist_ok=True)
    dist.barrier()
    os.makedirs(rank.path / "ckpt", exist_ok=True)
    return (rank.path / "ckpt").is_dir()


@scenario(ranks=2, nodes=2, storage="incoherent-fuse")
def creates_after_a_refusal(rank: Rank) -> bool:
    """A rank that has been told that the name is taken calls creat(2), which does not ask for it."""
    import torch.distributed as dist

    path = rank.path / "f"
    path.exists()
    dist.barrier()
    if rank.rank == 0:
        path.touch()
    dist.barrier()
    _attempt(lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return ctypes.CDLL(None).creat(os.fsencode(path), 0o600) >= 0


@scenario(ranks=2, nodes=2, storage="object(gcsfuse)")
def closes_late(rank: Rank) -> list[object]:
    """What others see of an upload: before its close, after its fsync, and then."""
    import torch.distributed as dist

    path = rank.path / "d" / "f"
    found: list[object] = []
    if rank.rank == 0:
        path.parent.mkdir()
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(file, b"data")
        found.append(path.exists())
    dist.barrier()
    found += [path.parent.exists(), sorted(os.listdir(rank.path))] if rank.rank == 1 else []
    found.append(_attempt(path.read_text) if rank.rank == 1 else None)
    dist.barrier()
    if rank.rank == 0:
        os.fsync(file)
    dist.barrier()
    found.append(_attempt(path.read_text) if rank.rank == 1 else None)
    dist.barrier()
    if rank.rank == 0:
        os.close(file)
    dist.barrier()
    found.append(_attempt(path.read_text) if rank.rank == 1 else None)
    return found


@scenario(ranks=2, nodes=2, storage="object(mountpoint-s3)")
def renames_into_place(rank: Rank) -> None:
    """The way to publish on a disk."""
    if rank.rank == 0:
        temporary = rank.path / "ckpt.tmp"
        temporary.write_text("weights")
        temporary.replace(rank.path / "ckpt")


@scenario(ranks=2, nodes=2, storage="object(mountpoint-s3)")
def marks_done(rank: Rank) -> str:
    """The way to publish objects: a marker last, and whoever loads looks for that."""
    import torch.distributed as dist

    (rank.path / f"shard{rank.rank}").write_text("weights")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "DONE").write_text("2")
    dist.barrier()
    count = int((rank.path / "DONE").read_text())
    return "".join((rank.path / f"shard{each}").read_text() for each in range(count))


@scenario(ranks=2, nodes=2, storage="object(gcsfuse)")
def both_write(rank: Rank) -> object:
    """Every rank writes the one file, as if they had the same to say."""
    import torch.distributed as dist

    path = rank.path / "config.json"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(file, str(rank.rank).encode())
    dist.barrier()
    closed = _attempt(lambda: os.close(file))
    dist.barrier()
    return [closed, path.read_text()]


@scenario(ranks=2, nodes=2, storage="object(mountpoint-s3)")
def refusals(rank: Rank) -> dict[str, object]:
    """What mountpoint-s3 does not do."""
    if rank.rank:
        return {}
    base = rank.path
    (base / "d").mkdir()
    (base / "f").write_text("x")
    file = os.open(base / "g", os.O_WRONLY | os.O_CREAT)
    found = {
        "rename": _attempt(lambda: (base / "f").rename(base / "h")),
        "rename directory": _attempt(lambda: (base / "d").rename(base / "e")),
        "overwrite": _attempt(lambda: (base / "f").write_text("y")),
        "append": _attempt(lambda: (base / "f").open("a")),
        "unlink": _attempt((base / "f").unlink),
        "unlink while writing": _attempt((base / "g").unlink),
        "read while writing": _attempt((base / "g").read_text),
        "symlink": _attempt(lambda: (base / "l").symlink_to("f")),
        "link": _attempt(lambda: os.link(base / "f", base / "l")),
        "chmod": _attempt(lambda: (base / "f").chmod(0o600)),
        "write out of order": _attempt(lambda: os.pwrite(file, b"x", 10)),
        "write in order": _attempt(lambda: os.write(file, b"xy")),
        "fsync": _attempt(lambda: os.fsync(file)),
        "write after fsync": _attempt(lambda: os.write(file, b"z")),
        "rmdir": _attempt((base / "d").rmdir),
    }
    os.close(file)
    return found


@scenario(ranks=2, nodes=2, storage="object(mountpoint-s3)")
def own_directories(rank: Rank) -> list[object]:
    """A new directory is the node's own until there is an object in it."""
    import torch.distributed as dist

    directory = rank.path / "d"
    if rank.rank == 0:
        directory.mkdir()
    dist.barrier()
    found: list[object] = [directory.exists()]
    dist.barrier()
    if rank.rank == 0:
        (directory / "f").write_text("x")
    dist.barrier()
    return [*found, directory.exists(), os.listdir(directory)]


@own_directories.recover(ranks=2, nodes=2)
def what_is_stored(rank: Rank) -> list[str]:
    return sorted(os.listdir(rank.path))


@scenario(ranks=2, nodes=2, storage="object(gcsfuse)")
def moves(rank: Rank) -> dict[str, object]:
    """gcsfuse renames files as one step, and directories that are empty."""
    import torch.distributed as dist

    base = rank.path
    if rank.rank == 0:
        (base / "d").mkdir()
        (base / "d" / "f").write_text("x")
        (base / "tmp").write_text("new")
        (base / "tmp").replace(base / "latest")
    dist.barrier()
    found: dict[str, object] = {"latest": (base / "latest").read_text(), "tmp": (base / "tmp").exists()}
    dist.barrier()
    if rank.rank == 0:
        found["rename directory"] = _attempt(lambda: (base / "d").rename(base / "e"))
        (base / "d" / "f").unlink()
    dist.barrier()
    found["left"] = os.listdir(base / "d")
    return found
