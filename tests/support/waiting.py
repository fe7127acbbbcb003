"""Waiting for what another process makes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any


def wait(process: subprocess.Popen[Any], is_there: Callable[[], object]) -> None:
    """Return when something is there, or when the process has ended.

    The tests wait for files that ranks make.  No event announces these to another process, so this polls; no result
    depends on how long that takes, and the end of the process ends the wait.
    """
    while not is_there() and process.poll() is None:
        time.sleep(0.01)
