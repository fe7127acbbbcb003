"""The devices that training scripts use, and no others: ``/dev`` without disks, memory and the terminals of others."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from racecheck.kernel import namespace

_DEVICES = Path("/dev")
_USUAL = re.compile(
    "null|zero|full|random|urandom|tty|fuse|shm|nvidia.*|dri|kfd|accel.*|infiniband"  # accelerators and their network
)
_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}  # fmt: skip


def limit() -> None:
    """Show this process and all that it starts a ``/dev`` with only the usual devices, and with terminals of its own.

    It takes a mount namespace of its own, and the right to mount.  ``/dev/shm`` stays as it is.  Raises `OSError`.
    """
    kept = {each: os.open(_DEVICES / each, os.O_PATH) for each in os.listdir(_DEVICES) if _is_usual(each)}
    namespace.mount("tmpfs", _DEVICES, 2, kind="tmpfs", options="mode=755")  # nosuid
    try:
        for name, handle in kept.items():
            source, path = f"/proc/self/fd/{handle}", _DEVICES / name
            path.mkdir() if os.path.isdir(source) else path.touch()
            namespace.mount(source, path, namespace.BIND | namespace.REC)
        (_DEVICES / "pts").mkdir()
        with suppress(OSError):  # a kernel or a container without them
            namespace.mount("devpts", _DEVICES / "pts", 0, kind="devpts", options="newinstance,ptmxmode=0666,mode=620")
        for name, target in _LINKS.items():
            (_DEVICES / name).symlink_to(target)
        namespace.seal(_DEVICES)
    finally:
        for handle in kept.values():
            os.close(handle)


def _is_usual(name: str) -> bool:
    return _USUAL.fullmatch(name) is not None and os.access(_DEVICES / name, os.F_OK)
