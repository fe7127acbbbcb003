"""Faults: what goes wrong on purpose, in one small grammar for Python and the command line.

    ENOSPC on write **/*.distcp rank=1 nth=2      the second such write of rank 1 fails, with that errno
    EIO on fsync times=all                        every fsync fails
    short on write bytes=10 nth=each              one write after the other is cut short, each in a run of its own
    torn on write bytes=4096                      that much is written, and then the call fails with EIO
    full bytes=65536                              there is room for so much more, then ENOSPC
    slow on rename latest seconds=30              in virtual time
    kill on any nth=each                          SIGKILL before every op, one after the other, each in a run of its own
    kill-node on rename rank=0; kill-job on any   the node of the rank that gets there; all ranks
    term on write seconds=30                      SIGTERM, and SIGKILL so much later
    crash model=ext4                              what a crash at any moment of the run can leave (`racecheck.crash`)

A fault that is to hit "each" op is a point: does this op go well, or not?  All others happen where they say.
"""

from __future__ import annotations

from racecheck.faults.grammar import GRAMMAR, check, parse, text
from racecheck.faults.plan import Plan, counts, hits, is_modelled, may_hit, takes_room

__all__ = [
    "GRAMMAR", "Plan", "check", "counts", "hits", "is_modelled", "may_hit", "parse", "takes_room", "text",
]  # fmt: skip
