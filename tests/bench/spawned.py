"""What people do today: loop ``torch.multiprocessing.spawn`` over the race and hope.

A program that keeps torch imported, runs one attempt for each line it reads, and answers with its seconds.
An attempt is what one would write by hand: a fresh directory, setup, spawn, gloo over a file store, the race,
clean up.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from racecheck.targets import resolve


def rank_main(number: int, ranks: int, target: str, path: str, store: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=ranks)
    scenario = resolve.load(target)
    sizes = {each.name: each.value for each in scenario.world.sizes}
    scenario(resolve.Rank(number, ranks, Path(path), sizes=sizes))
    dist.destroy_process_group()


def attempt(target: str, ranks: int, base: str) -> None:
    import torch.multiprocessing as mp

    home = Path(tempfile.mkdtemp(dir=base))
    watched = home / "disk"
    watched.mkdir()
    before = resolve.load(target).before
    if before is not None:
        before(watched)
    with suppress(mp.ProcessRaisedException, mp.ProcessExitedException):
        mp.spawn(rank_main, (ranks, target, str(watched), str(home / "store")), nprocs=ranks)
    shutil.rmtree(home)


def main() -> None:
    importlib.import_module("torch.multiprocessing")  # is not part of an attempt
    target, ranks, base = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    for _ in sys.stdin:
        started = time.perf_counter()
        attempt(target, ranks, base)
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
