"""A training script that tries to reach what is outside of its run; it fails if it reaches anything.

Its argument is a JSON file: ``outside`` is the number of a process, ``mark`` is in the command line of that one, and
``file`` is a file; ``machine``: try the machine as well.  Started by itself, it tries before it starts its rank, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH, _NEWUSER, _NEWNS = 16, 0x10000000, 0x20000


def check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def write(path: str) -> Callable[[], object]:
    return lambda: os.write(os.open(path, os.O_WRONLY), b"1")


def at_processes(outside: int, mark: str, file: str) -> dict[str, Callable[[], object]]:
    return {
        "a signal": lambda: os.kill(outside, 0),
        "a signal to a group": lambda: os.killpg(outside, 0),
        "a process by its name": lambda: find_by_name(mark),
        "the files of a process": lambda: Path(f"/proc/{outside}/root{file}").write_text("reached"),
        "the open files of a process": lambda: os.stat(f"/proc/{outside}/fd/0"),
        "a trace": lambda: check(_libc.ptrace(_PTRACE_ATTACH, outside, 0, 0)),
        "a limit": lambda: resource.prlimit(outside, resource.RLIMIT_NOFILE, (100, 100)),
        "a priority": lambda: os.setpriority(os.PRIO_PROCESS, outside, 10),
        "a processor": lambda: os.sched_setaffinity(outside, {0}),
        "System V memory": lambda: check(_libc.shmget(outside, 0, 0)),
        "a POSIX queue": lambda: check(_libc.mq_open(f"/{mark}".encode(), os.O_RDWR)),
    }


def find_by_name(mark: str) -> None:
    """Look for a process as pkill does."""
    lines = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines.append(Path("/proc", each, "cmdline").read_bytes())
    if not any(mark.encode() in line for line in lines):
        raise FileNotFoundError


def at_descriptors_of_racecheck() -> None:
    """Open the files of whatever process is seen that is not ours."""
    others = [each for each in os.listdir("/proc") if each.isdigit() and int(each) not in {os.getpid(), os.getppid()}]
    found = []
    for each in others:
        with suppress(PermissionError, FileNotFoundError):
            found += [os.readlink(f"/proc/{each}/fd/{name}") for name in os.listdir(f"/proc/{each}/fd")]
    if "/" not in found:
        raise FileNotFoundError


def at_a_new_device() -> None:
    node = f"/dev/shm/node-{os.getpid()}"
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(7, 0))
    os.open(node, os.O_RDWR)


def at_the_files_below(path: str) -> None:
    """Unmount the layer in namespaces of our own."""
    pid = os.fork()
    if pid == 0:
        done = _libc.unshare(_NEWUSER | _NEWNS) == 0 and _libc.umount2(path.encode(), 2) == 0
        os._exit(0 if done else 1)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError


def at_disks() -> None:
    if not [each for each in os.scandir("/dev") if stat.S_ISBLK(each.stat().st_mode)]:
        raise FileNotFoundError


def is_filtered() -> bool:
    """Return whether a filter watches this process, as it does in a rank: it refuses to unmount, also in children."""
    return "Seccomp:\t2" in Path("/proc/self/status").read_text()


def at_the_machine(file: str) -> dict[str, Callable[[], object]]:
    layer = "/" + Path(file).parts[1]
    found = {
        "the descriptors of racecheck": at_descriptors_of_racecheck,
        "a disk": at_disks,
        "a new device": at_a_new_device,
        "loop devices": write("/dev/loop-control"),
        "the kernel's log": write("/dev/kmsg"),
        "a setting of the kernel": write("/proc/sys/kernel/printk"),
        "a file of /sys": write("/sys/kernel/mm/transparent_hugepage/enabled"),
        "the files below the layer": lambda: check(_libc.umount2(layer.encode(), 2)),
    }
    if not is_filtered():
        found["the files below the layer, as another user"] = lambda: at_the_files_below(layer)
    return found


def reach(asked: str) -> None:
    """Make every attempt; raises `AssertionError` with those that succeed."""
    given, reached = json.loads(Path(asked).read_text()), []
    found = at_processes(given["outside"], given["mark"], given["file"])
    if given["machine"]:
        found.update(at_the_machine(given["file"]))
    for name, attempt in found.items():
        with suppress(OSError):
            attempt()
            reached.append(name)
    assert not reached, f"reached: {', '.join(reached)}"


def work(_: int, asked: str) -> None:
    reach(asked)
    Path("out", "done").touch()


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(0, sys.argv[1])
    else:
        import torch.multiprocessing as mp

        reach(sys.argv[1])
        mp.spawn(work, (sys.argv[1],), nprocs=1)
