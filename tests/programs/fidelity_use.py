"""Scenarios of libraries and commands at work, which must do under control what they do without.  Not collected by pytest."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from racecheck import Rank, scenario
from tests.programs.fidelity_raw import raw, room

DIRECTORIES, FILES = 20, 100
"""Of the large tree: directories, and files in each."""


def large_tree(path: Path) -> None:
    for number in range(DIRECTORIES):
        directory = path / "big" / f"d{number}"
        (directory / "empty").mkdir(parents=True)
        for name in range(FILES):
            (directory / f"f{name}").write_bytes(b"x" * name * 10)
        (directory / "link").symlink_to("f1")
        (directory / "f2").chmod(0o751)
        os.utime(directory / "f3", ns=(1_000_000_001, 2_000_000_002))
        os.setxattr(directory / "f4", "user.note", b"kept")


@scenario(ranks=1, max_ops=100_000)
def trees(rank: Rank) -> Any:
    """shutil on a tree of 2,000 files: copied in part, moved, removed."""
    big = rank.path / "big"
    for name in ("d0", "d1"):
        shutil.copytree(big / name, rank.path / f"copy of {name}", symlinks=name == "d0")
    shutil.move(big / "d2", rank.path / "moved")
    shutil.move(big / "d3" / "f5", rank.path / "moved" / "empty")
    shutil.copy2(big / "d3" / "f4", rank.path)
    shutil.rmtree(big)
    kept = rank.path / "copy of d0"
    return [
        sorted(os.listdir(rank.path)), kept.joinpath("f3").stat().st_mtime_ns, os.getxattr(rank.path / "f4", "user.note").decode(),
        sum(len(files) for _, _, files in os.walk(kept)), sorted(each.name for each in rank.path.glob("*/f1?")),
    ]  # fmt: skip


trees.setup(large_tree)


@scenario(ranks=1)
def temporaries(rank: Rank) -> Any:
    """All of tempfile, in the watched directory and in the rank's TMPDIR."""
    told: list[Any] = []
    for directory in (rank.path, None):
        with tempfile.NamedTemporaryFile("w", dir=directory) as file:
            file.write("content")
            file.flush()
            told += [Path(file.name).read_text(), oct(os.stat(file.name).st_mode)]
        told.append(Path(file.name).exists())
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
            os.rename(file.name, rank.path / "kept")
        with tempfile.TemporaryDirectory(dir=directory) as name:
            Path(name, "file").write_text("content")
            Path(name, "below").mkdir()
            told += [sorted(os.listdir(name)), oct(os.stat(name).st_mode)]
        told.append(os.path.exists(name))
        with tempfile.TemporaryFile(dir=directory) as nameless:
            nameless.write(b"content")
            nameless.seek(2)
            told += [nameless.read().decode(), os.fstat(nameless.fileno()).st_nlink]
        descriptor, name = tempfile.mkstemp(dir=directory)
        told += [os.write(descriptor, b"x"), fcntl.fcntl(descriptor, fcntl.F_GETFD)]
        os.close(descriptor)
        os.unlink(name)
    return [*told, os.listdir(rank.path), os.path.basename(tempfile.gettempdir())]


@scenario(ranks=1)
def savers(rank: Rank) -> Any:
    """torch.save by path (C++) and through a file, torch.load with and without a mapping, safetensors (Rust)."""
    import torch
    from safetensors.torch import load_file, save_file

    state = {"weights": torch.arange(300_000, dtype=torch.float32), "step": torch.tensor(7)}
    torch.save(state, rank.path / "by path.pt")
    with open(rank.path / "by file.pt", "wb") as file:
        torch.save(state, file)
    torch.save(state, rank.path / "old.pt", _use_new_zipfile_serialization=False)
    save_file(state, rank.path / "state.safetensors")
    loaded = [torch.load(rank.path / name) for name in ("by path.pt", "by file.pt", "old.pt")]
    loaded += [torch.load(rank.path / "by path.pt", mmap=True), load_file(rank.path / "state.safetensors")]
    with open(rank.path / "by path.pt", "rb") as file:
        loaded.append(torch.load(file))
    return [hashlib.sha256(each["weights"].numpy().tobytes()).hexdigest() for each in loaded] + [
        each["step"].item() for each in loaded
    ]


def source_tree(path: Path) -> None:
    for number in range(3):
        directory = path / "source" / f"d{number}"
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(b"content" * number * 1000)
    (path / "source" / "link").symlink_to("d0/file")
    (path / "source" / "with space").write_text("x")
    script = path / "script"
    script.write_text("#!/bin/sh\necho from the script > made\n")
    script.chmod(0o755)


COMMANDS = (
    "cp -r source copied", "cp -a source archived", "cp source/d1/file 'a file'", "tar --sort=name --mtime=@0 -cf all.tar source",
    "mkdir out && tar xf all.tar -C out", "echo x > f; echo y >> f; cat f f > g", "mv copied moved; rm -rf archived out/source/d2",
    "mkfifo pipe; cat < pipe > received & { ls source; mkdir later; echo through; } > pipe; wait", "ln -s f l; ln g h; chmod 600 g; touch -d @5 f", "./script",
    "cd source/d1 && cat < file | wc -c > ../../count", "sort -o sorted < g; head -c 3 f | tee t u > /dev/null", "exec 7> seven; echo low >&7",
    "ls -la source > /dev/null; find . -name 'file' | sort > found; du -a source > /dev/null", "cat missing; rm missing; rmdir source; cd missing",
    "dd if=source/d2/file of=dd bs=512 count=3 conv=notrunc,fsync status=none; truncate -s 5 dd; cmp f g", "(echo sub > in) ; (cd out; echo 1 > one &) ; wait",
)  # fmt: skip


@scenario(ranks=1, max_ops=100_000)
def commands(rank: Rank) -> Any:
    """What a shell's commands say and leave."""
    told = []
    for command in COMMANDS:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=rank.path,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )
        told.append([command, done.returncode, done.stdout, done.stderr])
    return told


commands.setup(source_tree)


@scenario(ranks=1)
def pool(rank: Rank) -> int:
    """Threads that write, which are not under control yet."""
    with ThreadPoolExecutor(2) as workers:
        for number in range(4):
            workers.submit((rank.path / str(number)).write_text, "content")
    return len(os.listdir(rank.path))


@scenario(ranks=1)
def traced(rank: Rank) -> Any:
    """Calls one by one, each with what has to be seen of it; between them calls that are nobody's concern."""
    os.chdir(rank.path)
    told: list[Any] = []

    def call(expected: Any, name: str, *arguments: Any) -> Any:
        """``expected``: family and places; None for a call that is no op."""
        value = raw(name, *arguments)
        if expected is not None:
            told.append([*expected, value if isinstance(value, str) else ""])
        return value

    here = -100
    call(["mkdir", "a"], "mkdir", "a", 0o755)
    call(["mkdir", "a"], "mkdirat", here, f"{rank.path}/a/", 0o755)
    call(None, "mkdir", "/proc/nothing", 0o755)
    call(["open", "a/f"], "openat", here, "a/../a/f", os.O_CREAT | os.O_RDWR, 0o644)
    file = 256
    call(["write", "a/f"], "write", file, b"content", 7)
    call(["stat", "a/f"], "fstat", file, room(144))
    call(None, "lseek", file, 0, 0)
    call(["seek", "a/f"], "lseek", file, 0, 2)
    call(["read", "a/f"], "pread64", file, room(9), 9, 0)
    call(["symlink", "l"], "symlink", "a/f", "l")
    call(["stat", "a/f"], "stat", "l", room(144))
    call(["stat", "l"], "lstat", "l", room(144))
    call(["readlink", "l"], "readlink", "l", room(9), 9)
    call(["rename", "a/f", "a/g"], "rename", "a/f", "a/g")
    call(["truncate", "a/g"], "ftruncate", file, 3)
    call(["stat", "missing/x"], "stat", "missing/x", room(144))
    call(["link", "a/f", "x"], "link", "a/f", "x")
    call(["rename", "a/g", "missing/y"], "rename", "a/g", "missing/y")
    outside = raw("openat", here, "/dev/null", os.O_RDWR, 0)
    call(None, "write", outside, b"gone", 4)
    call(None, "close", outside)
    call(["link", "a/g", "h"], "link", "a/g", "h")
    call(["unlink", "a/g"], "unlink", "a/g")
    call(["fsync", "a/g"], "fsync", file)
    copy = call(None, "dup", file)
    call(["close", "a/g"], "close", file)
    call(["flock", "a/g"], "flock", copy, 2)
    call(["close", "a/g"], "close", copy)
    call(None, "close", copy)
    call(["open", "."], "open", ".", os.O_DIRECTORY, 0)
    call(["list", "."], "getdents64", file, room(1000), 1000)
    call(["unlink", "h"], "unlinkat", file, "h", 0)
    call(["rmdir", "a"], "unlinkat", file, "a", 0x200)
    call(["open", "."], "openat", file, ".", os.O_TMPFILE | os.O_RDWR, 0o600)
    call(["close", "#"], "close", 257)
    call(["chdir", "."], "fchdir", file)
    call(["close", "."], "close", file)
    call(None, "chdir", "/")
    call(None, "mkdir", "/proc/nothing", 0o755)
    call(["access", "l"], "faccessat2", here, f"{rank.path}/l", 0, 0x100)
    call(["mkdir", f"TMPDIR/{rank.rank}/t"], "mkdir", f"{os.environ['TMPDIR']}/t", 0o755)
    threading.Thread(target=os.getcwd).start()
    os.pipe()
    os.path.exists("/usr")
    Path("/proc/self/status").read_text()
    subprocess.run(["true"], check=True)
    call(["mkdir", "end"], "mkdir", f"{rank.path}/end", 0o755)
    return told


@scenario(ranks=2)
def executes(rank: Rank) -> Any:
    """Rank 0 starts a script from the watched directory while rank 1 makes changes."""
    if rank.rank == 0:
        return subprocess.run([rank.path / "script"], cwd=rank.path, check=False).returncode
    for number in range(6):
        (rank.path / f"other{number}").mkdir()
    return 0


executes.setup(source_tree)


@scenario(ranks=2)
def upgrades(rank: Rank) -> Any:
    """Both ranks turn a shared lock into an exclusive one: a rank that waits has given its own up, so one gets it, then the other."""
    import torch.distributed as dist

    with open(rank.path / "lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        dist.barrier()
        fcntl.flock(file, fcntl.LOCK_EX)
        (rank.path / "inside").mkdir()
        (rank.path / "inside").rmdir()
    return "done"


@scenario(ranks=2)
def lets_go(rank: Rank) -> Any:
    """Rank 0 lets its lock go by closing a range, by dup2 over it, and by running another program; rank 1 waits for it each time."""
    import torch.distributed as dist

    for way in ("close_range", "dup2"):
        file = os.open(rank.path / "lock", os.O_CREAT | os.O_RDWR)
        if rank.rank == 0:
            fcntl.lockf(file, fcntl.LOCK_EX)
            other = os.open(rank.path / "lock", os.O_RDWR)
            fcntl.flock(other, fcntl.LOCK_EX)
            dist.barrier()
            if way == "close_range":
                raw("close_range", min(file, other), max(file, other), 0)
            else:
                os.dup2(0, file)
                os.dup2(0, other)
        else:
            dist.barrier()
            fcntl.lockf(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_EX)
            os.close(file)
    return "done"
