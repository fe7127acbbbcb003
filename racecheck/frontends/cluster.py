"""Workers on the nodes of a Ray cluster, and the process that relays messages between them and this machine.

On a node an actor of Ray starts a worker process, as it would be started here, and hands messages on.  If an actor is
gone (its node, too), another one takes its place and carries out its task again: the result of a task is the same
wherever it is made.  All nodes need the same versions of racecheck, torch, Python and the kernel, and the files of this
machine at the same paths, as a shared file system has them; a node for which this is not so is not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecheck.explore.findings import versions
from racecheck.explore.runs import frames, workers
from racecheck.model import package
from racecheck.model.errors import UsageError
from racecheck.targets.resolve import file_of, is_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOCAL = "auto"
"""The address of a cluster that is found on this machine, or started there."""
_TRIES = 5
"""How many actors in a row may be gone before a worker is given up."""
_HIRES = 15.0
"""Seconds that another actor has to start a worker: there is someone who waits for the result."""
_CONNECTS = 5.0
"""Seconds for an answer from an address."""
_ASKS = 60.0
"""Seconds until Ray has to be connected."""


def cores(address: str) -> int:
    """Return how many cores a cluster has; another process asks, because Ray has many threads.

    Raises `UsageError` if Ray is not installed, or no cluster is there.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"--cluster needs Ray: pip install '{package.DISTRIBUTION}[ray]'")
    _check_address(address)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, address],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_ASKS,
        )  # fmt: skip
        return int(done.stdout)
    except subprocess.TimeoutExpired:
        why = f"no answer in {_ASKS:g} s"
    except ValueError:
        why = done.stderr.strip().rpartition("\n")[2]
    raise UsageError(f"--cluster {address}: no Ray cluster answers there ({why}); try ray status --address {address}")


def _check_address(address: str) -> None:
    """Raise `UsageError` at once for an address at which nobody listens."""
    if address == LOCAL:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") or not (host and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--cluster {address}: must be {LOCAL}, or HOST:PORT of the head node, as ray start prints it")
    try:
        socket.create_connection((host, int(port)), _CONNECTS).close()
    except OSError as error:
        raise UsageError(f"--cluster {address}: {error.strerror or error}") from None


def sources(target: str) -> dict[str, str]:
    """Return the digest of a target's file, by its path; a target that is a module has none."""
    file = file_of(target) if "::" in target or is_program(target) else ""
    return {file: _digest(file)} if file else {}


def _digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        return f"not readable ({error.strerror})"


class Relay:
    """An actor: it has a worker, and hands messages on to it."""

    def __init__(self, theirs: Mapping[str, str], files: Mapping[str, str]) -> None:
        self._channel: socket.socket | None = None
        own = asdict(versions())
        wrong = [f"{each} {own[each]} in place of {theirs[each]}" for each in own if own[each] != theirs[each]]
        wrong += [f"another {file}" for file, digest in files.items() if _digest(file) != digest]
        self._wrong = f"node {socket.gethostname()} has {' and '.join(wrong)}" if wrong else ""

    def exchange(self, frame: bytes) -> bytes:
        """Return the worker's answer to a message; the first one starts it.  Raises `EOFError` if it is gone."""
        if self._wrong:
            return frames.frame(("failed", self._wrong))
        if self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                self._process = workers.started(theirs)
        self._channel.sendall(frame)
        return frames.received(self._channel)


def main(address: str, channels: Sequence[socket.socket]) -> None:
    """Relay between channels and workers of a cluster, until all channels are closed."""
    try:
        _connect(address)
    except Exception as error:  # noqa: BLE001  (of whatever class: it ends the workers, and the user is told)
        for channel in channels:
            channel.sendall(frames.frame(("failed", f"no Ray cluster at {address}: {type(error).__name__}: {error}")))
        return
    each = [threading.Thread(target=_relay, args=(channel,), daemon=True) for channel in channels]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    _ray().shutdown()


def _relay(channel: socket.socket) -> None:
    with suppress(EOFError, OSError):
        opening = frames.received(channel)
        _, _, _, target = frames.message(opening)
        line = _Connection(opening, lambda: _hired(asdict(versions()), sources(target)))
        frame = opening
        while True:
            channel.sendall(line.exchange(frame))
            frame = frames.received(channel)


class _Connection:
    """The way to a worker in the cluster; ``hire`` returns an actor that has none yet."""

    def __init__(self, opening: bytes, hire: Callable[[], Any]) -> None:
        self._opening, self._hire = opening, hire
        self._actor = hire()

    def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a message; it goes to another actor, if this one is gone."""
        why = ""
        for _ in range(_TRIES):
            try:
                return self._sent(frame)
            except _ray().exceptions.RayError as error:
                why = str(error).strip().rpartition("\n")[2]
            if not self._replace():
                return frames.frame(("failed", f"a node is gone, and no other has a free core: {why}"))
        return frames.frame(("failed", f"a worker of the cluster was lost {_TRIES} times: {why}"))

    def _sent(self, frame: bytes, seconds: float | None = None) -> bytes:
        answer: bytes = _ray().get(self._actor.exchange.remote(frame), timeout=seconds)
        return answer

    def _replace(self) -> bool:
        """Return whether there is another actor soon."""
        ray = _ray()
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
        self._actor = self._hire()
        try:
            self._sent(self._opening, _HIRES)
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError:  # the next message to it fails as well
            pass
        return True


def _hired(theirs: Mapping[str, str], files: Mapping[str, str]) -> Any:
    ray = _ray()
    options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    return ray.remote(**options)(Relay).remote(theirs, files)


def _connect(address: str) -> None:
    ray = _ray()
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **quiet)
    except ConnectionError:
        if address != LOCAL:
            raise
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray  # noqa: PLC0415  (an extra; with its threads no process can cover its files)

    return ray


def _print_cores(address: str) -> None:
    ray = _ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        found = int(ray.cluster_resources().get("CPU", 0))
    except ConnectionError:
        if address != LOCAL:
            raise
        found = len(os.sched_getaffinity(0))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _print_cores(sys.argv[1])
