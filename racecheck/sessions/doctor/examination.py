"""Examine whether this machine can run controlled worlds: try every primitive, in a process of its own.

Nothing here is specific to Linux, so that elsewhere this can still name the missing parts.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from racecheck.model.errors import CannotRun
from racecheck.model.hints import of_limit

if TYPE_CHECKING:
    from racecheck.sessions.session import Session, Slot

_PROBE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
_PROBE += "from racecheck.sessions.doctor.probes import main; main(sys.argv[2:])"
_CONTAINER = "in a container allow it (docker run --security-opt seccomp=unconfined)"
_USER_NAMESPACES = "kernel.apparmor_restrict_unprivileged_userns=0 (sysctl)"
_MOUNTS = "in a container: docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined"


@dataclass(frozen=True, slots=True)
class Primitive:
    """Something that a controlled world needs, and the remedy if it is missing."""

    name: str
    hint: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of trying a primitive; ``hint`` is the remedy if it is not ``ok``, else ""."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    required: bool = True


_LINUX = Primitive("linux", "run racecheck on Linux 5.19 or newer (a virtual machine works)")
_RUNS = Primitive("runs", "set RACECHECK_RUNS to a private, writable directory")
_TORCH = Primitive("torch", "pip install torch (any build with torch.distributed and gloo)")
_OTHERS = (
    Primitive("architecture", "use a 64-bit Python on x86-64 (aarch64 is untested)"),
    Primitive("kernel", "upgrade to Linux 5.19 or newer"),
    Primitive("seccomp", f"{_CONTAINER}; no outer program may use seccomp notification"),
    Primitive("signals", "upgrade to Linux 5.19 or newer"),
    Primitive("descriptors", "raise the hard limit of open files to 1024 or more (ulimit -Hn)"),
    Primitive("memory", "set kernel.yama.ptrace_scope to 1 or less (sysctl), or give CAP_SYS_PTRACE"),
    Primitive("clocks", "use a kernel that lets a process write to its own code through /proc/self/mem"),
    Primitive("kcmp", f"{_CONTAINER}, and a kernel with CONFIG_KCMP"),
    Primitive("proc", "mount /proc without hidepid, and use a kernel with CONFIG_SCHED_INFO"),
    Primitive("stacks", "let ranks receive real-time signals, and mount /proc without hidepid"),
    _RUNS,
    Primitive("loopback", "bring the loopback interface up (ip link set lo up)"),
)
_OPTIONAL = (
    Primitive("pidfd_getfd", f"descriptors from other processes make runs UNKNOWN: {_CONTAINER}", required=False),
    Primitive("addresses", f"addresses differ from session to session: {_CONTAINER}", required=False),
    Primitive(
        "package", "pip uninstall racecheck, then install torch-racecheck again: the two share files", required=False
    ),
    Primitive("wake-up", "runs are slower: upgrade to Linux 6.6 or newer", required=False),
    Primitive("layer", f"launch commands cannot run: be root, or set {_USER_NAMESPACES}; {_MOUNTS}", required=False),
    Primitive("jobs", "runs are made one after another: see above what is missing", required=False),
)


def check() -> list[DoctorCheck]:
    """Try everything, torch included."""
    if sys.platform != "linux":
        rest = [_result(each, False, "not tried") for each in (*_OTHERS, _TORCH, *_OPTIONAL)]
        return [_linux(), *rest]
    return [_linux(), *_Probe([*_OTHERS, _TORCH, *_OPTIONAL]).results()]


class Starting:
    """A session that starts below ``base``, or in a slot, while its client does something else.

    The primitives are tried while the session imports torch.
    """

    def __init__(self, base: Path, slot: Slot | None = None) -> None:
        self._base, self.slot = base, slot
        self._session: Session | None = None
        self._probe: _Probe | None = None
        self._error = ""

    def begin(self) -> None:
        """Start the processes and return at once; `finish` raises their errors."""
        if self._probe is not None:
            return
        if sys.platform != "linux":
            raise CannotRun(_said([_linux()]))
        from racecheck.sessions.session import Session

        self._probe = _Probe([each for each in _OTHERS if each is not _RUNS])  # the session itself takes a place there
        try:
            self._session = Session(self._base, self.slot)
        except (CannotRun, OSError) as failed:
            self._error = str(failed)

    def finish(self) -> Session:
        """Return the session when it is ready; raises `CannotRun`, which names the missing parts."""
        self.begin()
        assert self._probe is not None
        try:
            if self._session is not None:
                self._session.wait()
        except CannotRun as failed:
            self._error = str(failed)
        missing = [each for each in self._probe.results() if not each.ok]
        if not self._error and not missing and self._session is not None:
            session, self._session = self._session, None
            return session
        self.close()
        missing = missing or [each for each in _Probe([_RUNS, _TORCH]).results() if not each.ok]
        raise CannotRun(_said(missing) if missing else self._error)

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """Lend the session, and end it afterwards; raises `CannotRun` as `finish` does."""
        with self.finish() as session:
            yield session

    def close(self) -> None:
        """End a session that nobody has got, and give its slot back."""
        session, self._session = self._session, None
        if self._probe is not None:
            self._probe.end()
        if session is not None:
            session.close()
        elif self._probe is None and self.slot is not None:
            self.slot.close()

    def __enter__(self) -> Starting:  # noqa: PYI034  (Self is not there in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(base: Path, slot: Slot | None = None) -> Session:
    """Return a session below ``base``, or in a slot; raises `CannotRun`, which names the missing parts."""
    return Starting(base, slot).finish()


def _said(missing: Sequence[DoctorCheck]) -> str:
    first, others = missing[0], ", ".join(each.name for each in missing[1:])
    also = f" (also missing: {others})" if others else ""
    return f"this machine cannot run controlled worlds: {first.name}: {first.detail}; fix: {first.hint}{also}"


def _linux() -> DoctorCheck:
    return _result(_LINUX, sys.platform == "linux", f"this is {platform.system() or sys.platform}")


def _result(primitive: Primitive, ok: bool, detail: str) -> DoctorCheck:
    return DoctorCheck(primitive.name, ok, detail, "" if ok else of_limit(detail) or primitive.hint, primitive.required)


class _Probe:
    """Tries primitives in a process of its own, while the caller does something else."""

    def __init__(self, primitives: Sequence[Primitive]) -> None:
        self._primitives = primitives
        command = [sys.executable, "-c", _PROBE, json.dumps(sys.path), *(each.name for each in primitives)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        """End the process, unless it has ended."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def results(self) -> list[DoctorCheck]:
        """Wait for the process and return a check for each primitive."""
        out, err = self._process.communicate()
        try:
            answers = json.loads(out)
        except ValueError:
            words = (err.strip().splitlines() or [f"exit status {self._process.returncode}"])[-1]
            answers = {each.name: (False, f"could not be tested: {words}") for each in self._primitives}
        return [_result(each, *answers[each.name]) for each in self._primitives]


def text(checks: Sequence[DoctorCheck]) -> str:
    """Return a line for each check, with the remedy below a failed one, and a conclusion."""
    lines = []
    for each in checks:
        state = "ok" if each.ok else "MISSING" if each.required else "optional"
        lines.append(f"{state:<9}{each.name:<14}{each.detail}")
        if each.hint:
            lines.append(f"{'':<23}{each.hint}")
    missing = [each.name for each in checks if each.required and not each.ok]
    able = f"cannot run controlled worlds: {', '.join(missing)}" if missing else "can run controlled worlds"
    return "\n".join([*lines, "", f"This machine {able}."])
