"""Fresh seeds for tests that may go on as long as one likes.

``pytest -m soak`` gives each of them ``RACECHECK_SOAK_SECONDS`` (60); ``RACECHECK_SOAK_SEED`` starts at a seed that an
earlier soak has printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def seeds() -> Iterator[int]:
    """Yield consecutive seeds from a random first one until the time is up; at least one."""
    first = int(os.environ.get("RACECHECK_SOAK_SEED") or int.from_bytes(os.urandom(5), "big"))
    end = time.monotonic() + float(os.environ.get("RACECHECK_SOAK_SECONDS") or 60)
    print(f"RACECHECK_SOAK_SEED={first}")
    number = first
    while number == first or time.monotonic() < end:
        yield number
        number += 1
    print(f"{number - first} seeds")
