"""The names and addresses of nodes: each of several nodes has its own, as Python's library reports them.

Programs in C, and programs that a rank executes, see this machine's.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
import uuid
from collections.abc import Callable
from typing import Any

_LOCAL = 0x02 << 40
"""The bit of an address that says that it is not a manufacturer's (`uuid.getnode`)."""
_names: list[str] = []
"""The own name of this process's node, where there are several; set in a rank."""


def install() -> None:
    """Replace the functions that return and resolve host names; done once, in the zygote, before modules have them."""
    hostname, uname = socket.gethostname, os.uname

    def own_uname() -> os.uname_result:
        found = uname()
        return os.uname_result((found[0], _names[0], *found[2:])) if _names else found

    socket.gethostname = lambda: _names[0] if _names else hostname()
    os.uname = own_uname
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, _resolving(getattr(socket, name), hostname))


def _resolving(original: Callable[..., Any], hostname: Callable[[], str]) -> Callable[..., Any]:
    """Return a function that takes the name of any node for this machine's, since all nodes are on it."""

    @functools.wraps(original)
    def resolve(host: Any, *arguments: Any, **named: Any) -> Any:
        is_node = bool(_names) and isinstance(host, str) and host.startswith(f"{hostname()}-node")
        return original(hostname() if is_node else host, *arguments, **named)

    return resolve


def settle(node: int, nodes: int) -> None:
    """Name and number the node of this process, if there are several."""
    if nodes > 1:
        _names[:] = [f"{socket.gethostname()}-node{node}"]
        vars(platform)["_uname_cache"] = None
        vars(uuid)["_node"] = _LOCAL | node + 1
