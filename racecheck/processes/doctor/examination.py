"""Can this machine run controlled worlds?  Every primitive is tried by doing it, in a process of its own.

Nothing here is specific to Linux, so that elsewhere this can still say what is missing.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from racecheck.model.errors import CannotRun

if TYPE_CHECKING:
    from racecheck.processes.session import Session

_PROBE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
_PROBE += "from racecheck.processes.doctor.probes import main; main(sys.argv[2:])"
_CONTAINER = "in a container allow it (docker run --security-opt seccomp=unconfined)"


@dataclass(frozen=True, slots=True)
class Primitive:
    """Something that a controlled world needs, and what to do where it is missing."""

    name: str
    mend: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """What came of trying a primitive; ``mend`` says what to do if it is not ``ok``."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = True


_LINUX = Primitive("linux", "run racecheck on Linux 5.19 or newer, a virtual machine will do")
_TORCH = Primitive("torch", "pip install torch (any build with torch.distributed and gloo)")
_OTHERS = (
    Primitive("architecture", "use a 64-bit Python on x86-64 or aarch64"),
    Primitive("kernel", "upgrade to Linux 5.19 or newer"),
    Primitive("seccomp", f"{_CONTAINER}; no other program may listen to a filter around this one"),
    Primitive("signals", "upgrade to Linux 5.19 or newer"),
    Primitive("descriptors", "raise the hard limit of open files to 1024 or more (ulimit -Hn)"),
    Primitive("memory", "set kernel.yama.ptrace_scope to 1 or less (sysctl), or give CAP_SYS_PTRACE"),
    Primitive("clocks", "use a kernel that lets a process write to its own code through /proc/self/mem"),
    Primitive("kcmp", f"{_CONTAINER}, and a kernel with CONFIG_KCMP"),
    Primitive("proc", "mount /proc without hidepid, and use a kernel with CONFIG_SCHED_INFO"),
    Primitive("stacks", "let ranks receive real-time signals, and mount /proc without hidepid"),
    Primitive("runs", "worlds live there while they run: it must be private and writable"),
    Primitive("loopback", "bring the loopback interface up (ip link set lo up)"),
)
_OPTIONAL = (
    Primitive("pidfd_getfd", f"what ranks get from other processes is UNKNOWN: {_CONTAINER}", required=False),
    Primitive("addresses", f"addresses differ from session to session: {_CONTAINER}", required=False),
    Primitive("wake-up", "runs are slower: upgrade to Linux 6.6 or newer", required=False),
)


def check() -> list[Check]:
    """Try everything, torch included."""
    if sys.platform != "linux":
        rest = [_result(each, False, "not tried") for each in (*_OTHERS, _TORCH, *_OPTIONAL)]
        return [_linux(), *rest]
    return [_linux(), *_try([*_OTHERS, _TORCH, *_OPTIONAL])]


def required_missing() -> list[Check]:
    """What is missing without which nothing runs.

    Quick, and so without torch, of which `start` hears soon enough.
    """
    found = [_linux()] if sys.platform != "linux" else _try(_OTHERS)
    return [each for each in found if not each.ok]


def start(base: Path) -> Session:
    """A session below ``base``; raises `CannotRun` naming what this machine lacks."""
    missing = required_missing()
    if missing:
        raise CannotRun(_said(missing))
    from racecheck.processes.session import Session

    try:
        return Session(base)
    except (CannotRun, OSError) as error:
        torch = [each for each in _try([_TORCH]) if not each.ok]
        raise CannotRun(_said(torch) if torch else str(error)) from error


def _said(missing: Sequence[Check]) -> str:
    first, others = missing[0], ", ".join(each.name for each in missing[1:])
    also = f" (also missing: {others})" if others else ""
    return f"this machine cannot run controlled worlds: {first.name}: {first.detail}; {first.mend}{also}"


def _linux() -> Check:
    return _result(_LINUX, sys.platform == "linux", f"this is {platform.system() or sys.platform}")


def _result(primitive: Primitive, ok: bool, detail: str) -> Check:
    return Check(primitive.name, ok, detail, "" if ok else primitive.mend, primitive.required)


def _try(primitives: Sequence[Primitive]) -> list[Check]:
    names = [each.name for each in primitives]
    command = [sys.executable, "-c", _PROBE, json.dumps(sys.path), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True, check=False
    )
    try:
        answers = json.loads(done.stdout)
    except ValueError:
        words = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        answers = dict.fromkeys(names, (False, f"it could not be tried: {words}"))
    return [_result(each, *answers[each.name]) for each in primitives]


def text(checks: Sequence[Check]) -> str:
    """A line for each check, and below it, for what is missing, what to do; at the end what follows."""
    lines = []
    for each in checks:
        state = "ok" if each.ok else "MISSING" if each.required else "without"
        lines.append(f"{state:<8}{each.name:<14}{each.detail}")
        if each.mend:
            lines.append(f"{'':<22}{each.mend}")
    missing = [each.name for each in checks if each.required and not each.ok]
    able = f"cannot run controlled worlds: {', '.join(missing)}" if missing else "can run controlled worlds"
    return "\n".join([*lines, "", f"This machine {able}."])
