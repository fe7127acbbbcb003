"""Scenarios on disks that belong to nodes.  Not collected by pytest."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from racecheck import Rank, scenario


@scenario(ranks=4, nodes=2, storage="node-local")
def own_disks(rank: Rank) -> dict[str, object]:
    """Every way that a path can be written ends on the node's own disk."""
    import torch.distributed as dist

    base = rank.path
    if rank.local_rank == 0:
        (base / "ckpt").mkdir()
        (base / "ckpt" / "who").write_text(f"node {rank.node}")
        (base / "link").symlink_to(base / "ckpt")
        (base / "ckpt" / "up").symlink_to("../ckpt")
        os.symlink(f"who{rank.node}", base / f"only{rank.node}")
    dist.barrier()
    directory = os.open(base, os.O_RDONLY)
    found = {
        "absolute": (base / "ckpt" / "who").read_text(),
        "through a link": (base / "link" / "up" / "who").read_text(),
        "dots": Path(f"{base}/../{base.name}/ckpt/../ckpt/who").read_text(),
        "directory": Path(f"/proc/self/fd/{directory}/ckpt/who").read_text(),
        "listing": sorted(os.listdir(base)),
        "relative": os.stat("ckpt/who", dir_fd=directory).st_size,
        "root": os.path.isdir(base) and os.path.samefile(base, f"{base}/ckpt/.."),
        "above": sorted(set(os.listdir(f"{base}/..")) & {base.name}),
        "other": os.path.lexists(base / f"only{1 - rank.node}"),
        "setup": (base / "given").read_text(),
    }
    os.close(directory)
    return found


@own_disks.setup
def given(path: Path) -> None:
    (path / "given").write_text("the same everywhere")


@scenario(ranks=2, nodes=2, storage="node-local")
def remove_all(rank: Rank) -> bool:
    """The watched directory itself can be removed and made again, on one node."""
    if rank.node == 0:
        shutil.rmtree(rank.path)
        gone = not rank.path.exists()
        rank.path.mkdir()
        (rank.path / "new").touch()
        return gone
    return rank.path.exists()


@scenario(ranks=2, nodes=2, storage="node-local")
def changes_directory(rank: Rank) -> None:
    (rank.path / "sub").mkdir()
    os.chdir(rank.path / "sub")


@scenario(ranks=8, nodes=2)
def laid_out(rank: Rank) -> dict[str, str]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    return {name: os.environ[name] for name in names} | {"rank": f"{rank.node}.{rank.local_rank}"}


@scenario(ranks=4, nodes=2, storage="node-local")
def saves(rank: Rank) -> None:
    (rank.path / f"shard{rank.rank}").write_text(str(rank.rank))


@saves.recover(ranks=2, nodes=1)
def smaller(rank: Rank) -> list[str]:
    return sorted(os.listdir(rank.path))


@scenario(ranks=2, nodes=2, storage="node-local")
def leads_out(rank: Rank) -> list[object]:
    """Ways that lead over the disk and out of it again."""
    (rank.path / "a").mkdir()
    (rank.path / "a" / "f").write_text("x")
    os.symlink("/proc/version", rank.path / "version")
    subprocess.run(["cp", "-r", rank.path / "a", rank.path / "b"], check=True)
    subprocess.run(["cp", rank.path / "a" / "f", rank.path / "g"], check=True)
    return [
        (rank.path / "version").read_text()[:5], rank.path.name in os.listdir(f"{rank.path}/a/../.."),
        sorted(os.listdir(rank.path / "b")), (rank.path / "g").read_text(),
    ]  # fmt: skip


@scenario(ranks=4, nodes=2)
def hosts(rank: Rank) -> dict[str, object]:
    """What each rank knows of its node, by all of Python's ways, and whether the names lead somewhere."""
    import platform
    import socket

    import torch.distributed as dist

    name = socket.gethostname()
    names: list[object] = [None] * rank.world_size
    dist.all_gather_object(names, name)
    return {
        "name": name,
        "others": sorted({socket.gethostname(), platform.node(), os.uname().nodename, platform.uname().node} - {name}),
        "reachable": all(socket.gethostbyname(str(each)) == socket.gethostbyname(name) for each in names),
        "info": bool(socket.getaddrinfo(name, 80)),
        "leaders": sum(names.index(each) == number for number, each in enumerate(names)),
        "unknown": _fails(lambda: socket.gethostbyname("no such host")),
    }


@scenario(ranks=4, nodes=2)
def takes_turns(rank: Rank) -> list[str]:
    """Each rank takes a name in the TMPDIR of its node, if no other one has; returns what each had there."""
    import tempfile

    import torch.distributed as dist

    place = Path(tempfile.gettempdir())
    try:
        os.close(os.open(place / "taken", os.O_CREAT | os.O_EXCL))
        (place / f"by {rank.rank}").touch()
    except FileExistsError:
        pass
    dist.barrier()
    return sorted(os.listdir(place))


@scenario(ranks=4)
def named_by_time(rank: Rank) -> list[int]:
    """Directories with names from the clock; returns the readings."""
    import time

    read = [time.time_ns(), time.time_ns()]
    for each in read:
        (rank.path / str(each)).mkdir()
    return read


def _fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except OSError:
        return True
    return False


@scenario(ranks=2, nodes=2)
def asks_a_file(rank: Rank) -> str:
    """For what the machine is called; Python's own functions know of nodes, files do not."""
    (rank.path / str(rank.rank)).touch()
    return Path("/proc/sys/kernel/random/boot_id").read_text()


@scenario(ranks=2, nodes=2)
def asks_a_program(rank: Rank) -> str:
    import shutil
    import subprocess

    (rank.path / str(rank.rank)).touch()
    program = shutil.which("hostname")
    assert program is not None
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@scenario(ranks=2, nodes=2)
def asks_for_an_address(rank: Rank) -> int:
    import uuid

    (rank.path / str(rank.rank)).touch()
    return uuid.getnode()
