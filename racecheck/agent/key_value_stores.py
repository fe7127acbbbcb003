"""The key-value stores of controlled ranks: the supervisor keeps them, so that each operation is an op."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed.distributed_c10d import _new_process_group_helper

from racecheck.agent.hypercalling import hypercall, nanoseconds, stack
from racecheck.model.hypercalls import UseStore

_FIRST_PORT = 29500
_DEFAULT = timedelta(minutes=5)
"""How long operations on a store wait if the program sets no limit."""
_RealTCPStore = dist.TCPStore
_KEEPS = frozenset({__name__, "torch._C._distributed_c10d"})


class SupervisedStore(dist.Store):  # type: ignore[misc]
    """A key-value store in the supervisor: reads and writes are hypercalls.

    So what ranks learn from one another through the store is known, too, and no port is opened for it.  The supervisor
    knows each key with the store's ``prefix``.
    """

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def _ask(self, do: str, *arguments: Any, settled: bool = False, limit: timedelta | None = None) -> Any:
        """Carry an operation out.

        ``settled``: the result is the same in whatever order these operations go; ``limit`` is a time limit of the
        program's own.
        """
        settled = settled or _makes_group()
        asked = UseStore(do, arguments, settled, 0 if settled else nanoseconds(limit), stack=stack())
        answer = hypercall(asked, room=1 << 20)
        if isinstance(answer, dict) and "error" in answer:
            raise dist.DistStoreError(answer["error"])
        return answer

    def _patience(self) -> timedelta | None:
        """Return the time limit that the program has set for the store."""
        return self.timeout if self.timeout < _DEFAULT else None

    def set(self, key: str, value: bytes | str) -> None:
        self._ask("set", self._prefix + key, _hex(value))

    def get(self, key: str) -> bytes:
        return bytes.fromhex(self._ask("get", self._prefix + key, limit=self._patience()))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", self._prefix + key, amount))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._ask("wait", *(self._prefix + key for key in keys), limit=timeout or self._patience())

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", *(self._prefix + key for key in keys)))

    def append(self, key: str, value: bytes | str) -> None:
        self._ask("append", self._prefix + key, _hex(value))

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        return bytes.fromhex(self._ask("compare_set", self._prefix + key, _hex(expected), _hex(desired)))

    def deleteKey(self, key: str) -> bool:  # noqa: N802  (c10d's own name)
        return bool(self._ask("delete", self._prefix + key))

    def getNumKeys(self) -> int:  # noqa: N802
        return int(self._ask("count", self._prefix))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        names = [self._prefix + key for key in keys]
        return [bytes.fromhex(each) for each in self._ask("multi_get", *names, limit=self._patience())]

    def multi_set(self, keys: list[str], values: list[bytes | str]) -> None:
        pairs = ((self._prefix + key, _hex(value)) for key, value in zip(keys, values, strict=True))
        self._ask("multi_set", *itertools.chain.from_iterable(pairs))

    def list_keys(self) -> list[str]:
        return [str(key).removeprefix(self._prefix) for key in self._ask("keys", self._prefix)]

    def queue_push(self, key: str, value: bytes | str) -> None:
        self._ask("queue_push", self._prefix + key, _hex(value), settled=True)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        if not block and not self.queue_len(key):
            raise dist.QueueEmptyError(f"queue {key} is empty")
        return bytes.fromhex(self._ask("queue_pop", self._prefix + key, settled=True))

    def queue_len(self, key: str) -> int:
        return int(self._ask("queue_len", self._prefix + key, settled=True))

    def clone(self) -> SupervisedStore:
        return SupervisedStore(self._prefix)

    def has_extended_api(self) -> bool:
        return True


class SupervisedTCPStore(SupervisedStore):
    """The store that a program gets for a ``torch.distributed.TCPStore`` in a controlled world.

    As the real one does, it waits until the master has made its half, and the master until ``world_size`` processes
    have (TCPStore.cpp of PyTorch 2.13).  No port is opened: a process that does not inherit this class cannot connect.
    """

    libuvBackend = True  # noqa: N815  (c10d's own name)

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta | None = None,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,  # noqa: ARG002
        use_libuv: bool = True,  # noqa: ARG002
    ) -> None:
        if not port:
            port = _FIRST_PORT + int(self._ask("add", "TCPStore/ports", 1))
        super().__init__(f"TCPStore/{host_name}:{port}/")
        self.host, self.port = host_name, port
        if timeout is not None:
            self.set_timeout(timeout)
        own = f"TCPStore/{host_name}:{port} "
        if is_master and self._ask("add", f"{own}masters", 1) > 1 and not multi_tenant:
            raise dist.DistNetworkError(f"The server socket has failed to listen on port {port}: EADDRINUSE")
        self._ask("wait", f"{own}masters", settled=True)
        if wait_for_workers and world_size is not None:
            if self._ask("add", f"{own}workers", 1, settled=True) == world_size:
                self._ask("set", f"{own}complete", "", settled=True)
            if is_master:
                self._ask("wait", f"{own}complete", settled=True)

    def getNumKeys(self) -> int:  # noqa: N802
        """Return the server keeps a key of its own."""
        return super().getNumKeys() + 1


_replaced: list[tuple[ModuleType, str]] = []
_prefixes: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def install() -> None:
    """Have programs make supervised stores, under whatever name their modules know ``TCPStore``.

    Done once, in the zygote: a rank without control calls `restore`.
    """
    for module in [*sys.modules.values()]:
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if value is _RealTCPStore and module.__name__ not in _KEEPS:
                _replaced.append((module, name))
                setattr(module, name, SupervisedTCPStore)
    _pass_queues_on()


def _pass_queues_on() -> None:
    """Have a store with a prefix, as a process group's is, pass operations on queues on to a supervised store.

    C++ does not: its half of a Python store has none.  It also does not tell a store's prefix, so that is remembered.
    """

    def remember(self: dist.PrefixStore, prefix: str, store: dist.Store) -> None:
        make(self, prefix, store)
        _prefixes[self] = prefix

    def passing(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: dist.PrefixStore, key: str, *arguments: Any, **named: Any) -> Any:
            prefix, below = _prefixes.get(self), self.underlying_store
            if prefix is None or not isinstance(self._underlying_non_prefix_store, SupervisedStore):
                return original(self, key, *arguments, **named)
            return getattr(below, method)(f"{prefix}/{key}", *arguments, **named)

        return call

    make = dist.PrefixStore.__init__
    known = {name: getattr(dist.PrefixStore, name, None) for name in ("queue_push", "queue_pop", "queue_len")}
    queues = {name: passing(name, original) for name, original in known.items() if original is not None}
    for name, replacement in {"__init__": remember, **queues}.items():
        setattr(dist.PrefixStore, name, replacement)


def restore() -> None:
    """Have a program make real stores again."""
    for module, name in _replaced:
        setattr(module, name, _RealTCPStore)


def _makes_group() -> bool:
    """Return whether the calling thread makes a process group: gloo writes each of its keys once, on one rank."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _new_process_group_helper.__code__:
            return True
        frame = frame.f_back
    return False


def _hex(value: bytes | str) -> str:
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()
