"""The zygote: a process with torch and the imports of scenarios, which forks the ranks of every world.

It must have one thread (a fork copies only the calling one), the same hash seed and addresses in every run, the same
random numbers for what modules draw when they are imported, and memory in huge pages, which makes a fork several times
cheaper.  It is a subreaper: at the end of a world it kills
and reaps whatever the ranks left.

The requests of its client come as JSON over a socket pair and are served one at a time, in order; the sockets
for the ranks come along with the request for a world.  Between requests it reports the ranks that have ended.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import json
import linecache
import os
import resource
import select
import signal
import socket
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from racecheck.agent import clocks, host_names, life, own_modules, recovery_worker, threads, time_reads
from racecheck.agent.job import Job
from racecheck.kernel import interpreter, libc, proc, randomness, seccomp
from racecheck.model.errors import CannotRun, RacecheckError, UsageError
from racecheck.model.package import is_installed
from racecheck.targets import resolve
from racecheck.targets.programs import IDENTITY, Program
from racecheck.targets.scenarios import Scenario

_TRAINING, _LATE = (b"torch.optim", b"torch.nn", b"fully_shard"), ("torch._dynamo",)
_OF_THE_SUITE = ("torch.distributed.checkpoint", "racecheck.targets.suite.state")
_HARMLESS = frozenset({*_OF_THE_SUITE, *_LATE})
"""These start no thread, in any version, so they need no trial: it would take as long as the import itself."""
_PR_SET_CHILD_SUBREAPER = 36
_MADV_COLLAPSE = 25
_HUGE = 2 << 20
_apart: list[str] = []
"""Programs: their imports are made in each rank if it asks for the rank meanwhile."""
_MUCH = 0.5
"""Processor seconds after which a rank computes so much that it should not share a processor with others."""


@dataclass(frozen=True, slots=True)
class _Target:
    """A scenario that ranks can run: they ``load`` it after their fork.  ``program``: it is this one."""

    name: str
    load: Callable[[], Scenario]
    has_setup: bool = False
    program: Program | None = None


class Zygote:
    """Serves one client until the client closes the connection.  ``connect`` brings a rank's process group up."""

    def __init__(self, client: socket.socket, connect: Callable[[Job, int], None], here: str) -> None:
        self._client = client
        self._connect = connect
        self._ranks: dict[int, tuple[int, int]] = {}
        self._watched: dict[int, int] = {}
        self._targets: dict[str, _Target] = {}
        self._finder = own_modules.Finder()
        sys.meta_path.insert(0, self._finder)
        self._spread = False
        self._is_settled = False
        self._here = here
        self._poll = select.poll()
        self._poll.register(client, select.POLLIN)
        self._requests: dict[str, Callable[..., dict[str, Any]]] = {
            "import": self._import,
            "forget": self._forget,
            "learn": self._learn,
            "setup": self._setup,
            "contents": self._contents,
            "gpus": self._gpus,
            "fork": self._fork,
            "adopt": self._adopt,
            "end": self._end,
        }

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._watched:
                    self._report(descriptor)
                elif not self._request():
                    return

    def _request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._client, 1 << 20, 253)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        with suppress(FileNotFoundError):  # removed meanwhile, as it would be without racecheck
            os.chdir(self._here)  # the directory may be another one since: a layer that was renewed
        if descriptors:
            request["sockets"] = descriptors
        try:
            answer = self._requests[request.pop("do")](**request)
        except UsageError as error:
            answer = {"usage": str(error)}
        except RacecheckError as error:
            answer = {"cannot": str(error)}
        return self._say(answer)

    def _say(self, message: dict[str, Any]) -> bool:
        """Return whether the client is still there to hear it."""
        try:
            self._client.send(json.dumps(message).encode())
        except OSError:
            return False
        return True

    def _report(self, descriptor: int) -> None:
        """Report the end of a rank; one of a finished world is only reaped."""
        self._poll.unregister(descriptor)
        pid = self._watched.pop(descriptor)
        os.close(descriptor)
        _, status, used = os.wait4(pid, 0)
        seconds = used.ru_utime + used.ru_stime
        self._spread = seconds > _MUCH
        if pid in self._ranks:
            world, rank = self._ranks.pop(pid)
            answer = {"gone": rank, "world": world, "status": os.waitstatus_to_exitcode(status), "seconds": seconds}
            self._say(answer)

    def _import(self, target: str) -> dict[str, Any]:
        """Prepare a scenario: make the imports of its module, and of its functions.

        The user's own modules are imported by each rank, a program's script is run by it, and only what comes with
        racecheck is imported here.
        """
        if target not in self._targets:
            with randomness.repeatable(target.rpartition("/")[2]):
                self._targets[target] = self._program(target) if resolve.is_program(target) else self._scenario(target)
        return {"name": self._targets[target].name}

    def _program(self, target: str) -> _Target:
        program = resolve.load(target)
        assert isinstance(program, Program)
        _apart.append(target)
        _compile(program)
        self._import_late(target, program.sources)
        return _Target(program.name, lambda: program, program.before is not None, program)

    def _scenario(self, target: str) -> _Target:
        at = resolve.place(target)
        resolve.reach(at)
        seen = own_modules.look(at)
        with own_modules.environment(seen.environment):
            if seen.threads == 1:
                _try_import([each for each in seen.installed if _installed(each)])
            else:
                self._learn([*seen.installed])
        self._finder.add(seen.own)
        at = replace(at, file="")  # which has been compared
        self._import_late(target, [Path(each.file) for each in seen.own])
        if seen.own:
            return _Target(seen.name, lambda: resolve.find(at), has_setup=seen.has_setup)
        scenario = resolve.find(at)
        return _Target(seen.name, lambda: scenario, has_setup=seen.has_setup)

    def _import_late(self, target: str, files: Iterable[Path]) -> None:
        """Make the imports of functions in these files."""
        late = _OF_THE_SUITE if target.endswith("]") else ()
        self._learn([*late, *_imported_below(*files)])
        self._is_settled = False

    def _learn(self, modules: list[str]) -> dict[str, Any]:
        """Import modules that ranks imported on the way, so that the next ranks have them.

        Only installed ones: a module of the user's may do something at import that belongs to the run.
        """
        wanted = [each for each in modules if each not in sys.modules and _installed(each)]
        with randomness.repeatable(" ".join(wanted)):
            known = [each for each in wanted if each in _HARMLESS]
            _try_import(known)
            learnt = [*known, *_import_harmless([each for each in wanted if each not in _HARMLESS], [])]
        if learnt:
            importlib.import_module("racecheck.agent.observation").install()
            self._is_settled = False
        return {"learnt": learnt}

    def _forget(self) -> dict[str, Any]:
        """Forget the programs, whose files may have changed."""
        for target in _apart:
            self._targets.pop(target, None)
        _apart.clear()
        importlib.import_module("racecheck.agent.program").compiled.cache_clear()
        return {}

    def _setup(self, target: str, path: str, output: str, timeout: float) -> dict[str, Any]:
        """Run a scenario's setup in a process of its own; the answer has the traceback if it failed."""
        self._import(target)
        prepared = self._targets[target]

        def set_up() -> None:
            before = prepared.load().before
            assert before is not None
            clocks.begin_setup()
            before(Path(path))

        return {"failed": _in_child(set_up, output, timeout) if prepared.has_setup else ""}

    def _contents(self, root: str, kept: Sequence[str], answer: str, timeout: float) -> dict[str, Any]:
        """Write the contents of the checkpoint files below ``root`` to the file ``answer``, in a process of its own."""
        return {"failed": _in_child(lambda: _write_contents(root, kept, answer), timeout=timeout)}

    def _gpus(self, answer: str) -> dict[str, Any]:
        """Write the number of GPUs, in a process of its own, since one that has asked CUDA cannot fork."""
        hooks = importlib.import_module("racecheck.agent.process_group")
        return {"failed": _in_child(lambda: Path(answer).write_text(str(hooks.gpus())))}

    def _fork(self, world: int, job: dict[str, Any], sockets: list[int]) -> dict[str, Any]:
        work = Job(**job)
        self._import(work.target)
        prepared = self._targets[work.target]
        if len(proc.threads(os.getpid())) != 1:
            raise CannotRun(
                "a module that the scenario imports started a thread, so ranks cannot be forked: "
                "import it inside the scenario function"
            )
        if not self._is_settled:  # it takes as long as 20 forks, so once for all imports
            _settle()
            self._is_settled = True
        work = replace(work, output=f"{work.output}/{world}", spread=self._spread)
        if prepared.program is not None:
            program = prepared.program
            launch = program.resumed if work.recovering and program.resumed is not None else program.launch
            work = replace(work, spawns=launch.spawns, note=program.launch.note)
        for rank in [work.group] if work.forks else range(len(sockets)):
            pid = os.fork()
            if pid == 0:
                self._client.close()
                _leave(partial(_run_rank, prepared.load, work, rank, sockets, self._connect))
            self._watch(world, rank, pid)
        for channel in sockets:
            os.close(channel)
        return {"forked": world}

    def _watch(self, world: int, rank: int, pid: int) -> None:
        self._ranks[pid] = (world, rank)
        handle = os.pidfd_open(pid)
        self._watched[handle] = pid
        self._poll.register(handle, select.POLLIN)

    def _adopt(self, world: int, pids: list[int]) -> dict[str, Any]:
        """Watch the ranks that a program has forked: their own parents have ended, so they are this one's children."""
        for rank, pid in enumerate(pids):
            self._watch(world, rank, pid)
        return {"adopted": world}

    def _end(self, world: int, thorough: bool) -> dict[str, Any]:
        """Kill every process that a world has left.

        Ranks that have started nothing are reaped later, while the next world begins; a ``thorough`` end waits
        until no descendant is left but the ranks of other worlds.
        """
        ended = [pid for pid, (number, _) in self._ranks.items() if number == world]
        for pid in ended:
            os.kill(pid, signal.SIGKILL)
            del self._ranks[pid]
        while thorough and (left := set(proc.descendants(os.getpid())) - self._ranks.keys()):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap(left)
        return {"ended": world}

    def _reap(self, pids: set[int]) -> None:
        """Wait for children that have been killed, of whatever generation."""
        for handle, pid in list(self._watched.items()):
            if pid in pids:
                self._poll.unregister(handle)
                os.close(handle)
                del self._watched[handle]
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _write_contents(root: str, kept: Sequence[str], answer: str) -> None:
    contents = importlib.import_module("racecheck.agent.contents.reading")
    Path(answer).write_text(json.dumps(contents.read(root, kept)))


def _run_rank(
    load: Callable[[], Scenario],
    job: Job,
    rank: int,
    sockets: list[int],
    connect: Callable[[Job, int], None],
) -> int:
    for each in sockets if not job.forks else ():
        if each != sockets[rank]:
            os.close(each)
    with socket.socket(fileno=sockets[rank]) as talk:
        if job.loads:
            return recovery_worker.run(load, job, talk, connect)
        return life.run(load, job, rank, talk, connect, sockets)


def _leave(function: Callable[[], int]) -> None:
    """Run a function in a forked child and end the process with its status, without a finalisation."""
    status = 70
    try:
        status = function()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _in_child(function: Callable[[], Any], output: str = os.devnull, timeout: float = 60.0) -> str:
    """Run a function in a child; returns "" or the text of its exception.  After ``timeout`` seconds it is killed.

    Raises `CannotRun` if something else kills it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _leave(lambda: _reporting(function, writing, output))
    os.close(writing)
    ended = select.poll()
    ended.register(handle := os.pidfd_open(pid), select.POLLIN)
    late = not ended.poll(timeout * 1000)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    if late:
        return f"it had not ended after {timeout:g} s"
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        raise CannotRun("a process of the setup, or a reader, was killed: from outside, or for want of memory")
    return text or ("" if status == 0 else f"it ended with status {os.waitstatus_to_exitcode(status)}")


def _reporting(function: Callable[[], Any], writing: int, output: str) -> int:
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    try:
        function()
    except BaseException:  # noqa: BLE001
        os.write(writing, traceback.format_exc().encode(errors="replace")[-60_000:])
        return 1
    return 0


def _import_harmless(modules: list[str], harmful: list[str]) -> list[str]:
    """Import those that start no thread, and return their names; the packages of the others become ``harmful``.

    They are tried in a process of its own: all, or else each half by itself.
    """
    wanted = [each for each in modules if not any(f"{each}.".startswith(f"{package}.") for package in harmful)]
    if not wanted:
        return []
    if not _in_child(lambda: _try_import(wanted)):
        _try_import(wanted)
        return wanted
    if len(wanted) == 1:
        harmful += wanted
        return []
    half = len(wanted) // 2
    return [*_import_harmless(wanted[:half], harmful), *_import_harmless(wanted[half:], harmful)]


def _try_import(modules: list[str]) -> None:
    with _questions() as asked:
        for each in modules:
            with suppress(Exception):
                importlib.import_module(each)
    if len(proc.threads(os.getpid())) != 1:
        raise CannotRun("importing these starts a thread")
    if asked and _apart:
        raise CannotRun(f"importing these asks for {asked[0]}, which differs from rank to rank")


@contextmanager
def _questions() -> Iterator[list[str]]:
    """Take down which variables that tell ranks apart are asked for."""
    asked: list[str] = []
    encode = os.environ.encodekey  # every look at a variable encodes its name first

    def noting(name: str) -> str:
        if name in IDENTITY:
            asked.append(name)
        return encode(name)

    os.environ.encodekey = noting
    try:
        yield asked
    finally:
        os.environ.encodekey = encode


def _compile(program: Program) -> None:
    """Compile a program's scripts once, for all ranks; an error is for the rank to report."""
    runner = importlib.import_module("racecheck.agent.program")
    for each in (program.launch, program.resumed):
        if each is not None and each.script:
            with suppress(OSError, SyntaxError, ValueError):
                runner.compiled(each.file)


def _imported_below(*files: Path) -> list[str]:
    """Return the modules that functions of source files import when they are called.

    Added are those that torch imports when an optimizer is made, or a model is wrapped, if a file looks as if it did.
    """
    found: dict[str, None] = {}
    sources = [each.read_bytes() for each in dict.fromkeys(files) if each.suffix == ".py" and each.is_file()]
    for source in sources:
        for node in _nodes(source):
            if isinstance(node, ast.Import):
                found |= dict.fromkeys(each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found[node.module] = None
        found |= dict.fromkeys(_LATE if any(each in source for each in _TRAINING) else ())
    return [*found]


def _nodes(source: bytes) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a source file; none of a bad one: the rank that imports it tells of that."""
    with suppress(SyntaxError, ValueError):
        yield from ast.walk(ast.parse(source))


def _installed(name: str) -> bool:
    """Return whether a module belongs to an installed package, without importing it."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    spec = getattr(sys.modules.get(top), "__spec__", None)
    if spec is None:
        with suppress(Exception):
            spec = importlib.util.find_spec(top)
    places = (spec.origin, *(spec.submodule_search_locations or ())) if spec else ()
    return any(is_installed(each) for each in places if each)


def _settle() -> None:
    """After imports: collect garbage, drop others' exit handlers, and use huge pages."""
    gc.enable()
    gc.collect()
    gc.freeze()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, *_, name = [*line.split(maxsplit=5), ""][:6]
        if mode.startswith("rw") and name.strip() in {"", "[heap]"}:
            first, last = (int(each, 16) for each in span.split("-"))
            first, last = -(-first // _HUGE) * _HUGE, last // _HUGE * _HUGE
            if first < last:
                libc.madvise(first, last - first, _MADV_COLLAPSE)


def _room_for_descriptors() -> None:
    """Limit the descriptors that a rank may open: those of watched files have numbers of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 512) + seccomp.FIRST_DESCRIPTOR
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def main(client: int, here: str) -> None:
    """Import torch and serve the client on descriptor ``client``.

    ``here`` is the working directory by its path: a layer that is renewed meanwhile has another one of that name.
    """
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    gc.disable()  # until `_settle`: imports make much that lasts
    _room_for_descriptors()
    with socket.socket(fileno=client) as talk:
        try:
            clocks.take_over_time()
        except OSError as error:
            why = f"cannot make clocks virtual: /proc/self/mem: {error.strerror}; run racecheck doctor"
            talk.send(json.dumps({"cannot": why}).encode())
            return
        threads.take_over_threads()
        threads.take_over_raw_threads()
        threads.take_over_processes()
        threads.take_over_polls()
        threads.take_over_limits()
        threads.take_over_signals()
        host_names.install()
        linecache.checkcache = lambda filename=None: None  # noqa: ARG005  (torch asks for stacks often; no source changes)
        try:
            with randomness.repeatable("torch"):
                hooks = importlib.import_module("racecheck.agent.process_group")
        except ImportError as error:
            talk.send(json.dumps({"cannot": f"{error}: install torch (pip install torch)"}).encode())
            return
        hooks.install()
        time_reads.install()
        seccomp.assembled(stop_for_gil=True)
        try:
            talk.send(json.dumps({"gil": interpreter.gil()}).encode())
        except BrokenPipeError:  # the client was interrupted meanwhile
            return
        Zygote(talk, hooks.connect, here).serve()
