"""The process groups that a program asks for, in whatever way.

The first one is made before the program runs, as a scenario's is, and a plain ``init_process_group`` takes it: that
costs as much as for a scenario.  All others are made for real, on the store that the supervisor keeps.  NCCL becomes
gloo where the ranks see no GPU.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from racecheck.agent import key_value_stores
from racecheck.agent.hypercalling import hypercall, stack
from racecheck.agent.job import Job
from racecheck.model.hypercalls import Note, Usage

GLOO = "the program's NCCL groups are gloo here"
"""The note of a run in which a program has asked for NCCL."""

_init, _new = dist.init_process_group, dist.new_group
_signature = inspect.signature(_init)
_PLAIN = {"backend", "init_method", "timeout", "world_size", "rank", "device_id"}
FORKED = (
    "a process that the program forks by itself would be a rank, which racecheck does not take over: start it with "
    "multiprocessing.Process or torch.multiprocessing.start_processes, or use torchrun"
)
"""Why a process that a rank has started may not be a rank itself."""
_aside: list[tuple[Any, str, Job, int]] = []
_aside_of: list[int] = []
_stores: list[Any] = []


def install() -> None:
    """Replace ``init_process_group`` and ``new_group`` in every module that has them; done once, in the zygote."""
    for module in [*sys.modules.values()]:
        for name, own, other in (("init_process_group", _init, init_process_group), ("new_group", _new, new_group)):
            if getattr(module, "__dict__", {}).get(name) is own:
                vars(module)[name] = other


def put_aside(job: Job, rank: int) -> None:
    """Take the process group that is there away, for the program's first ``init_process_group``."""
    _aside.append((distributed_c10d.GroupMember.WORLD, distributed_c10d._default_pg_init_method, job, rank))
    _aside_of[:] = [os.getpid()]
    distributed_c10d._update_default_pg(None)
    distributed_c10d._default_pg_init_method = None
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers

    def meet(url: str, timeout: timedelta | None = None, **_: Any) -> Iterator[tuple[Any, int, int]]:
        """Return the supervisor's store, whatever the address; torch's handlers are generators, too."""
        del timeout
        query = dict(each.split("=", 1) for each in url.partition("?")[2].split("&") if "=" in each)
        store = (
            key_value_stores.SupervisedStore(prefix=f"program {url.partition('?')[0]}")
            if job.controlled
            else (dist.FileStore(f"{job.output}/store{len(_stores)}", job.group))
        )
        _stores.append(store)  # C++ does not keep the Python half of a store alive
        yield store, int(query.get("rank", _aside[0][3])), int(query.get("world_size", job.group))

    for scheme in ("env", "tcp", "file"):
        handlers[scheme] = meet


def be_rank(rank: int) -> None:
    """Note the number of this process, which was forked to be a rank; it has no group yet."""
    _aside[:] = [(None, "", _aside[0][2], rank)]
    _aside_of[:] = [os.getpid()]


def init_process_group(*arguments: Any, **named: Any) -> None:
    """Act as ``torch.distributed.init_process_group``, with the group that was put aside if it is a plain one."""
    if not _aside:
        _init(*arguments, **named)
        return
    given = dict(_signature.bind(*arguments, **named).arguments)
    _replace_nccl(given)
    group, method, job, rank = _aside[0]
    if os.getpid() != _aside_of[0]:
        hypercall(Usage(FORKED, stack=stack()))
    url = str(given.get("init_method") or "env://")
    is_plain = not (given.keys() - _PLAIN) and url.partition("://")[0] in {"env", "tcp", "file"}
    is_whole = given.get("world_size", -1) in {-1, job.group} and given.get("rank", -1) in {-1, rank}
    if not (group and is_plain and is_whole):
        _init(**given)
        return
    _aside[0] = None, "", job, rank
    distributed_c10d._update_default_pg(group)
    distributed_c10d._default_pg_init_method = method
    if isinstance(given.get("timeout"), timedelta):
        distributed_c10d._set_pg_timeout(given["timeout"], group)
    dist.barrier()


def new_group(*arguments: Any, **named: Any) -> Any:
    """Act as ``torch.distributed.new_group``, with gloo in place of NCCL where there is no GPU."""
    if not _aside:
        return _new(*arguments, **named)
    given = dict(inspect.signature(_new).bind(*arguments, **named).arguments)
    _replace_nccl(given)
    return _new(**given)


def _replace_nccl(given: dict[str, Any]) -> None:
    """Ask for gloo in place of NCCL where there is no GPU, and for no device."""
    if torch.cuda.is_available():
        return
    device = given.get("device_id")
    if getattr(device, "type", "") == "cuda":
        del given["device_id"]
    if "nccl" in str(given.get("backend") or "").lower() or getattr(device, "type", "") == "cuda":
        hypercall(Note(GLOO, stack=stack()))
        given["backend"] = "gloo"
