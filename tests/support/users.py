"""Other users than this one, who own its files: namespaces stand for them (user_namespaces(7))."""

from __future__ import annotations

import os

USERS: dict[str, tuple[str, ...]] = {
    "this one": (),
    "an ordinary one": ("unshare", "--user", "--map-user=1000", "--map-group=1000"),
    "root of a container": ("unshare", "--user", "--map-root-user", "--mount"),
}
"""By user: the words before a command that start it as that one."""

MOUNTING = ("unshare", "--mount") if os.geteuid() == 0 else USERS["root of a container"]
"""The words before a command that start it in a mount namespace of its own, with the right to mount."""
