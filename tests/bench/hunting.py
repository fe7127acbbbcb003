"""What it takes to see a race once: a program that hunts for it, in one of two ways, and says how much processor time
that took.

    hunting.py racecheck TARGET SEED           a search, from starting the session to the first violation
    hunting.py start TARGET SEED               a session that only learns what the scenario imports
    hunting.py spawn TARGET SEED SECONDS       ``torch.multiprocessing.spawn`` in a loop, with random sleeps

The loop sleeps for up to 5 ms before each call of Python's that changes the files, and any rank that fails is a hit, as
is a broken invariant.  (What only a trace shows, such as a torn read that loads by luck, it cannot see.)
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from racecheck import Outcome, Raised, Returned
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.invariants import judge
from racecheck.model import config
from racecheck.model.nouns import RankResult
from racecheck.scheduling.strategies import Replay
from racecheck.targets import resolve

_LONGEST_SLEEP = 0.005
_PATIENCE = timedelta(seconds=5)
"""How long a rank waits for the others: after that it has hit a deadlock."""
_CALLS = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "open", "listdir", "scandir", "stat", "symlink")


def processor_time() -> float:
    """Seconds of this process and of all that it has waited for."""
    own, others = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def sleep_before(function: Callable[..., Any], rng: random.Random) -> Callable[..., Any]:
    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(rng.uniform(0, _LONGEST_SLEEP))
        return function(*given, **named)

    return slow


def rank_main(number: int, ranks: int, target: str, home: str, seed: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{home}/store", rank=number, world_size=ranks, timeout=_PATIENCE)
    scenario, rng = resolve.load(target), random.Random(f"{seed}:{number}")
    for name in _CALLS:
        setattr(os, name, sleep_before(getattr(os, name), rng))
    result: RankResult
    try:
        sizes = {each.name: each.value for each in scenario.world.sizes}
        result = Returned(scenario(resolve.Rank(number, ranks, Path(home) / "disk", sizes=sizes)))
    except Exception as error:
        result = Raised(type(error).__qualname__, str(error), tuple(each.__name__ for each in type(error).__mro__))
    kind = type(result).__name__
    Path(home, f"result{number}").write_text(json.dumps({"is": kind, **asdict(result)}, default=str))
    with suppress(Exception):
        dist.destroy_process_group()


def attempt(target: str, seed: str, base: str) -> bool:
    """One run of the loop; whether the race shows."""
    import torch.multiprocessing as mp

    from racecheck.sessions import disk

    scenario, home = resolve.load(target), Path(tempfile.mkdtemp(dir=base))
    (home / "disk").mkdir()
    try:
        if scenario.before is not None:
            scenario.before(home / "disk")
        ranks = scenario.world.ranks
        with suppress(mp.ProcessRaisedException, mp.ProcessExitedException):
            mp.spawn(rank_main, (ranks, target, str(home), seed), nprocs=ranks)
        results = tuple(_result(home / f"result{number}") for number in range(ranks))
        outcome = Outcome(scenario.world, (), (), results, disk.read({"": home / "disk"}))
        broken = {each.invariant for each in judge(outcome, scenario.invariants).violations}
        return scenario.breaks in broken or any(isinstance(each, Raised) for each in results)
    finally:
        shutil.rmtree(home)


def _result(path: Path) -> RankResult:
    if not path.exists():
        return Raised("died", "it wrote no result")
    found = json.loads(path.read_text())
    return Returned(found["value"]) if found["is"] == "Returned" else Raised(found["type"], found["message"])


def loop(target: str, seed: str, seconds: float) -> dict[str, Any]:
    importlib.import_module("torch.multiprocessing")  # once, and not in every attempt
    begun, before, runs, hit = time.perf_counter(), processor_time(), 0, False
    while not hit and time.perf_counter() - begun < seconds:
        hit = attempt(target, f"{seed}:{runs}", str(config.read().runs))
        runs += 1
    return {"hit": hit, "runs": runs, "cpu": processor_time() - before, "seconds": time.perf_counter() - begun}


def start(target: str) -> dict[str, Any]:
    from racecheck.sessions.session import Session

    scenario, begun = resolve.load(target), time.perf_counter()
    with Session(config.read().runs) as started:
        runner.warm_up(started, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    return {"hit": False, "runs": 0, "cpu": processor_time(), "seconds": time.perf_counter() - begun}


def search(target: str, seed: str) -> dict[str, Any]:
    from racecheck.explore.requests import Search
    from racecheck.explore.search import explore
    from racecheck.sessions.session import Session

    scenario, begun = resolve.load(target), time.perf_counter()
    with Session(config.read().runs) as started:
        report = explore(started, Search(scenario, scenario.world, scenario.invariants, seed=seed))
    hit = scenario.breaks in {each.violation.invariant for each in report.violations}
    return {"hit": hit, "runs": report.schedules, "cpu": processor_time(), "seconds": time.perf_counter() - begun}


def main() -> None:
    how, target, seed, *rest = sys.argv[1:]
    ways = {
        "racecheck": lambda: search(target, seed),
        "start": lambda: start(target),
        "spawn": lambda: loop(target, seed, float(rest[0])),
    }
    print(json.dumps(ways[how]()))


if __name__ == "__main__":
    main()
