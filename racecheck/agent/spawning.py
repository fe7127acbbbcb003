"""Processes that a program starts with ``multiprocessing`` by the method "spawn": they are the ranks.

The last rank runs the script.  Each process that it starts (``torch.multiprocessing.spawn`` does it so, too) is a rank
that waits for this: it takes over what the process would run, as the same pickled data, by the same functions of the
standard library (``multiprocessing/spawn.py``).  Ends of processes come from the supervisor, which knows their order.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import json
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from multiprocessing import connection, context, popen_spawn_posix, process, reduction, spawn
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

from racecheck.agent.hypercalling import hypercall, stack
from racecheck.model.hypercalls import BecomeParent, Looks, SendSignal, Usage, UseStore
from racecheck.model.package import is_installed

ENDED = "processes ended: "
"""A key of the supervisor's store, with the number of an end: which process that was, and its exit status."""
_popens: list[Popen] = []
_by_sentinel: dict[int, Popen] = {}
_known: list[int] = []


class _Descriptor:
    """A descriptor of this process that another one opens as well, when it unpickles what has it."""

    def __init__(self, descriptor: int) -> None:
        self._path = f"/proc/{os.getpid()}/fd/{descriptor}"
        self._flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE

    def detach(self) -> int:
        try:
            return os.open(self._path, self._flags | os.O_CLOEXEC)
        except OSError as error:
            what = "socket of its parent's, which racecheck cannot pass on: use a queue, or mp.Pipe(duplex=False)"
            why = what if error.errno == errno.ENXIO else f"pipe of its parent's: {error.strerror}"
            refuse(f"a process that the program starts needs a {why}")
            return -1


class Popen:
    """The handle of a process that ``multiprocessing`` has started; here that is the rank of the same number.

    ``returncode`` is None until its end is known.
    """

    method = "spawn"
    DupFd = _Descriptor

    def __init__(self, process_object: Any) -> None:
        number = len(_popens)
        if number >= _ranks[0]:
            refuse(
                f"the program starts more processes than the {_ranks[0]} that it started first: "
                "racecheck runs programs that start their ranks once"
            )
        self.returncode: int | None = None
        self._passes = False
        self.sentinel, self._writing = os.pipe()
        _popens.append(self)
        _by_sentinel[self.sentinel] = self
        self.pid = self._start(number, process_object)

    def _start(self, number: int, process_object: Any) -> int:
        """Have rank ``number`` run a process's function; returns its number (pid)."""
        with io.BytesIO() as data:
            set_spawning: Any = context.set_spawning_popen  # it says which classes it takes; any with these methods do
            set_spawning(self)
            try:
                reduction.dump(spawn.get_preparation_data(process_object._name), data)
                reduction.dump(process_object, data)
            finally:
                set_spawning(None)
            given = {"data": data.getvalue().hex(), "environment": {**os.environ}}
        _place(number).write_text(json.dumps(given))
        _tell(f"process {number}", "started")
        pid = int(_hear(f"pid of process {number}"))
        if self._passes:
            _hear(f"process {number} loaded")  # from now on this process may close them
        return pid

    def duplicate_for_child(self, descriptor: int) -> int:
        """Note that the function of the process has this descriptor; returns it."""
        self._passes = True
        return descriptor

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit status if the process has ended; with ``flag`` 0, wait for that.

        At each start, multiprocessing asks of all processes whether they have ended; that decides nothing.
        """
        if self.returncode is None and sys._getframe(1).f_code.co_name != "_cleanup":
            _await([self], 0 if flag else None)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the process has ended, for at most this many seconds; returns its exit status or None."""
        if self.returncode is None:
            _await([self], timeout)
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def close(self) -> None:
        for each in (self.sentinel, self._writing):
            if each >= 0:
                os.close(each)
        _by_sentinel.pop(self.sentinel, None)
        self.sentinel = self._writing = -1

    def end(self, status: int) -> None:
        """Note the end of the process: whoever waits for its sentinel sees it."""
        self.returncode = status
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            hypercall(SendSignal(_popens.index(self), int(number), stack=stack()))


_ranks: list[int] = []
_replaced: list[tuple[ModuleType, str, Any]] = []
_own: list[str] = []


def be_parent(ranks: int, directory: str, own: str) -> None:
    """Have the processes that this one starts by "spawn" taken over by the ranks, of which there are ``ranks``.

    ``directory`` is where the program was started.  ``own`` is a directory of racecheck's: torch passes the traceback
    of a process by a file, which goes there, for it is no file of the program's.
    """
    take_over(popen_spawn_posix, Popen, ranks, directory, own)
    hypercall(BecomeParent())


def take_over(module: ModuleType, popen: type[Popen], ranks: int, directory: str, own: str) -> None:
    """Have ``popen`` start the processes that would be ranks, in place of the class of multiprocessing's ``module``."""
    _ranks[:], _own[:] = [ranks], [own]
    named = functools.partial(tempfile.NamedTemporaryFile, dir=own)
    _replace("torch.multiprocessing.spawn", tempfile=SimpleNamespace(NamedTemporaryFile=named))
    _replace("multiprocessing.process", ORIGINAL_DIR=directory)
    start, original = vars(module)["Popen"], connection.wait
    _replaced[:] = [(module, "Popen", start), (connection, "wait", original)]

    def wait(objects: Iterable[Any], timeout: float | None = None) -> list[Any]:
        given = [*objects]
        awaited = [_by_sentinel[each] for each in given if isinstance(each, int) and each in _by_sentinel]
        if not awaited:
            return original(given, timeout)
        if len(awaited) < len(given):
            refuse("the program waits for a process and for something else at once")
        _await(awaited, timeout)
        return [each.sentinel for each in awaited if each.returncode is not None]

    _replace(module.__name__, Popen=lambda made: (popen if _is_rank(made) else start)(made))
    _replace("multiprocessing.connection", wait=wait)


def sentinels() -> set[int]:
    """Return the descriptors of this process that tell of the ends of others."""
    return {end for each in _popens for end in (each.sentinel, each._writing)}


def be_child() -> None:
    """In a forked rank: let the processes that it starts be its helpers, not ranks."""
    for module, name, before in _replaced:
        vars(module)[name] = before
    _popens.clear()
    _by_sentinel.clear()
    _replace("torch.multiprocessing.spawn", _prctl_pr_set_pdeathsig=lambda _: None)  # the supervisor sends that signal


def _replace(module: str, **names: Any) -> None:
    """Give names of a library's module another meaning in this process."""
    vars(sys.modules[module]).update(names)


def _is_rank(made: Any) -> bool:
    """Return whether a process runs a function of the program's; a library's are helpers (pools, managers, loaders)."""
    torchs = sys.modules["torch.multiprocessing.spawn"]
    target = getattr(made, "_target", None)
    name = target.__module__ if hasattr(target, "__module__") else type(made).__module__
    file = getattr(sys.modules.get(name), "__file__", None) or sys.prefix
    return target is torchs._wrap or name == "__main__" or not is_installed(file)


def _place(number: int) -> Path:
    """Return the file with the function of a process."""
    return Path(_own[0], f"process {number}")


def run_child(number: int, own: str) -> None:
    """Run the function of process ``number``, when it is started; raises its error, or `SystemExit`.

    One that is never started returns when the process that starts the others has ended.
    """
    _own[:] = [own]
    if _hear(f"process {number}") != "started":
        return
    given = json.loads(_place(number).read_text())
    os.environ.clear()
    os.environ.update(given["environment"])
    _tell(f"pid of process {number}", str(os.getpid()))
    _replace("torch.multiprocessing.spawn", _prctl_pr_set_pdeathsig=lambda _: None)  # the supervisor sends that signal
    with io.BytesIO(bytes.fromhex(given["data"])) as data:
        vars(process.current_process())["_inheriting"] = True  # as spawn._main does
        try:
            spawn.prepare(_unpickled(data))
            made = _unpickled(data)
            _tell(f"process {number} loaded", "")
        finally:
            del vars(process.current_process())["_inheriting"]
    raised: list[BaseException] = []
    note_errors(made, raised)
    status = made._bootstrap()
    if raised:
        raise raised[0]
    if status:
        raise SystemExit(status)


def _unpickled(data: IO[bytes]) -> Any:
    """Return the data that the program's own process has pickled; its new process would unpickle the same."""
    return pickle.load(data)  # noqa: S301  (the program's own data: what it may run, the program may run anyway)


def note_errors(made: Any, raised: list[BaseException]) -> None:
    """Take down the error of a process's function; torch's ``_wrap`` has the user's function as an argument."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except Exception as error:
                raised.append(error)
                raise

        return call

    target = getattr(made, "_target", None)
    if target is not None and target is sys.modules["torch.multiprocessing.spawn"]._wrap:
        function, *others = made._args
        made._args = (noting(function), *others)
    elif target is not None:
        made._target = noting(target)
    else:
        made.run = noting(made.run)


def _await(popens: list[Popen], timeout: float | None) -> None:
    """Wait until one of these has ended, for at most ``timeout`` seconds (0: only look, None: without a limit)."""
    while all(each.returncode is None for each in popens):
        key = f"{ENDED}{len(_known) + 1}"
        if timeout == 0:
            hypercall(Looks("process"))
            if not _ask("check", key, settled=False):
                return
        answer = _ask("get", key, limit=round((timeout or 0) * 1e9))
        if not isinstance(answer, str):
            return
        number, status = json.loads(bytes.fromhex(answer))
        _known.append(number)
        _popens[number].end(status)


def _ask(do: str, *arguments: str, settled: bool = True, limit: int = 0) -> Any:
    """Use the supervisor's store; ``limit`` is in nanoseconds, 0 for none."""
    return hypercall(UseStore(do, arguments, settled, limit, stack=stack()))


def _tell(key: str, value: str) -> None:
    _ask("set", key, value.encode().hex())


def _hear(key: str) -> str:
    """Wait until a key is set; returns its value."""
    return bytes.fromhex(_ask("get", key)).decode()


def refuse(why: str) -> None:
    """End the run: the supervisor reports the reason."""
    hypercall(Usage(why, stack=stack()))
    raise SystemExit(1)
