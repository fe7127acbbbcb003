"""The life of a rank, from its fork to its end, and what it tells the supervisor (`hypercalling`)."""

from __future__ import annotations

import _posixsubprocess
import _thread
import atexit
import copy
import ctypes
import errno as errno_module
import faulthandler
import functools
import gc
import importlib
import itertools
import json
import mmap
import os
import queue
import random
import re
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType, MappingProxyType, ModuleType, TracebackType
from typing import Any, SupportsFloat, SupportsIndex

from racecheck.kernel import capabilities, libc, seccomp, syscalls, vdso
from racecheck.model.errors import UsageError
from racecheck.model.hypercalls import (
    BeginItem,
    BeginProcess,
    BeginThread,
    Declare,
    EndItem,
    EndThread,
    Exit,
    Finalise,
    Limit,
    LooksAtClock,
    Note,
    Observed,
    Poll,
    Ready,
    Sleeps,
    Started,
    Starting,
    Submit,
    Submitted,
    ThreadFailed,
)
from racecheck.model.nouns import Died, Frame, Raised, RankResult, Returned
from racecheck.model.package import is_installed
from racecheck.processes import epoch
from racecheck.processes.ranks import host_names, loop_state
from racecheck.processes.ranks.hypercalling import ECHO, OURS, hypercall, stack
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Rank, Scenario

STACK_SIGNAL = 62
"""Asks a stopped thread for its Python stack: faulthandler writes it, no Python code runs.  It is the third real-time
signal from the end; by its number, since `signal` names none elsewhere than on Linux, where `doctor` has to run too.
"""

_PR_SET_PDEATHSIG = 1
_WAITS_AND_LOGS = tuple(
    f"{os.path.dirname(os.__file__)}/{name}"
    for name in ("asyncio", "concurrent", "logging", "multiprocessing", "queue", "selectors", "subprocess", "threading")
)
_LOST = re.compile(r"gloo/transport/.*(closed by peer|reset by peer|Broken pipe|Timed out)", re.DOTALL)
"""gloo's messages about a peer that is gone."""


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a world's ranks.

    ``watched`` is the scenario's directory, ``kept`` are its entries that are not watched; ``scratch`` holds a TMPDIR
    for each node, ``output`` what each prints.
    ``controlled`` is False in free mode, in which calls that a fault may be about are ``filtered`` all the same.
    ``ahead`` is how many nanoseconds each rank's clock is ahead, ``sizes`` are the world's by name.  ``recovering``:
    they run the scenario's recovery.  ``loads`` is the directory of a loader
    (`racecheck.processes.ranks.recovery_worker`), whose bytes are in the file ``spool``; if it is ``reading`` it
    reports what is in the files, too.  ``early``: a rank whose part of a collective needs nothing of its peers
    continues at once. ``spread``: ranks compute enough that they are faster on different processors.  ``program``: they
    run a program; if it ``spawns``, the last one starts the others, and belongs to no process group; ``note`` is what
    the report says about its launch.
    """

    target: str
    ranks: int
    nodes: int
    seed: str
    watched: str
    scratch: str
    output: str
    controlled: bool
    backend: str = "gloo"
    filtered: bool = False
    ahead: Sequence[int] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    recovering: bool = False
    loads: str = ""
    spool: str = ""
    reading: bool = False
    early: bool = False
    spread: bool = False
    program: bool = False
    spawns: bool = False
    note: str = ""
    kept: Sequence[str] = ()

    @property
    def group(self) -> int:
        """Return how many ranks the process group has."""
        return self.ranks - self.spawns

    def rank(self, number: int, channel: socket.socket) -> Rank:
        """Return what the scenario receives."""
        node, local = divmod(number, self.ranks // self.nodes)
        tell, sizes = functools.partial(_tell, self, channel), MappingProxyType(_Sizes(self.sizes, channel))
        return Rank(number, self.ranks, Path(self.watched), node, local, sizes, tell)


class _Sizes(dict[str, int]):
    """Sizes by name; to ask for an unknown one is wrong usage, not the target's bug."""

    def __init__(self, sizes: Mapping[str, int], channel: socket.socket) -> None:
        super().__init__(sizes)
        self._channel = channel

    def __missing__(self, name: str) -> int:
        known = ", ".join(self) or "none"
        send(self._channel, {"usage": f"the scenario reads size {name!r}, but its world has: {known}"})
        raise KeyError(name)


SHOWN = "RACECHECK_CUDA_VISIBLE_DEVICES"
"""CUDA_VISIBLE_DEVICES as the session's own process has it; the zygote and most ranks see no GPU."""

_THREADING = frozenset({"threading", "queue", "concurrent.futures._base", "concurrent.futures.thread"})
"""Modules whose own questions come with ops of their callers."""


def sleep(seconds: SupportsFloat | SupportsIndex, /) -> None:
    """Replace ``time.sleep``, and ask the kernel for a duration.

    The original asks for a point in time: how far off that is when the call is intercepted depends on how fast this
    machine is.
    """
    seconds = float(seconds)
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if _page is not None and _page[8]:
        hypercall(Sleeps(loop_state.digest(sys._getframe(1))))
    number = syscalls.number("clock_nanosleep", libc.MACHINE)
    assert number is not None
    left = ctypes.create_string_buffer(struct.pack("qq", int(seconds), round(seconds % 1 * 1e9) % 10**9), 16)
    libc.syscall(number, time.CLOCK_MONOTONIC, 0, left, left)


_page: mmap.mmap | None = None
_ahead = 0
_of_setup: list[Iterator[int]] = []
_told: list[bool] = []
_reads = threading.local()


def show_gpus() -> None:
    """Make the GPUs of the session's own process visible to this process, before it asks CUDA."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if SHOWN in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[SHOWN]


def take_over_time() -> None:
    """Replace the clocks by ones that the supervisor answers for.

    Python's read the virtual time from a page of memory that the supervisor writes.  Each reading is later than the one
    before; those of the time of day are counted by themselves, for it goes into files, and how often an event loop asks
    for the other is its own affair.  The time of day of C++ and Rust comes from the C library, whose vDSO is diverted;
    their monotonic clocks stay real, since the kernel waits by them.
    """
    vdso.divert()
    real, of_day = time.clock_gettime_ns, {time.CLOCK_REALTIME, time.CLOCK_TAI}

    def read(clock: int) -> int:
        if _page is None:
            return next(_of_setup[0]) if _of_setup and clock in of_day else int(real(clock))
        kind, begins = ("of_day", epoch.EPOCH + _ahead) if clock in of_day else ("since", epoch.BOOTED)
        count = int(getattr(_reads, kind, 0)) + 1
        setattr(_reads, kind, count)
        tell_of_clock(sys._getframe(1), of_day=kind == "of_day")
        return begins + int.from_bytes(_page[:8], "little") + count * epoch.TICK

    before = dict(vars(time))
    names = {"time": time.CLOCK_REALTIME, "monotonic": time.CLOCK_MONOTONIC, "perf_counter": time.CLOCK_MONOTONIC}
    names |= {"process_time": time.CLOCK_PROCESS_CPUTIME_ID, "thread_time": time.CLOCK_THREAD_CPUTIME_ID}
    for name, clock in names.items():
        setattr(time, f"{name}_ns", functools.partial(read, clock))
        setattr(time, name, lambda clock=clock: read(clock) / 1e9)
    time.clock_gettime_ns = read
    time.clock_gettime = lambda clock: read(clock) / 1e9
    time.sleep = sleep
    _replace({id(before[name]): now for name, now in vars(time).items() if before[name] is not now})


def begin_setup() -> None:
    """Have Python's time of day be an hour before each run: what the setup writes is the same every time."""
    _of_setup[:] = [itertools.count(epoch.EPOCH - 3600 * 10**9, epoch.TICK)]


def tell_of_clock(frame: FrameType | None, *, of_day: bool = True) -> None:
    """Tell of the program's first look at a clock, and of the first at one that tells the time of day (``of_day``).

    While the rank is watched closely, each look.

    ``frame`` is our caller's caller or one of our own frames.

    Where torch looks, or what Python's library waits and logs with, the program learns nothing by it.
    """
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    if _page is None or (of_day in _told and not _page[8]):
        return
    if frame is None or not _is_of_program(frame.f_code.co_filename):
        return
    _told.append(of_day)
    hypercall(LooksAtClock(of_day))


@functools.cache
def _is_of_program(file: str) -> bool:
    if "/site-packages/" in file:
        return "/site-packages/torch/" not in file
    return not file.startswith(("<frozen", *_WAITS_AND_LOGS))


def _replace(functions: Mapping[int, Any]) -> None:
    """Replace the clocks in modules that have them under names of their own (``from time import monotonic``)."""
    for module in [module for name, module in sys.modules.items() if name != "time"]:
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in functions:
                setattr(module, name, functions[id(value)])


def _watch_clock(job: Job, rank: int) -> None:
    global _page, _ahead
    with open(f"{job.output}/clock", "rb") as file:
        _page, _ahead = mmap.mmap(file.fileno(), epoch.CLOCK, prot=mmap.PROT_READ), job.ahead[rank]


def take_over_threads() -> None:
    """Tell when a Python thread begins, and when a pool is given work and does it."""
    for owner, method, wrap in (threading.Thread, "start", _starting), (ThreadPoolExecutor, "submit", _submitting):
        setattr(owner, method, wrap(getattr(owner, method)))


def take_over_raw_threads() -> None:
    """Tell of threads that a program starts without ``threading``."""
    original = _thread.start_new_thread

    def start(function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> int:
        _about_to_start()
        ident = original(_run_raw, (function, args, kwargs or {}))
        _started()
        return ident

    _thread.start_new_thread = _thread.start_new = start


def _run_raw(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    hypercall(BeginThread(stack=stack()))
    try:
        function(*args, **kwargs)
    finally:
        hypercall(EndThread())


def take_over_processes() -> None:
    """Tell that a process is about to start, that it has begun, and that its parent continues.

    ``subprocess`` and ``multiprocessing`` start programs by a function in C, which runs no hook of ``os.fork``.
    """
    os.register_at_fork(before=_about_to_start, after_in_parent=_started, after_in_child=_begun)
    start = _posixsubprocess.fork_exec
    _replace({id(start): _starting_program(start)})


def take_over_polls() -> None:
    """Tell of each question about another thread that does not wait, and that an event is about to be set.

    The answer depends on which thread goes first.
    """
    polls: tuple[tuple[type, tuple[str, ...]], ...] = (
        (threading.Thread, ("is_alive",)),
        (threading.Event, ("is_set", "set", "clear")),
        (Future, ("done", "running", "cancelled")),
        (queue.Queue, ("empty", "full", "qsize")),
    )
    for owner, methods in polls:
        for method in methods:
            setattr(owner, method, _polling(getattr(owner, method), f"{owner.__name__}.{method}"))


def take_over_limits() -> None:
    """Tell how long a thread is about to wait at most: the wait itself only shows a point in time."""
    for owner, method in (threading.Condition, "wait"), (threading.Thread, "join"):
        setattr(owner, method, _limited(getattr(owner, method)))


def take_over_signals() -> None:
    """Leave `STACK_SIGNAL` alone.

    A program that restores all handlers as Python knows them (Lightning's Trainer, when a fit ends) would remove
    faulthandler's, which Python does not know, and end its process with the next request for a stack.
    """
    original = signal.signal

    def set_handler(signalnum: Any, handler: Any) -> Any:
        return signal.SIG_DFL if signalnum == STACK_SIGNAL else original(signalnum, handler)

    signal.signal = set_handler


def _limited(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            hypercall(Limit(round(timeout * 1e9)))
        return original(self, timeout)

    return wait


def _starting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        vars(self)["run"] = functools.partial(_begin, self, self.run)
        _about_to_start()
        original(self)
        _started()

    return start


def _starting_program(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def start(*arguments: Any) -> int:
        _about_to_start()
        pid = original(*arguments)
        _started()
        return pid

    return start


def _about_to_start() -> None:
    """Note that the rank now has several threads or processes."""
    hypercall(Starting())


def _started() -> None:
    """Note that a thread or process has been started: it may run first, or its parent may."""
    hypercall(Started(stack=stack()))


def _begun() -> None:
    hypercall(BeginProcess(stack=stack()))


def _polling(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def poll(*arguments: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__")
        if len(threading._active) > 1 and caller not in _THREADING:  # type: ignore[attr-defined]
            hypercall(Poll(name, stack=stack()))
        return original(*arguments, **named)

    return poll


def _submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        item = functools.partial(_work, hypercall(Submit()), function)
        try:
            return original(self, item, *given, **named)
        finally:
            hypercall(Submitted(stack=stack()))

    return submit


def _begin(thread: threading.Thread, run: Callable[[], None]) -> None:
    del vars(thread)["run"]
    hypercall(BeginThread(stack=stack()))
    try:
        run()
    except Exception as error:
        if threading.excepthook is threading.__excepthook__:  # which prints it, and that is all
            for say in _unhandled:
                say(error, thread.name)
        raise
    finally:
        hypercall(EndThread())


_unhandled: list[Callable[[BaseException, str], None]] = []
"""Functions that are told of an exception that ends a thread, with the thread's name."""


def _say_failed(result: Raised) -> None:
    hypercall(ThreadFailed({"type_name": "Raised", **asdict(result)}))


def _work(name: str | None, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    hypercall(BeginItem(name, stack=stack()))
    try:
        return function(*given, **named)
    finally:
        hypercall(EndItem())


def run(
    load: Callable[[], Scenario],
    job: Job,
    rank: int,
    channel: socket.socket,
    connect: Callable[[Job, int], None],
) -> int:
    """Run a rank after its fork; returns the exit status.  ``load`` imports the scenario.

    1. settle: environment, output, seeds; 2. install the filter, hand the listener over; 3. ``connect``: bring the
    process group up; 4. `Ready`: wait for all ranks; 5. import the scenario and run it; 6. send the
    result; 7. in free mode wait for the others, and end as a Python process ends; 8. `Exit`.
    """
    settle(job, rank)
    if job.controlled:
        _watch_clock(job, rank)
        _run_one_by_one(rank if job.spread else 0)
    if job.controlled or job.filtered:
        _hand_over(channel, controlled=job.controlled)
    connect(job, rank)
    before, own = len(sys.modules), list[str]()
    if job.program and job.controlled:
        observe(job, lambda said: hypercall(Observed(said)))
    if job.program:
        load, own = with_program(load(), job), ["__main__"]
    _unhandled.append(lambda error, name: _say_failed(replace(raised(error, rank, job), thread=name)))
    hypercall(Ready())
    if job.note:
        hypercall(Note(job.note))
    result, error = result_of(load, job.rank(rank, channel), job, channel)
    fresh = newest_modules(len(sys.modules) - before)
    imported = sorted(each for each in fresh if not is_own(each))
    send(channel, {"result": {"type_name": type(result).__name__, **asdict(result)}, "modules": imported})
    if not job.controlled and isinstance(result, Returned):
        channel.recv(1)  # a rank that leaves early would close connections on which its peers still wait
    status = result.status if isinstance(result, Died) else int(error is not None)
    _finalise(error, [*own, *filter(is_own, fresh)])
    hypercall(Exit())
    return status


def with_program(program: Scenario, job: Job) -> Callable[[], Scenario]:
    """Return a program with the functions that run it, and resume it; only ranks have them."""
    assert isinstance(program, Program)
    made = copy.copy(program)
    runner = importlib.import_module("racecheck.processes.ranks.program")
    made.run = runner.prepared(made.launch, job.output)
    if made.resumed is not None:
        made.recover(runner.prepared(made.resumed, job.output), **made.recovering)
    return lambda: made


def observe(job: Job, say: Callable[[dict[str, Any]], Any]) -> None:
    """Observe what a program saves and loads in the watched directory."""
    importlib.import_module("racecheck.processes.ranks.observation").observe(job.watched, job.kept, say)


def _run_one_by_one(place: int) -> None:
    """Keep the threads of this rank on one processor, so that none interrupts the one that woke it.

    Which of two threads is faster would be luck, where both run Python code that no op separates.  Ranks take turns,
    so that all are fastest in one ``place``, too; sessions next to each other have different ones.
    """
    ask = os.sched_getaffinity
    allowed = sorted(ask(0))
    chosen = {allowed[(int(os.environ["RACECHECK_SLOT"][-4:]) + place) % len(allowed)]}

    def affinity(pid: int, /) -> set[int]:
        """Return processors as the program would find them; a choice of its own counts."""
        found = ask(pid)
        return {*allowed} if found == chosen else found

    with suppress(PermissionError):  # a container may forbid it
        os.sched_setaffinity(0, chosen)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.sched_getaffinity = affinity


def settle(job: Job, rank: int) -> None:
    """Make a forked process a rank's: its session (as torchrun starts it), its environment, its output, its seeds."""
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if job.program and os.geteuid() == 0:
        capabilities.give_up_mounting()
    per_node = job.ranks // job.nodes
    scratch = Path(job.scratch) / str(rank // per_node)
    host_names.settle(rank // per_node, job.nodes)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank % per_node), WORLD_SIZE=str(job.ranks), LOCAL_WORLD_SIZE=str(per_node),
        GROUP_RANK=str(rank // per_node), GROUP_WORLD_SIZE=str(job.nodes), TMPDIR=str(scratch), MASTER_ADDR="127.0.0.1",
    )  # fmt: skip
    sys.dont_write_bytecode = True
    output = os.open(f"{job.output}/{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    faulthandler.enable(file=2)
    random.seed(f"{job.seed}:{rank}")
    if generator := sys.modules.get("numpy.random"):
        generator.seed(random.Random(f"{job.seed}:{rank}").getrandbits(32))
    with suppress(KeyError):
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]


def _hand_over(channel: socket.socket, *, controlled: bool) -> None:
    _grow_descriptor_table()
    reading = listen_for_stacks()
    listener = seccomp.install(stop_for_gil=controlled)
    seccomp.hand_over(channel, str(os.getpid()).encode(), [listener, reading])
    os.close(listener)
    os.close(reading)


def listen_for_stacks() -> int:
    """Have this process write the stack of a thread that gets `STACK_SIGNAL` to a pipe; returns the other end."""
    reading, writing = os.pipe()
    faulthandler.register(STACK_SIGNAL, file=writing, all_threads=False, chain=False)
    return reading


def _grow_descriptor_table() -> None:
    """Enlarge the descriptor table now, while there is one thread.

    With several threads the kernel waits for all processors before it uses a larger table, which takes longer than the
    rest of opening a file a hundred times.
    """
    highest = min(4 * seccomp.FIRST_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) - 1
    os.close(os.dup2(0, highest))


def result_of(
    load: Callable[[], Scenario], rank: Rank, job: Job, channel: socket.socket
) -> tuple[RankResult, BaseException | None]:
    """Import the scenario and call it, or its recovery; returns its result, and the exception if there was one."""
    try:
        scenario = _loaded(load)
        value = scenario.resume(rank) if job.recovering else scenario(rank)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return (Died(status=status) if status else Returned()), None
    except BaseException as error:  # noqa: BLE001
        if job.program:
            _complain(error, rank.rank, channel)
        return raised(error, rank.rank, job), error
    try:
        return Returned(json.loads(json.dumps(value))), None
    except (TypeError, ValueError):
        found = f"the scenario returned a value of type {type(value).__name__} on rank {rank.rank}"
        send(
            channel,
            {"usage": f"{found}: return JSON data (numbers, strings, lists); for a tensor, return a digest"},
        )
        return Returned(), None


def _loaded(load: Callable[[], Scenario]) -> Scenario:
    try:
        return load()
    except UsageError as error:
        raise error.__cause__ or error from None


def _complain(error: BaseException, rank: int, channel: socket.socket) -> None:
    """Tell the supervisor of a failure that says nothing about the program: it needs what this machine lacks."""
    runner = importlib.import_module("racecheck.processes.ranks.program")
    if what := runner.lacks(error):
        frames = [each for each in _traceback(error.__traceback__) if not is_installed(each.file)]
        place = f" ({frames[0].file}:{frames[0].line})" if frames else ""
        send(channel, {"usage": f"rank {rank} needs {what}{place}: {error}"})


def raised(error: BaseException, rank: int, job: Job) -> Raised:
    """Return an exception as data, with paths as they are shown: the watched directory differs between sessions.

    One that only reports other ranks' failures (torch's ``CheckpointException`` has them by rank in
    ``failures``) stands for this rank's own failure, and is an echo where there is none.
    """
    cause, echo = _cause(error, rank)
    number = cause.errno if isinstance(cause, OSError) else None
    return Raised(
        type=_name(type(cause)),
        message=_shown(str(cause), job)[:2000],
        bases=tuple(_name(each) for each in type(cause).__mro__[1:-1]),
        errno=libc.errno_name(number or 0),
        path=_path(cause, job) if isinstance(cause, OSError) else "",
        stack=_traceback(cause.__traceback__),
        echo=echo,
        causes=tuple(_causes(cause)),
    )


def _cause(error: BaseException, rank: int) -> tuple[BaseException, bool]:
    failures = getattr(error, "failures", None)
    if hasattr(error, "error_index"):  # torch.multiprocessing reports a process that has failed
        return error, True
    if isinstance(failures, dict) and failures:
        own = failures.get(rank)
        found = own[0] if isinstance(own, tuple) else own
        return (found, False) if isinstance(found, BaseException) else (error, True)
    return error, _from_collective(error)


def _causes(error: BaseException) -> Iterator[str]:
    """Yield the errnos, by name, of the exceptions behind one."""
    seen = {id(error)}
    while (behind := error.__cause__ or error.__context__) is not None and id(behind) not in seen:
        if isinstance(behind, OSError) and behind.errno:
            yield libc.errno_name(behind.errno)
        seen.add(id(behind))
        error = behind


def _from_collective(error: BaseException | None) -> bool:
    """Return whether an exception comes from a collective's failure.

    `process_group` marks failures of collectives that Python calls; those of C++ (in DDP's backward) show in the text.
    If the code that handles such a failure gets an error of a system call, that is a failure of its own.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if ECHO in vars(error):
            return bool(vars(error)[ECHO])
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
            return False
        if type(error) is RuntimeError and _LOST.search(str(error)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(message: str, job: Job) -> str:
    for root, name in ((job.watched, "."), (job.scratch, "TMPDIR")):
        message = message.replace(f"{root}/", f"{name}/".removeprefix("./")).replace(root, name)
    return message


def _name_of(error: OSError) -> Any:
    """Return the name that the error is about: of two, the new one if that is taken."""
    taken = error.errno in {errno_module.EEXIST, errno_module.ENOTEMPTY}
    return error.filename2 if taken and error.filename2 is not None else error.filename


def _path(error: OSError, job: Job) -> str:
    """Return what an error is about, as places show it."""
    name = _name_of(error)
    text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
    for root, shown in ((job.watched, "."), (job.scratch, "TMPDIR")):
        if f"{text}/".startswith(f"{root}/"):
            return os.path.normpath(f"{shown}/{os.path.relpath(text, root)}")
    return text


def _traceback(trace: TracebackType | None) -> tuple[Frame, ...]:
    """Return a stack, innermost frame first; the module ``traceback`` would read the source files."""
    found: list[Frame] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(OURS):
            found.insert(0, Frame(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return tuple(found)


def _tell(job: Job, channel: socket.socket, kind: str, state: Any, step: int, at: str | Path) -> None:
    """Report which weights were saved or loaded, or that a save has returned.

    Where the world is controlled, it is known what happened before.
    """
    weights = importlib.import_module("racecheck.processes.contents.weight_digests")
    where = os.path.relpath(at, job.watched) if at else ""
    said = {"kind": kind, "step": step, "checkpoint": where, "tensors": weights.digests(state)}
    if job.controlled:
        hypercall(Declare(said, stack=stack()))
    else:
        send(channel, {"weights": said})


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send a line of JSON data."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def _finalise(error: BaseException | None, own: Sequence[str]) -> None:
    """End as the interpreter would, as far as a scenario can notice.

    Threads are joined, exit handlers run, the scenario's own modules are cleared, and unreachable objects are finalised
    (an unclosed file gets its last bytes).  The traceback is not printed: it is in the result.

    A real finalisation would also tear torch down, which takes longer than a whole run.
    """
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    hypercall(Finalise())  # from here on daemon threads run no Python code any more
    if error is not None:
        error.__traceback__ = None
    del error
    for name in own:
        if name in sys.modules:
            _clear(sys.modules[name])
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def newest_modules(count: int) -> list[str]:
    """Return the ``count`` modules imported last.

    Found from the end: a walk over all of ``sys.modules`` writes to the reference count of every name in it, and
    so copies every page that the rank still shares with the zygote.
    """
    return list(itertools.islice(reversed(sys.modules), max(0, count)))


def is_own(name: str) -> bool:
    """Return whether a module belongs to the scenario rather than to an installed package."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or sys.prefix
    return module is not None and not is_installed(file)


def _clear(module: ModuleType) -> None:
    """Return names in the interpreter's order: first those with one leading underscore, then the others."""
    names = [name for name in vars(module) if name != "__builtins__"]
    for name in sorted(names, key=lambda each: not (each.startswith("_") and not each.startswith("__"))):
        vars(module)[name] = None  # not setattr, which a module may refuse
