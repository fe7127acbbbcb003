"""Scenarios about time.  Not collected by pytest."""

import ctypes
import datetime as dt
import os
import time
import zipfile
from pathlib import Path

from racecheck import Rank, scenario


@scenario(ranks=2, skew=(0.0, 1.5))
def clocks(rank: Rank) -> dict[str, object]:
    """What every clock says, before and after a sleep of an hour."""
    libc = ctypes.CDLL(None)
    seconds = libc.time(None)
    before = [time.time(), time.monotonic(), time.perf_counter(), dt.datetime.now(dt.timezone.utc).timestamp()]
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    time.sleep(3600)
    after = [time.time(), time.monotonic(), time.perf_counter(), dt.datetime.now(dt.timezone.utc).timestamp()]
    return {
        "C": seconds - int(before[0]),
        "passed": [round(late - early, 2) for early, late in zip(before, after, strict=True)],
        "stamp": stamp,
        "today": str(dt.datetime.now(dt.timezone.utc).date()),
        "rises": all(time.time() < time.time() for _ in range(100)),
        "monotonic": round(before[1]),
        "exact": time.time_ns(),
    }


@scenario(ranks=1)
def file_times(rank: Rank) -> dict[str, object]:
    """Times of files go by the virtual clock."""
    base = rank.path
    start = time.time()
    (base / "directory").mkdir()
    made = os.stat(base / "directory")
    time.sleep(10)
    (base / "directory" / "file").write_text("x")
    filled = os.stat(base / "directory")
    time.sleep(10)
    os.chmod(base / "directory" / "file", 0o600)
    file = os.stat(base / "directory" / "file")
    time.sleep(10)
    os.utime(base / "directory" / "file")
    touched = os.stat(base / "directory" / "file")
    os.utime(base / "directory" / "file", (5, 6))
    old = os.stat(base / "directory" / "file")
    with (base / "directory" / "file").open("a") as handle:
        handle.write("y")
    grown = os.stat(base / "directory" / "file")
    given = os.stat(base / "given")
    return {
        "made": round(made.st_mtime - start), "filled": round(filled.st_mtime - start),
        "file": [round(each - start) for each in (file.st_atime, file.st_mtime, file.st_ctime)],
        "touched": round(touched.st_mtime - start), "old": [old.st_atime, old.st_mtime, round(old.st_ctime - start)],
        "grown": round(grown.st_mtime - start), "given": given.st_mtime_ns,
        "order": sorted(os.listdir(base / "old"), key=lambda name: os.path.getmtime(base / "old" / name)),
    }  # fmt: skip


@file_times.setup
def earlier(path):
    (path / "given").write_text("x")
    (path / "old").mkdir()
    for name in ("b", "c", "a"):
        (path / "old" / name).touch()
        time.sleep(0.02)


@scenario(ranks=2)
def polls(rank: Rank) -> bool:
    """Polling for a file that a peer makes after a minute takes no real time."""
    if rank.rank == 0:
        time.sleep(60)
        (rank.path / "ready").touch()
        return True
    deadline = time.monotonic() + 100
    while not (rank.path / "ready").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


@scenario(ranks=8)
def filelock_excludes(rank: Rank) -> int:
    """One at a time under a FileLock, whatever the order."""
    import filelock

    with filelock.FileLock(rank.path / "lock"):
        inside = rank.path / "inside"
        assert not inside.exists(), "two ranks hold the lock"
        inside.touch()
        time.sleep(1)
        inside.unlink()
    return 1


@scenario(ranks=2)
def asks_often(rank: Rank) -> int:
    """Rank 1 asks for the other clock a few times more before it asks for the time of day."""
    for _ in range(100 * rank.rank):
        time.monotonic()
    return time.time_ns()


@scenario(ranks=1)
def frequency(rank: Rank) -> int:
    """How often the processor counts in a millisecond, as Abseil asks for it; few kernels have this file."""
    with open("/sys/devices/system/cpu/cpu0/tsc_freq_khz", "rb") as file:
        assert file.fileno() < 256, "it is none of the watched files'"
        return int(file.read())


@scenario(ranks=1)
def after_a_setup(rank: Rank) -> list[float]:
    """What the clocks of the setup said, and whether the rank's say more."""
    seconds = float((rank.path / "time").read_text())
    with zipfile.ZipFile(rank.path / "a.zip") as made:
        (entry,) = made.infolist()
    return [seconds, time.time() - seconds, *entry.date_time]


@after_a_setup.setup
def make(path: Path) -> None:
    (path / "time").write_text(str(time.time()))
    with zipfile.ZipFile(path / "a.zip", "w") as made:
        made.writestr("a", "1")
