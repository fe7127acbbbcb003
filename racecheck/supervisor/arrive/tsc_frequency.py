"""The frequency of the time stamp counter, which racecheck reports in the kernel's place.

Abseil (in tensorstore, gRPC, TensorFlow) wants to know how fast the processor counts.  Where the kernel does not tell
(it seldom does) it finds out by sleeping for a millisecond, several times, in whichever thread comes first; and a sleep
takes no time here.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.state.tasks import Request

_FREQUENCY = b"/sys/devices/system/cpu/cpu0/tsc_freq_khz"


def is_asked(request: Request) -> bool:
    """Return whether a call opens the file that reports it."""
    return request.call.family == "open" and _FREQUENCY in request.paths.values() and not os.path.exists(_FREQUENCY)


def tell(request: Request) -> Answer:
    """Return a file with it."""
    file = os.memfd_create("tsc_freq_khz")
    os.write(file, b"%d\n" % frequency())
    os.lseek(file, 0, os.SEEK_SET)
    return Answer(opened=file, close_on_exec="O_CLOEXEC" in request.flags, is_unseen=True)


@functools.cache
def frequency() -> int:
    """Return about how often the time stamp counter is raised in a millisecond."""
    found = re.search(r"^cpu MHz\s*: (\d+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return 1000 * int(found[1]) if found else 1_000_000
