"""Programs for the swap audit: many sorts of ops on few paths, and everything that they tell is kept.

Not collected by pytest.
"""

import ctypes
import errno
import fcntl
import os
import random
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from racecheck import Rank, scenario

_OPS = 12
_PATHS = (
    "a", "b", "h", "d", "d/a", "d/b", "d/s", "d/s/a", "e", "e/a", "e/d", "l", "l/a", "l/s", "m", "m/a", "k", "k/a",
    "d/../a", "d/s/../b", "e/../l/b", "l/../a", "gone",
)  # fmt: skip
_MOST_OPEN = 4
_NOREPLACE, _EXCHANGE, _FOLLOW = 1, 2, 0x400


def tree(path: Path) -> None:
    """Directories d (of which s) and e; files; links to a directory, to a link and to nothing; two names of a file."""
    (path / "d" / "s").mkdir(parents=True)
    (path / "e").mkdir()
    (path / "a").write_text("the first")
    (path / "d" / "a").write_text("the second")
    os.link(path / "a", path / "h")
    os.symlink("d", path / "l")
    os.symlink("l/s", path / "m")
    os.symlink("gone", path / "k")


class Actor:
    """Does what it draws, and keeps the result in ``seen``."""

    def __init__(self, rank: Rank) -> None:
        self.path, self.name = rank.path, str(rank.rank)
        self.seen: list[Any] = []
        self.files: list[int] = []
        self.directories: list[int] = []
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.paths: list[str] = [*_PATHS]
        self.weights = {each.__name__: weight for each, weight in _WEIGHTS.items()}

    def agree(self) -> None:
        """All ranks draw from the same few paths and sorts of ops, so that they meet."""
        import torch.distributed as dist

        drawn = [random.sample(_PATHS, 6), random.sample([*self.weights], 12)]
        dist.broadcast_object_list(drawn)
        self.paths, self.weights = drawn[0], {each: self.weights[each] for each in drawn[1]}

    def choose(self) -> str:
        return random.choice(self.paths)

    def go(self, count: int) -> None:
        for _ in range(count):
            do = getattr(Actor, random.choices([*self.weights], [*self.weights.values()])[0])
            self.seen.append([do.__name__, self.attempt(partial(do, self))])

    def attempt(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def end(self) -> list[Any]:
        for each in self.files + self.directories:
            os.close(each)
        return self.seen

    # Names.

    def some(self) -> dict[str, Any]:
        """A path from the watched directory, or a name in a directory that is open."""
        if self.directories and random.random() < 0.25:
            directory = random.choice(self.directories)
            return {"path": random.choice(("a", "b", "s", "s/a", "../a", "../e/a")), "dir_fd": directory}
        return {"path": str(self.path / self.choose())}

    def mkdir(self) -> None:
        os.mkdir(**self.some())

    def rmdir(self) -> None:
        os.rmdir(**self.some())

    def unlink(self) -> None:
        os.unlink(**self.some())

    def rename(self) -> None:
        one, other = self.some(), self.some()
        os.rename(one["path"], other["path"], src_dir_fd=one.get("dir_fd"), dst_dir_fd=other.get("dir_fd"))

    def rename_otherwise(self) -> None:
        one, other = (os.fsencode(self.path / self.choose()) for _ in range(2))
        if self.libc.renameat2(-100, one, -100, other, random.choice((_NOREPLACE, _EXCHANGE))):
            raise OSError(ctypes.get_errno(), "renameat2")

    def link(self) -> None:
        one, other = self.some(), self.some()
        os.link(one["path"], other["path"], src_dir_fd=one.get("dir_fd"), dst_dir_fd=other.get("dir_fd"))

    def symlink(self) -> None:
        found = self.some()
        os.symlink(
            random.choice(("a", "d", "e", "s", "l/s", "/proc/self/cmdline", str(self.path / "d"))),
            found.pop("path"),
            **found,
        )

    def readlink(self) -> str:
        return os.path.basename(str(os.readlink(**self.some())))

    def list(self) -> Any:
        if self.directories and random.random() < 0.3:
            return sorted(os.listdir(random.choice(self.directories)))
        with os.scandir(self.path / random.choice(("", "d", "d/s", "e", "l", "m"))) as entries:
            return sorted([each.name, each.is_dir(follow_symlinks=False)] for each in entries)

    # What is known of them.

    def stat(self) -> Any:
        return _told(os.stat(**self.some(), follow_symlinks=random.random() < 0.6))

    def access(self) -> bool:
        return os.access(**self.some(), mode=os.R_OK)

    def chmod(self) -> None:
        os.chmod(**self.some(), mode=random.choice((0o700, 0o755)))

    def utime(self) -> None:
        os.utime(**self.some(), ns=(random.randrange(9), random.randrange(9)))

    def xattr(self) -> Any:
        path = self.path / self.choose()
        if random.random() < 0.5:
            return os.setxattr(path, "user.x", self.name.encode(), random.choice((0, os.XATTR_CREATE)))
        return os.getxattr(path, "user.x").decode()

    def truncate(self) -> None:
        os.truncate(self.path / self.choose(), random.choice((0, 0, 3)))

    def chdir(self) -> None:
        os.chdir(self.path / random.choice(("", "d", "e", "l", "m")))

    def relative(self) -> Any:
        return _told(os.stat(random.choice(("a", "s/a", "../a", "d/a", "../d/s"))))

    # Open files.

    def open(self) -> None:
        if len(self.files) >= _MOST_OPEN:
            os.close(self.files.pop(0))
        how = random.choice((
            os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
            os.O_RDWR | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_TRUNC,
        ))  # fmt: skip
        self.files.append(os.open(**self.some(), flags=how))

    def open_directory(self) -> None:
        if len(self.directories) >= _MOST_OPEN:
            os.close(self.directories.pop(0))
        found = self.some()
        self.directories.append(os.open(found.pop("path"), os.O_RDONLY | os.O_DIRECTORY, **found))

    def temporary(self) -> None:
        """A file without a name gets one."""
        made = os.open(self.path / random.choice(("", "d", "e")), os.O_TMPFILE | os.O_RDWR)
        try:
            os.write(made, self.name.encode())
            self.name_open(made)
        finally:
            os.close(made)

    def name_open(self, file: int) -> None:
        target = os.fsencode(self.path / self.choose())
        if self.libc.linkat(-100, b"/proc/self/fd/%d" % file, -100, target, _FOLLOW):
            raise OSError(ctypes.get_errno(), "linkat")

    def link_open(self) -> None:
        self.name_open(self.file())

    def file(self) -> int:
        if not self.files:
            self.open()
        return random.choice(self.files)

    def read(self) -> str:
        return os.read(self.file(), 4).decode()

    def read_there(self) -> str:
        return os.pread(self.file(), 4, random.choice((0, 2))).decode()

    def write(self) -> int:
        return os.write(self.file(), self.name.encode() * random.choice((1, 3)))

    def write_there(self) -> int:
        return os.pwrite(self.file(), self.name.encode(), random.choice((0, 2, 5)))

    def seek_end(self) -> int:
        return os.lseek(self.file(), 0, os.SEEK_END)

    def cut(self) -> None:
        os.ftruncate(self.file(), random.choice((0, 2)))

    def allocate(self) -> None:
        os.posix_fallocate(self.file(), 0, 12)

    def copy(self) -> int:
        return os.copy_file_range(self.file(), self.file(), 5)

    def tell(self) -> Any:
        return _told(os.fstat(self.file()))

    def lock(self) -> None:
        fcntl.flock(self.file(), random.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_EX)) | fcntl.LOCK_NB)

    def unlock(self) -> None:
        fcntl.flock(self.file(), fcntl.LOCK_UN)

    def lock_record(self) -> None:
        how = random.choice((fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN))
        fcntl.lockf(self.file(), how, 2, random.choice((0, 1, 4)))

    def close(self) -> None:
        if self.files:
            os.close(self.files.pop(random.randrange(len(self.files))))


def _told(status: os.stat_result) -> list[int]:
    """What a stat says that does not depend on the order of ops on other files."""
    kind = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)]
    return [*kind, status.st_size, status.st_nlink] if stat.S_ISREG(status.st_mode) else kind


_WEIGHTS: dict[Callable[[Actor], Any], float] = {
    Actor.mkdir: 3, Actor.rmdir: 3, Actor.unlink: 3, Actor.rename: 4, Actor.rename_otherwise: 2, Actor.link: 2,
    Actor.symlink: 2, Actor.readlink: 1, Actor.list: 3, Actor.stat: 3, Actor.access: 1, Actor.chmod: 1, Actor.utime: 1,
    Actor.xattr: 1, Actor.truncate: 1, Actor.chdir: 1, Actor.relative: 1, Actor.open: 4, Actor.open_directory: 2,
    Actor.temporary: 0.5, Actor.link_open: 0.5, Actor.read: 2, Actor.read_there: 1, Actor.write: 3,
    Actor.write_there: 2, Actor.seek_end: 1, Actor.cut: 1, Actor.allocate: 0.5, Actor.copy: 0.5, Actor.tell: 1,
    Actor.lock: 2, Actor.unlock: 1, Actor.lock_record: 1, Actor.close: 1,
}  # fmt: skip


@scenario(ranks=3)
def drawn(rank: Rank) -> list[Any]:
    """Each rank draws its ops, from the seed of the run; there is a barrier half-way."""
    import torch.distributed as dist

    actor = Actor(rank)
    actor.go(_OPS // 2)
    dist.barrier()
    actor.go(_OPS // 2)
    return actor.end()


drawn.setup(tree)


@scenario(ranks=3)
def close_by(rank: Rank) -> list[Any]:
    """The same on few paths, with few sorts of ops."""
    actor = Actor(rank)
    actor.agree()
    actor.go(_OPS)
    return actor.end()


close_by.setup(tree)


@scenario(ranks=2)
def shared_offsets(rank: Rank) -> list[Any]:
    """Threads and a child that read and write through one open file."""
    actor = Actor(rank)
    shared = os.open(rank.path / "a", os.O_RDWR)
    seen: dict[int, list[Any]] = {0: [], 1: []}

    def use(number: int) -> None:
        for step in range(3):
            seen[number].append(os.write(shared, b"xy") if (step + number) % 2 else os.read(shared, 2).decode())

    threads = [threading.Thread(target=use, args=(number,)) for number in seen]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    child = os.fork()
    if child == 0:
        os.write(shared, b"child")
        os._exit(0)
    actor.seen += [os.read(shared, 1).decode(), os.lseek(shared, 0, os.SEEK_END)]
    os.waitpid(child, 0)
    os.close(shared)
    return [*actor.seen, seen[0], seen[1]]


shared_offsets.setup(tree)


@scenario(ranks=3)
def locked(rank: Rank) -> list[Any]:
    """Critical sections with locks of each kind, which are waited for, and ops outside of them."""
    actor = Actor(rank)
    guard = os.open(rank.path / "guard", os.O_RDWR | os.O_CREAT)
    for _ in range(2):
        actor.go(1)
        if random.random() < 0.5:
            fcntl.flock(guard, random.choice((fcntl.LOCK_EX, fcntl.LOCK_EX, fcntl.LOCK_SH)))
            actor.go(2)
            fcntl.flock(guard, fcntl.LOCK_UN)
        else:
            fcntl.lockf(guard, fcntl.LOCK_EX)
            actor.go(2)
            fcntl.lockf(guard, fcntl.LOCK_UN)
    fcntl.flock(guard, fcntl.LOCK_EX)
    os.close(guard)
    return actor.end()


locked.setup(tree)


@scenario(ranks=4, nodes=2, storage="node-local")
def on_nodes(rank: Rank) -> list[Any]:
    """The same names on two disks."""
    actor = Actor(rank)
    actor.directories.append(os.open(rank.path / "d", os.O_RDONLY))
    for _ in range(8):
        do = random.choice((Actor.mkdir, Actor.rmdir, Actor.rename, Actor.unlink, Actor.list, Actor.stat, Actor.write))
        actor.seen.append([do.__name__, actor.attempt(partial(do, actor))])
    return actor.end()


on_nodes.setup(tree)


@scenario(ranks=1)
def way_out(rank: Rank) -> list[Any]:
    """Through a link to a file outside."""
    os.symlink(rank.path.parent.parent / "outside-by-link", rank.path / "out")
    (rank.path / "out").write_text("somewhere else")
    seen = [(rank.path / "out").read_text(), (rank.path / "out").stat().st_size]
    (rank.path.parent.parent / "outside-by-link").unlink()
    return seen
