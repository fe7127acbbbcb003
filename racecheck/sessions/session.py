"""The client's side of the zygote: its directory, its guardian, and requests to it."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from racecheck import storage
from racecheck.agent.job import SHOWN, Job
from racecheck.kernel import proc
from racecheck.kernel.layer import Layer
from racecheck.kernel.trees import age, empty, wipe
from racecheck.model.epoch import APART
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Content, DiskEntry, Piece, World
from racecheck.sessions import disk
from racecheck.sessions.file_digests import SLOT
from racecheck.targets import resolve, surroundings
from racecheck.targets.programs import Program

_GUARDIAN = Path(__file__).with_name("guardian.py")
_SERVE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from racecheck.agent.zygote import main; "
_MESSAGE = 1 << 20
_SLOTS = 4096
_NO_RDRAND = "~0x4000000000000000"
"""Clears bit 30 of cpuid(1)'s ECX (OPENSSL_ia32cap(3))."""
_OURS = frozenset({"disk", "nodes", "tmp", "output", "setup", "record", "crash", "layer"})
"""The entries of a slot."""


class Slot:
    """A directory of our own below ``base``, locked for as long as the session or its guardian lives.

    Slots are numbered.  The first free one is taken, or the one with the ``number`` that is asked for, so that paths
    are the same in every session that runs alone, whoever runs it.  The remains of a killed session in a slot go when
    the slot is taken again.
    """

    def __init__(self, base: Path, number: int = 0) -> None:
        _check_handles()
        base = base.resolve()
        asked = [number] if 0 <= number < _SLOTS else []
        for self.number in dict.fromkeys([*asked, *range(_SLOTS)]):
            self.path = base / SLOT.format(self.number)
            lock = _taken(self.path)
            if lock is not None:
                break
        else:
            raise CannotRun(f"all workspaces in {base} are in use, or belong to others; set RACECHECK_RUNS")
        self.lock = lock
        self.watched, self.scratch, self.output = (self.path / name for name in ("disk", "tmp", "output"))
        self.kept: frozenset[str] = frozenset()
        """The entries of the watched directory that are not under control, and stay as they are."""
        self.nodes = self.path / "nodes"
        self._template, self._template_of = self.path / "setup", ""
        self._surroundings = ""
        self._layer: Layer | None = None
        self._empty()
        self.output.mkdir()

    def cover(self, watched: Path, kept: Collection[str], used: Sequence[Path]) -> None:
        """Watch a directory at its own path, and let nothing that this process or its children write be real.

        But for this slot.  The entries with the names ``kept`` are not watched; ``used`` are directories in which a
        program is likely to write (`racecheck.kernel.layer`).
        Raises `CannotRun` if the kernel does not allow it.
        """
        try:
            self._layer = Layer(self.path / "layer", [self.path], used)
        except OSError as error:
            raise CannotRun(
                f"cannot cover this machine's files: {error.strerror}; racecheck doctor says what launch commands need"
                "; a scenario runs without it"
            ) from None
        self.watched, self.kept = watched, frozenset(kept)
        self._check_watched()

    def lift(self) -> None:
        """Show this process the real files, of which none is watched, until `cover_again`."""
        assert self._layer is not None
        self.watched, self.kept = self.path / "disk", frozenset()
        self._layer.lift()
        self._surroundings = ""

    def cover_again(self, watched: Path, kept: Collection[str], used: Sequence[Path]) -> None:
        """Watch another directory at its own path, after `lift`; files may have changed meanwhile."""
        assert self._layer is not None
        self._layer.cover(used)
        self.watched, self.kept = watched, frozenset(kept)
        self._check_watched()

    @property
    def is_covered(self) -> bool:
        """Return whether a program is watched at the path of its own directory."""
        return self._layer is not None

    @property
    def is_apart(self) -> bool:
        """Return whether a program sees no process outside of its run."""
        return self._layer is not None and self._layer.is_apart

    def changed_outside(self) -> list[str]:
        """Return the files that the last run wrote outside the watched directory, into the layer."""
        return self._layer.changed(self.watched, self.kept) if self._layer is not None else []

    def written_outside(self) -> list[Path]:
        """Return the paths that the last run changed outside the watched directory."""
        return self._layer.written(self.watched) if self._layer is not None else []

    def difference_outside(self) -> list[tuple[Path, bool]]:
        """Return the paths made, written or removed outside the watched directory (`Layer.difference`)."""
        found = self._layer.difference() if self._layer is not None else ()
        return [(path, hides) for path, hides in found if not self._is_watched(path)]

    def _is_watched(self, path: Path) -> bool:
        below = path.is_relative_to(self.watched)
        return below and not (self.kept and path.relative_to(self.watched).parts[:1] in {(each,) for each in self.kept})

    def surround(self, archive: str) -> None:
        """Have each run find the files of an archive of `racecheck.targets.surroundings`; "" for none.

        Raises `UsageError` for a path that the layer does not hold.
        """
        if self._layer is None or self._surroundings == archive:
            return
        self._layer.forget()
        self._surroundings = archive
        if archive:
            try:
                surroundings.put_back(archive, self._layer.holds)
            except OSError as error:
                raise CannotRun(
                    f"cannot put {error.filename} where it was before the ranks: {error.strerror}"
                ) from None
            self._layer.keep()

    def _empty(self) -> None:
        for name in os.listdir(self.path):
            wipe(self.path / name)

    def keep(self, target: str) -> None:
        """Keep the files of a scenario's setup in the watched directory, unless copies of it would differ."""
        self._template_of = ""
        wipe(self._template)
        if _copies_well(self.watched, self.kept):
            if self.watched.exists():
                shutil.copytree(self.watched, self._template, symlinks=True, ignore=self._ignored)
            self._template_of = target

    def _ignored(self, directory: str, names: Sequence[str]) -> Collection[str]:
        del names
        return self.kept if directory == str(self.watched) else ()

    def restore(self, target: str) -> bool:
        """Restore the files that were kept for a scenario; returns whether there are any."""
        if self._template_of != target:
            return False
        if self._template.exists():
            shutil.copytree(self._template, self.watched, symlinks=True, dirs_exist_ok=True)
        else:
            self.watched.rmdir()
        return True

    def disks(self, world: World) -> dict[str, Path]:
        """Return where a world's files are: for each disk the prefix of its paths in an outcome, and its directory."""
        if not storage.make(world).per_node:
            return {"": self.watched}
        return {f"node{node}/": self.nodes / str(node) for node in range(world.nodes)}

    def read(self, world: World) -> dict[str, DiskEntry]:
        """Return the entries on the disks of a world, by path as in an outcome."""
        return disk.read(self.disks(world), self.kept)

    def mounts(self, world: World) -> list[Path]:
        """Return, for each node, the directory that replaces the watched one; none where all share one."""
        model = storage.make(world)
        has_own = model.per_node or model.mirrored
        return [self.nodes / str(node) for node in range(world.nodes)] if has_own else []

    def spread(self, world: World) -> None:
        """Copy the watched directory to every disk of a world; the directory itself then only stands for them.

        Where a program has yet to make it, the disks are empty: the directory is where they are mounted.
        """
        disks = [each for each in self.disks(world).values() if each != self.watched]
        for each in disks if self.watched.exists() else ():
            shutil.copytree(self.watched, each, symlinks=True, dirs_exist_ok=True)
        if disks:
            wipe(self.watched)
            self.watched.mkdir()

    def reset(self, world: World) -> None:
        """Make the slot as it is before a run: empty, with a scratch directory for each node.

        Files of ranks beside the watched directory go, too, for the next run is to do the same.
        """
        self.clean()
        self._check_watched()
        strays = [self.path / name for name in os.listdir(self.path) if name not in _OURS]
        if self.kept:
            empty(self.watched, self.kept)
        for each in (*([] if self.kept else [self.watched]), self.nodes, self.scratch, *strays):
            wipe(each)
        self.make_room(world)

    def left(self) -> str:
        """Return a hash of all that a run has left in the slot: names, kinds, modes, times and contents."""
        strays = [self.path / name for name in sorted(os.listdir(self.path)) if name not in _OURS]
        return disk.state((self.watched, self.nodes, self.scratch, *strays), self.kept)

    def clean(self) -> None:
        """Forget the writes outside the watched directory; no process may write meanwhile."""
        if self._layer is not None and self.changed_outside():
            self._layer.renew()

    def make_room(self, world: World) -> None:
        """Create the scratch directory and the disk of every node of a world, where it is missing."""
        self._check_watched()
        needed = [self.watched, *self.mounts(world), *(self.scratch / str(node) for node in range(world.nodes))]
        try:
            for each in needed:
                each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRun(
                f"cannot write to {self.path}: {error.strerror}; free space or set RACECHECK_RUNS"
            ) from None

    def _check_watched(self) -> None:
        """Raise `CannotRun` before a directory of the user's is emptied that the layer does not hold."""
        if self._layer is not None and not self._layer.holds(self.watched):
            raise CannotRun(
                f"cannot cover {self.watched}, so nothing is run there: it is read-only, or an ordinary user cannot "
                "because something else is mounted beside it; watch a directory elsewhere"
            )

    def close(self) -> None:
        self._empty()
        os.close(self.lock)


def _program(target: str) -> Program | None:
    found = resolve.load(target) if resolve.is_program(target) else None
    return found if isinstance(found, Program) else None


def _taken(path: Path) -> int | None:
    """Return a descriptor that locks a slot, None for one that is in use, or is not private to this user."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if os.path.lexists(path):
            return None
        raise CannotRun(f"cannot make {path}: {error.strerror}; set RACECHECK_RUNS to a directory") from None
    status = os.fstat(lock)
    try:
        if status.st_uid == os.getuid() and not status.st_mode & 0o077:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None


def _copies_well(tree: Path, kept: Collection[str]) -> bool:
    """Return whether a copy without the entries ``kept`` is the same: directories, links, files that have one name."""
    for below, directories, files in os.walk(tree):
        if below == str(tree):
            directories[:] = [each for each in directories if each not in kept]
        for name in [*directories, *(each for each in files if below != str(tree) or each not in kept)]:
            status = os.lstat(os.path.join(below, name))
            regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            if not (regular or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                return False
    return True


def _check_handles() -> None:
    """Raise `CannotRun` where no process can be waited for by a descriptor, as all of ours are."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        why = getattr(error, "strerror", "this Python lacks it")
        raise CannotRun(f"pidfd_open(2) is not possible: {why}; allow it in the container's profile") from None


class Session:
    """A guardian and a zygote, kept until `close`; ``slot``: in that one.

    The constructor returns at once, while the zygote imports torch; `wait` returns when it is ready.
    ``imported``: the modules that ranks have had to import so far.
    """

    def __init__(self, base: Path, slot: Slot | None = None) -> None:
        self.slot = slot or Slot(base)
        self._gone: list[dict[str, int]] = []
        self._used = 0.0
        self._worlds = 0
        self._known: frozenset[str] = frozenset()
        self._tried: set[str] = set()
        self.imported: set[str] = set()
        self.until = math.inf
        self._loaded: set[str] = set()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        call = f"{_SERVE}main({theirs.fileno()}, {os.getcwd()!r})"
        self._guardian = subprocess.Popen(
            guarded(self.slot.path, (sys.executable, "-c", call, json.dumps([*sys.path]))),
            pass_fds=(theirs.fileno(), self.slot.lock),
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            env={**os.environ, **environment(), "RACECHECK_SLOT": str(self.slot.path)},
        )
        theirs.close()

    @contextmanager
    def limited(self, until: float) -> Iterator[None]:
        """Let no run go on after a moment of `time.monotonic`: it raises `OutOfTime`."""
        before, self.until = self.until, until
        try:
            yield
        finally:
            self.until = before

    @property
    def processor_seconds(self) -> float:
        """Return how much time of processors this process and the ranks so far have taken."""
        return time.process_time() + self._used

    def wait(self) -> None:
        """Return when the zygote is ready; raises `CannotRun` if it never will be."""
        assert self.gil >= 0

    @cached_property
    def gil(self) -> int:
        """Return the address of the GIL in ranks, 0 if unknown: the first message of the zygote."""
        return int(self._receive()["gil"])

    def request(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the zygote; returns its answer.

        Raises `UsageError` or `CannotRun` with the reason of the zygote.
        """
        self.wait()
        self._send({"do": do, **arguments}, ())
        return self._receive()

    def _send(self, message: dict[str, Any], sockets: tuple[socket.socket, ...]) -> None:
        try:
            socket.send_fds(self.socket, [json.dumps(message).encode()], [each.fileno() for each in sockets])
        except OSError:
            raise self._lost() from None

    def job(
        self, target: str, world: World, seed: str, *, controlled: bool, recovering: bool = False,
        restarted: bool = False,
    ) -> Job:  # fmt: skip
        """Return the job of the ranks of a world; raises `UsageError` for a world that cannot be controlled."""
        if resolve.is_program(target) and not self.slot.is_covered:
            raise UsageError(f"{target} is a program: run it with racecheck run, which covers this machine's files")
        if controlled and world.backend == "nccl":
            raise UsageError("NCCL cannot be controlled (its waits spin): add --mode free, or use gloo")
        slot, skew = self.slot, [*world.skew, *[0.0] * world.ranks]
        return Job(
            target=target, ranks=world.ranks, nodes=world.nodes, seed=seed, watched=str(slot.watched),
            kept=sorted(slot.kept), scratch=str(slot.scratch), output=str(slot.output), controlled=controlled,
            recovering=recovering, restarted=restarted,
            backend="gloo" if controlled else world.backend,
            ahead=[round(seconds * 1e9) + rank * APART for rank, seconds in enumerate(skew[: world.ranks])],
            sizes={each.name: each.value for each in world.sizes}, early=world.collectives == "weakest",
            program=resolve.is_program(target), forks=self._forks(target, recovering=recovering),
        )  # fmt: skip

    def make_ready(self, target: str, world: World) -> None:
        """Prepare the slot for a run; raises `UsageError` if the setup fails or takes longer than the world's timeout.

        The setup runs once, and later runs get a copy of its files: the same, and cheaper than a process.
        """
        slot = self.slot
        self._surround(target)
        slot.reset(world)
        if not slot.restore(target):
            started = time.time_ns()
            log, path = str(slot.output / "setup"), str(slot.watched)
            answer = self.request("setup", target=target, path=path, output=log, timeout=world.timeout)
            if answer["failed"]:
                why = answer["failed"].strip().splitlines()[-1]
                if os.strerror(errno.ENOSPC) in why:
                    raise CannotRun(f"the setup of {target} failed: {why}; free space there, or set RACECHECK_RUNS")
                raise UsageError(f"the setup of {target} failed: {why}")
            age(slot.watched, started)
            slot.keep(target)
        slot.spread(world)

    def contents(self, world: World) -> dict[str, Content]:
        """Return the contents of the checkpoint files that a run has left, by path as in its outcome's ``disk``."""
        found, answer = {}, self.slot.output / "contents"
        for prefix, root in self.slot.disks(world).items():
            asked = {"root": str(root), "kept": sorted(self.slot.kept), "answer": str(answer)}
            failed = self.request("contents", **asked, timeout=world.timeout)["failed"]
            if failed:
                raise CannotRun(f"cannot read the run's files: {failed.strip().splitlines()[-1]}")
            for path, raw in json.loads(answer.read_text()).items():
                found[f"{prefix}{path}"] = content(raw, prefix)
            answer.unlink()
        return found

    @cached_property
    def gpus(self) -> int:
        """Return how many GPUs NCCL could use."""
        answer = self.slot.output / "gpus"
        failed = self.request("gpus", answer=str(answer))["failed"]
        if failed:
            raise CannotRun(f"cannot count GPUs: {failed.strip().splitlines()[-1]}")
        count = int(answer.read_text())
        answer.unlink()
        return count

    def next_world(self) -> int:
        """Return a number for a new world; its ranks' output has a directory of that name."""
        self._worlds += 1
        (self.slot.output / str(self._worlds)).mkdir()
        return self._worlds

    def fork(self, world: int, job: dict[str, Any], sockets: tuple[socket.socket, ...]) -> None:
        """Have the zygote fork the ranks of a world; does not wait for it."""
        self._send({"do": "fork", "world": world, "job": job}, sockets)

    def adopt(self, world: int, pids: Sequence[int]) -> None:
        """Have the zygote tell of the ends of the first ranks of a world, which one of its ranks has forked."""
        self.request("adopt", world=world, pids=[*pids])

    def gone(self, world: int, others: Collection[int] = ()) -> list[dict[str, int]]:
        """Return the ranks of a world that have ended since the last call, each with its status; does not block.

        ``others`` are older worlds that are still asked about.
        """
        while self._readable():
            self._sort(json.loads(self._take()))
        found = [each for each in self._gone if each["world"] == world]
        kept = [each for each in self._gone if each["world"] > world or each["world"] in others]
        self._gone = [each for each in kept if each["world"] != world]
        return found

    def first(self, target: str) -> bool:
        """Return whether this is the first time that a target is named here."""
        known, self._known = self._known, self._known | {target}
        return target not in known

    def end_strays(self, spared: Collection[int] = ()) -> None:
        """Kill the processes that ranks have left running, and every other descendant of this process.

        Those that are ``spared`` go on, with their descendants.  This process must be a subreaper (prctl(2)), so that a
        daemon of a launcher descends from it.  Raises `CannotRun`.
        """
        self.request("end", world=self._worlds, thorough=True)
        kept = (self._guardian.pid, *spared)
        while left := {*proc.descendants(os.getpid())} - {
            *kept, *(pid for each in kept for pid in proc.descendants(each)),
        }:  # fmt: skip
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def load(self, target: str) -> None:
        """Have the zygote load a scenario, from files as a run finds them and not as a launcher has left them."""
        if target not in self._loaded:
            self.wait()
            self._surround(target)
            self.slot.clean()
            self._loaded.add(target)
        self.request("import", target=target)

    def _surround(self, target: str) -> None:
        if (program := _program(target)) is not None:
            self.slot.surround(program.launch.before)

    def _forks(self, target: str, *, recovering: bool) -> bool:
        program = _program(target)
        if program is None:
            return False
        return (program.resumed or program.launch if recovering else program.launch).forks

    def restarts(self, target: str) -> bool:
        """Return whether the launcher of a program starts its ranks again after one has failed."""
        program = _program(target)
        return program is not None and program.launch.restarts(program.resumed)

    def forget(self) -> None:
        """Have the zygote load programs again, whose files may have changed."""
        self._loaded.clear()
        self.request("forget")

    def learn(self) -> bool:
        """Have the zygote import the modules that ranks had to import; returns whether there was anything new.

        Each module is tried once.
        """
        fresh = sorted(self.imported - self._tried)
        self._tried.update(fresh)
        return bool(fresh) and bool(self.request("learn", modules=fresh)["learnt"])

    def end_world(self, world: int, *, thorough: bool) -> None:
        """Kill the processes left of a world; ``thorough``: also children of its ranks."""
        self.request("end", world=world, thorough=thorough)

    def _receive(self) -> dict[str, Any]:
        while True:
            answer: dict[str, Any] = json.loads(self._take())
            if not self._sort(answer):
                return answer

    def _sort(self, message: dict[str, Any]) -> bool:
        """Keep an unrequested message; returns whether this was one.  Raises the errors of the zygote."""
        if "usage" in message:
            raise UsageError(message["usage"])
        if "cannot" in message:
            raise CannotRun(message["cannot"])
        if "gone" in message:
            self._used += message.pop("seconds")
            self._gone.append(message)
        return "gone" in message or "forked" in message

    def _take(self) -> bytes:
        try:
            data = self.socket.recv(_MESSAGE)
        except OSError:
            data = b""
        if not data:
            raise self._lost()
        return data

    def _lost(self) -> CannotRun:
        return CannotRun("the zygote or guardian died; killed from outside, or out of memory?")

    def _readable(self) -> bool:
        watch = select.poll()
        watch.register(self.socket, select.POLLIN)
        return bool(watch.poll(0))

    def close(self) -> None:
        """End the guardian, which kills the remaining processes and empties the slot."""
        self.socket.close()
        self._guardian.terminate()
        try:
            failed = self._guardian.wait(timeout=20) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            self._kill()
        self.slot.close()

    def _kill(self) -> None:
        """Do the guardian's work, where the guardian itself has been killed."""
        marked = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid, self.slot.path)]
        for pid in {*marked, *proc.descendants(self._guardian.pid), self._guardian.pid}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._guardian.wait()

    def __enter__(self) -> Session:  # noqa: PYI034  (Self is not there in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def content(raw: dict[str, Any], prefix: str) -> Content:
    """Return one file of the contents that `racecheck.agent.contents.reading` returns."""
    sizes = ("shape", "start", "sizes")
    pieces = [{**each, **{name: tuple(each[name]) for name in sizes}} for each in raw["pieces"]]
    return Content(**{**raw, "pieces": tuple(Piece(**{**each, "file": f"{prefix}{each['file']}"}) for each in pieces)})


def _is_ours(pid: int, slot: Path) -> bool:
    """Return whether a process was started for this slot: its environment says so."""
    with suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return f"RACECHECK_SLOT={slot}".encode() in environment
    return False


def guarded(directory: Path, command: Sequence[str], *, alone: bool = False) -> list[str]:
    """Return a command that runs another one below a guardian (`racecheck.sessions.guardian`).

    The guardian ends with this process or with the command, kills all that it has started, and empties the directory.
    ``alone``: the command sees no other process, and cannot mount anything, if the guardian inherits the right to mount
    (`racecheck.kernel.capabilities.inherited`).
    """
    words = [str(os.getpid()), str(directory), "alone" if alone else ""]
    return [sys.executable, "-I", "-S", str(_GUARDIAN), *words, *command]


def environment() -> dict[str, str]:
    """Return an environment in which forks of the zygote are alike in every session.

    It fixes the hash seed, allows one thread and hides the GPUs (ranks with NCCL see them through another variable:
    `racecheck.agent.job.show_gpus`).  OpenSSL, and BoringSSL in tensorstore, draw no random numbers from
    the processor, which cannot be intercepted.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {
        **({SHOWN: visible} if visible is not None else {}),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "OPENSSL_ia32cap": _NO_RDRAND,
    }
