"""When every run begins, and how fast its time passes."""

from __future__ import annotations

EPOCH = 2_000_073_599 * 10**9
"""The time of day at which every run begins, in nanoseconds since 1970: a second before midnight (UTC).

So a clock that is a second ahead shows another second, minute, hour and day.
"""

BOOTED = 1_000 * 10**9
"""The monotonic clocks' time at the start."""

TICK = 1_000
"""Nanoseconds that pass with every op, and between two readings of a clock: a thread that polls must end."""

CLOCK = 9
"""Bytes of the page that ranks read the virtual time from: nanoseconds, and whether they are watched closely."""

APART = 10_007
"""Nanoseconds between the clocks of two ranks: no two ranks read the same time, as they do not on a real machine."""

GRANULARITY = 20_000_000
"""How far the kernel's time stamps may be behind its clock."""
