"""The process group of a rank, and the hooks through which the supervisor hears of its collectives.

There is a hypercall when a collective is *issued*, and one when a thread *waits* for it; the supervisor holds
the waiting thread until it is certain to complete, so that no thread sleeps in gloo and nothing has to be guessed.
torch's own Python code calls the methods of ``ProcessGroup``; functional collectives (``DTensor.full_tensor``, FSDP2)
and those that C++ makes (the reducer of DDP) go through the dispatcher and are met there.  C++ waits for its own out of
sight: so these are held until they are certain to complete when they are issued.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import (
    _resolve_process_group,
    get_process_group_ranks,
)

from racecheck.agent import key_value_stores, observation, program_group, weak_collectives
from racecheck.agent.hypercalling import ECHO, hypercall, nanoseconds, stack
from racecheck.agent.job import Job, show_gpus
from racecheck.model.hypercalls import AskComplete, Issue, Left, Looks, MakesGroup, Shutdown, Wait

_METHODS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "monitored_barrier",
    "broadcast": "broadcast",
    "scatter": "scatter",
    "reduce": "reduce",
    "gather": "gather",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv_any",
}
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}
_FROM_CPP = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
}
_MAKES_GROUP = "_new_process_group_helper"
_SHORT, _NEXT_TO_NOTHING = timedelta(minutes=5), timedelta(milliseconds=1)
_CPU = torch.device("cpu")
_SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce"})

_tickets: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_by_storage: dict[int, int] = {}
_made: list[dist.Store] = []
_libraries: list[torch.library.Library] = []
_issued = threading.local()


def connect(job: Job, rank: int) -> None:
    """Bring the process group up over loopback.

    Ranks start together: in free mode after a barrier, otherwise when the supervisor lets them.  A new process's torch
    has a seed of its own; a rank's seed comes from the run's.
    """
    if not job.controlled:
        key_value_stores.restore()
    if job.early:
        weak_collectives.install()
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(Random(f"{job.seed}:{rank}").getrandbits(63))
    store = key_value_stores.SupervisedStore() if job.controlled else dist.FileStore(f"{job.output}/store", job.ranks)
    _made.append(store)  # C++ does not keep the Python half of a store alive
    backend = "gloo"
    if job.backend == "nccl":
        show_gpus()
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"  # as torch chooses where there are GPUs and no backend is named
    if rank < job.group:
        dist.init_process_group(backend, store=store, rank=rank, world_size=job.group)
        if not job.controlled and not job.filtered:
            dist.barrier()
    if job.program:
        program_group.put_aside(job, rank)


def gpus() -> int:
    """Return how many GPUs NCCL could use; for a process that does nothing else."""
    show_gpus()
    return torch.cuda.device_count() if dist.is_nccl_available() and torch.cuda.is_available() else 0


def install() -> None:
    """Wrap the methods of ``ProcessGroup`` and ``Work``, and the functional collectives.

    Done once, in the zygote: without a listener the hypercalls have no effect.
    """
    for method, kind in _METHODS.items():
        if hasattr(ProcessGroup, method):
            setattr(ProcessGroup, method, _issuing(getattr(ProcessGroup, method), kind))
    setattr(ProcessGroup, "shutdown", _closing(ProcessGroup.shutdown))  # noqa: B010  (they are read-only to mypy)
    wait = _waiting(Work.wait)
    setattr(Work, "wait", wait)  # noqa: B010
    weak_collectives.wrap_work(_waiting)
    setattr(Work, "is_completed", _testing(Work.is_completed, wait))  # noqa: B010
    for method in ("get_future", "is_success", "exception"):
        setattr(Work, method, _looking(getattr(Work, method)))
    library = torch.library.Library("_c10d_functional", "IMPL")
    for name, kind in _FUNCTIONAL.items():
        packet = getattr(torch.ops._c10d_functional, name, None)
        if packet is not None:
            library.impl(name, _functional(packet.default, kind), "AutogradCPU")
    below = torch.library.Library("c10d", "IMPL")
    for name, kind in _FROM_CPP.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            below.impl(name, _from_cpp(packet.default, kind), "AutogradCPU")
    _libraries.append(below)
    key_value_stores.install()
    program_group.install()
    observation.install()
    setattr(distributed_c10d, _MAKES_GROUP, _making_group(getattr(distributed_c10d, _MAKES_GROUP)))
    library.impl("wait_tensor", _functional_wait(torch.ops._c10d_functional.wait_tensor.default), "AutogradCPU")
    _libraries.append(library)


@contextmanager
def _awaited(
    ticket: int | None, *, leaves: bool = True, limit: timedelta | None = None, gives_up: bool = False
) -> Iterator[bool]:
    """Tell that a thread waits for a collective, and that it has left it; yields whether ``limit`` has run out.

    ``leaves``: once all ranks have issued their parts it leaves by itself.  (A part that is carried out only in the
    wait, as C++ does, does not count until its rank is released.)  ``gives_up``: the limit of the group holds, too.
    """
    if ticket is None:
        yield False
        return
    try:
        yield hypercall(Wait(ticket, leaves, nanoseconds(limit), gives_up, stack=stack())) is not None
    finally:
        hypercall(Left(ticket, stack=stack()))


@contextmanager
def _marked(*, is_over: bool = False) -> Iterator[None]:
    """Mark the error of a collective as an echo of a peer's failure, or, where its time ``is_over``, as a cause."""
    try:
        yield
    except Exception as error:
        vars(error)[ECHO] = not is_over
        raise


def _issue(
    group: ProcessGroup, kind: str, arguments: tuple[Any, ...], named: dict[str, Any], *, python: bool = True
) -> tuple[int, bool]:
    """Tell of a part of a collective; returns its ticket, and whether the rank continues before its peers come."""
    ranks = get_process_group_ranks(group)
    call = Issue(
        kind=kind,
        group=group.group_name,
        ranks=ranks,
        signature=_signature(kind, arguments),
        python=python,
        patience=_patience(group),
        root=ranks[_root(arguments, named)] if kind in {"broadcast", "scatter", "reduce", "gather"} else -1,
        peer=ranks[int(arguments[1])] if kind in {"send", "recv"} else -1,
        tag=int(arguments[-1]) if kind in {"send", "recv", "recv_any"} else 0,
        stack=stack(),
    )
    ticket, returns_early = hypercall(call) or (0, False)
    return ticket, returns_early


def _limit(arguments: tuple[Any, ...], named: dict[str, Any]) -> timedelta | None:
    """Return the program's own time limit of a call; the default of groups is half an hour."""
    limits = (each for each in (*arguments, *named.values()) if isinstance(each, timedelta) and each < _SHORT)
    return next(limits, None)


def _at_once(argument: Any) -> Any:
    """Return a time limit's replacement, since it has run out in virtual time; other arguments stay as they are."""
    return _NEXT_TO_NOTHING if isinstance(argument, timedelta) else argument


def _patience(group: ProcessGroup) -> int:
    """Return the nanoseconds after which the parts of a group give up."""
    options = getattr(group._get_backend(_CPU), "options", None)
    return nanoseconds(getattr(options, "_timeout", None))


def _root(arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    for each in (*arguments, *named.values()):
        if hasattr(each, "rootRank"):
            return int(each.rootRank)
        if isinstance(each, int) and not isinstance(each, bool):
            return each
    return 0


def _signature(kind: str, arguments: tuple[Any, ...]) -> str:
    """Return the properties that must be the same on all ranks besides the kind: data type and number of elements."""
    if kind not in _SAME_SIZE or not arguments:
        return ""
    first = arguments[0]
    tensors = [first] if isinstance(first, torch.Tensor) else first
    return ", ".join(f"{each.numel()} x {str(each.dtype).removeprefix('torch.')}" for each in tensors)


def _issuing(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def issue(self: ProcessGroup, *arguments: Any, **named: Any) -> Any:
        ticket, returns_early = _issue(self, kind, arguments, named)
        blocks = kind == "monitored_barrier"  # in C++, and it returns no Work
        _issued.already = True
        try:
            limit = _limit(arguments, named)
            waits = _awaited(ticket if blocks else None, leaves=False, limit=limit)
            with waits as is_over, _marked(is_over=is_over):
                if is_over:
                    arguments = tuple(map(_at_once, arguments))
                    named = {name: _at_once(each) for name, each in named.items()}
                if returns_early:
                    work = weak_collectives.begin(self, kind, original, arguments, named)
                else:
                    work = original(self, *arguments, **named)
        finally:
            _issued.already = False
        if work is not None:
            _tickets[work] = ticket
        return work

    return issue


def _closing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def shutdown(self: ProcessGroup) -> Any:
        hypercall(Shutdown(self.group_name, stack=stack()))
        return None if weak_collectives.is_kept(self) else original(self)

    return shutdown


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        limit = _limit(arguments, named)
        with _awaited(_tickets.get(self), limit=limit, gives_up=not limit) as is_over, _marked(is_over=is_over):
            return original(self, _NEXT_TO_NOTHING) if is_over else original(self, *arguments, **named)

    return wait


def _testing(original: Callable[..., Any], wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def is_completed(self: Any) -> bool:
        ticket = _tickets.get(self)
        if ticket is None:
            return bool(original(self))
        if hypercall(AskComplete(ticket, stack=stack())):
            with suppress(RuntimeError):  # the program's own wait raises it again
                wait(self)
            return True
        return False

    return is_completed


def _making_group(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def make(*arguments: Any, **named: Any) -> Any:
        group = parameters.bind(*arguments, **named).arguments["group_name"]
        hypercall(MakesGroup(group, begins=True))
        try:
            return original(*arguments, **named)
        finally:
            hypercall(MakesGroup(group, begins=False))

    return make


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def look(self: Any) -> Any:
        if self in _tickets:
            hypercall(Looks("collective"))
        return original(self)

    return look


def _from_cpp(op: Any, kind: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if not getattr(_issued, "already", False):
            boxed = next(each for each in arguments if isinstance(each, torch.ScriptObject))
            ticket, _ = _issue(ProcessGroup.unbox(boxed), kind, arguments, {}, python=False)
            hypercall(Wait(ticket, stack=stack()))
        with torch._C._AutoDispatchBelowAutograd():
            return op(*arguments)

    return call


def _functional(op: Any, kind: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        group = _resolve_process_group(named.get("group_name") or _last_text(arguments))
        ticket, _ = _issue(group, kind, arguments, named)
        with torch._C._AutoDispatchBelowAutograd(), _marked():
            result = op(*arguments, **named)
        for tensor in [result] if isinstance(result, torch.Tensor) else result:
            _by_storage[tensor.untyped_storage().data_ptr()] = ticket
        return result

    return call


def _functional_wait(op: Any) -> Callable[[Any], Any]:
    def call(tensor: Any) -> Any:
        ticket = _by_storage.pop(tensor.untyped_storage().data_ptr(), None)
        with _awaited(ticket), torch._C._AutoDispatchBelowAutograd(), _marked():
            return op(tensor)

    return call


def _last_text(arguments: tuple[Any, ...]) -> str:
    return next(each for each in reversed(arguments) if isinstance(each, str))
