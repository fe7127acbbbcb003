"""Scenarios whose rank changes its own environment: limits, descriptors, protected pages.  Not collected by pytest."""

import ctypes
import errno
import mmap
import os
import resource
import signal
import subprocess
from collections.abc import Callable

from racecheck import Rank, scenario

MADE = os.O_CREAT | os.O_RDWR
PAGE = mmap.PAGESIZE


def attempt(call: Callable[[], object]) -> object:
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@scenario(ranks=1)
def limits_the_size_of_files(rank: Rank) -> list[object]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    source, file = os.open(rank.path / "source", MADE), os.open(rank.path / "file", MADE)
    os.write(source, bytes(50))
    found = [
        attempt(lambda: os.write(file, bytes(80))),
        attempt(lambda: os.write(file, bytes(80))),
        attempt(lambda: os.write(file, bytes(80))),
        attempt(lambda: os.pwrite(file, b"x", 99)),
        attempt(lambda: os.pwrite(file, b"x", 100)),
        attempt(lambda: os.ftruncate(file, 101)),
        attempt(lambda: os.posix_fallocate(file, 0, 101)),
        attempt(lambda: os.copy_file_range(source, file, 50, 0, 80)),
        os.fstat(file).st_size,
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return [*found, attempt(lambda: os.write(file, bytes(80)))]


@scenario(ranks=1)
def dies_of_the_size_of_a_file(rank: Rank) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    file = os.open(rank.path / "file", MADE)
    os.write(file, bytes(100))
    os.write(file, bytes(100))


@scenario(ranks=1)
def may_have_few_files(rank: Rank) -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return attempt(lambda: os.open(rank.path / "file", MADE))


@scenario(ranks=1)
def has_used_up_its_files(rank: Rank) -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    while attempt(lambda: os.open("/dev/null", os.O_RDONLY)) != "EMFILE":
        pass
    return attempt(lambda: os.open(rank.path / "file", MADE))


@scenario(ranks=1)
def replaces_standard_input(rank: Rank) -> list[object]:
    """A descriptor that is opened takes the lowest number, as a daemon counts on it."""
    (rank.path / "file").write_bytes(b"text")
    kept = os.dup(0)
    os.close(0)
    opened = os.open(rank.path / "file", os.O_RDWR)
    os.set_inheritable(0, True)
    read = os.read(0, 2).decode()
    rest = subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout.decode()
    os.dup2(kept, 0)
    return [opened, read, rest]


@scenario(ranks=1)
def uses_protected_pages(rank: Rank) -> list[object]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    start = libc.mmap(None, 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    file = os.open(rank.path / "file", MADE)

    def use(call: str, offset: int, length: int) -> int:
        ctypes.set_errno(0)
        done: int = getattr(libc, call)(file, ctypes.c_void_p(start + offset), ctypes.c_size_t(length))
        return -ctypes.get_errno() if done < 0 else done

    found: list[object] = []
    for protection in (0, mmap.PROT_READ):
        libc.mprotect(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), protection)
        for call in ("write", "read"):
            os.lseek(file, 0, os.SEEK_SET)
            found += [use(call, PAGE, 100), use(call, PAGE - 96, 200), use(call, 0, 100)]
    return [*found, os.fstat(file).st_size]


@scenario(ranks=1)
def stops_a_process(rank: Rank) -> int:
    process = subprocess.Popen(["sh", "-c", f"echo a > {rank.path}/a; echo b > {rank.path}/b"])
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGCONT)
    return process.wait()


@scenario(ranks=2)
def stops_itself(rank: Rank) -> None:
    (rank.path / f"before{rank.rank}").touch()
    if rank.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    (rank.path / f"after{rank.rank}").touch()


@scenario(ranks=1)
def changes_its_user(rank: Rank) -> object:
    (rank.path / "directory").mkdir(mode=0o700)
    before = os.geteuid()
    attempt(lambda: os.seteuid(65534))
    found = attempt((rank.path / "directory/file").mkdir)
    os.seteuid(before)
    return found


@scenario(ranks=1)
def starts_a_program_of_another_user(rank: Rank) -> object:
    return attempt(lambda: subprocess.run(["mkdir", rank.path / "directory"], user=65534, check=False).returncode)


@scenario(ranks=1)
def asks_for_the_user_that_it_has(rank: Rank) -> None:
    os.setgid(os.getgid())
    os.seteuid(os.geteuid())
    (rank.path / "directory").mkdir()
