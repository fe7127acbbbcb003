"""Collectives as weak as MPI and NCCL allow: a rank continues before its peers come if it needs nothing of them.

In an experiment rank 0 broadcasts and then removes a file, and rank 1 looks for the file and then takes part in the
broadcast.  The supervisor lets rank 0 into gloo at once, but gloo keeps it there until rank 1 has come: rank 1 always
finds the file, and DPOR has nothing to reverse.  The same holds for a scatter, a send, and the leaf of a gather or a
reduce, for gloo sends when the receiver has said that it is ready.  MPI copies a short message and returns, and with
NCCL the wait of a rank returns when the work is in a queue.

Here these parts work on copies, made when the part is issued, and their ``Work`` is done at once.  gloo's threads carry
them out when the peers come: the supervisor keeps such a rank from ending until then, and a group that has had such
a part is kept until the rank ends.  A broadcast goes from its root to each rank, for in gloo's tree a rank also waits
for the ranks between itself and the root.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import ProcessGroup

_TAG = 1 << 30
"""The messages of broadcasts have a tag that no program uses."""
_CPU = torch.device("cpu")

_kept: list[Any] = []
_groups: list[ProcessGroup] = []
_libraries: list[torch.library.Library] = []


def wrap_work(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Have the ``Work`` of an early part make hypercalls, too; releases of torch before `FakeWork` have none."""
    if hasattr(c10d, "FakeWork"):
        setattr(c10d.FakeWork, "wait", wrap(c10d.FakeWork.wait))  # noqa: B010  (read-only to mypy)


def install() -> None:
    """Send broadcasts of this process from the root to each rank, without a wait of the root.

    Raises `RuntimeError` if torch has no ``Work`` for a part that is done at once.
    """
    if not hasattr(c10d, "FakeWork"):
        raise RuntimeError(f"torch {torch.__version__} has no FakeWork: use a newer torch, or drop collectives=weakest")
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that gloo's own is replaced
        library.impl("broadcast_", _broadcast, "CPU")
    _libraries.append(library)


def begin(group: ProcessGroup, kind: str, call: Callable[..., Any], arguments: tuple[Any, ...], named: Any) -> Any:
    """Start a part on copies of its tensors; returns a ``Work`` that is done.

    (`_broadcast` copies its tensors.)
    """
    if kind == "broadcast":
        return call(group, *arguments, **named)
    copies, copied = _copied(arguments), {name: _copied(each) for name, each in named.items()}
    if kind == "scatter":
        _take_own(group, arguments, named)
    _keep(group, call(group, *copies, **copied), copies, copied)
    return c10d.FakeWork()


def is_kept(group: ProcessGroup) -> bool:
    """Return whether a group has to live until the rank ends."""
    return group in _groups


def _keep(group: ProcessGroup, *what: Any) -> None:
    """Copy the tensors: gloo reads them when the peers come."""
    _kept.append(what)
    if group not in _groups:
        _groups.append(group)


def _broadcast(tensors: list[torch.Tensor], boxed: Any, root: int, *_: Any) -> tuple[list[torch.Tensor], Any]:
    """Act as ``c10d::broadcast_``."""
    group = ProcessGroup.unbox(boxed)
    backend: Any = group._get_backend(_CPU)  # noqa: SLF001
    if group.rank() != root:
        return tensors, backend.recv(tensors, root, _TAG).boxed()
    for rank in range(group.size()):
        if rank != root:
            copies = _copied(tensors)
            _keep(group, backend.send(copies, rank, _TAG), copies)
    return tensors, c10d.FakeWork().boxed()


def _take_own(group: ProcessGroup, arguments: tuple[Any, ...], named: Any) -> None:
    """Do the root's own part of a scatter at once."""
    outputs, inputs, *_ = [each for each in (*arguments, *named.values()) if _flat(each)]
    with torch.no_grad():
        _flat(outputs)[0].copy_(_flat(inputs)[group.rank()])


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for part in value for each in _flat(part)] if isinstance(value, (list, tuple)) else []


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [_copied(each) for each in value] if isinstance(value, (list, tuple)) else value
