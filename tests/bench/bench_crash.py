"""How many crash states are judged in a second, and how long it takes to exhaust those of a `dcp.save`.

    python -m tests.bench.bench_crash [--quick]

Other programs on the machine make all of it slower: so the processor time that a state takes is shown as well, and what
a fork with one load takes here and now.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from racecheck import Outcome, Scenario
from racecheck.crash.build import build
from racecheck.crash.states import ALL, states
from racecheck.explore import runner
from racecheck.explore.recovery.judge import Crashes, judge_crashes
from racecheck.explore.requests import RunRequest
from racecheck.kernel import proc
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.one_run import Supervisor
from tests.bench import measuring
from tests.bench.measuring import Bench

MODELS = ("kill", "ext4", "btrfs")
CORES = 2


def record(session: Session, scenario: Scenario) -> tuple[Outcome, Recorder]:
    """One run in the default order, with its record."""
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    recorder = Recorder(session.slot.path / "blobs")
    run = Supervisor(session, scenario.reference, scenario.world, lambda _: 0, seed="0", recorder=recorder)
    return run.run(), recorder


def busy(below: int) -> float:
    """Processor seconds of all processes below one, those that have been reaped included."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = 0.0
    for pid in proc.descendants(below):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += sum(map(int, fields[11:15])) / ticks
    return found


def judged(session: Session, name: str, models: tuple[str, ...], most: int = ALL) -> tuple[Crashes, float]:
    """What came of it, and the processor seconds that it took."""
    scenario = measuring.load(f"crashes.py::{name}")
    outcome, recorder = record(session, scenario)
    before, own = busy(os.getpid()), time.process_time()
    crashes = judge_crashes(session, scenario, outcome, recorder, models, most=most)
    spent = busy(os.getpid()) - before + time.process_time() - own
    recorder.close()
    return crashes, spent


def rate(bench: Bench, session: Session, name: str, models: tuple[str, ...]) -> None:
    crashes, spent = judged(session, name, models)
    bench.row(f"{name}: states of the disk, loaded and judged", f"{crashes.disks} in {crashes.seconds:.2f} s")
    bench.row("  in a second", f"{crashes.rate:.0f}", "500")
    bench.row("  in a second of two idle cores, by processor time", f"{CORES * crashes.disks / spent:.0f}", "500")
    bench.must(crashes.disks > 20, "there are too few states to measure by")


def exhausted(bench: Bench, session: Session) -> None:
    crashes, spent = judged(session, "dcp_save", MODELS, most=1 << 20)
    bench.row("2-rank dcp.save, all cuts, three models", f"{crashes.seconds:.2f} s, {spent:.2f} s of processor", "20 s")
    for model, count in crashes.counts.items():
        bench.row(f"  {model}", f"{count.judged} states, {count.cuts} cuts, {count.bad} bad")
    bench.must(not crashes.truncated, f"not exhausted: {crashes.truncated}")


def enumeration(bench: Bench, session: Session) -> None:
    """Without loading."""
    outcome, recorder = record(session, measuring.load("crashes.py::parts"))
    log = build(outcome, recorder)
    started = time.process_time()
    found = sum(len(states(log, model).states) for model in MODELS)
    bench.row("states enumerated in a second of processor time", f"{found / (time.process_time() - started):.0f}")
    recorder.close()


def forks(bench: Bench, session: Session) -> None:
    """What it would take to fork for each state: a setup request is a fork that does nothing."""
    scenario = measuring.load("crashes.py::parts")
    times, started = 30, time.perf_counter()
    for _ in range(times):
        path = str(session.slot.watched)
        session.request("contents", root=path, answer=str(session.slot.output / "contents"), timeout=60.0)
    bench.row(
        "a fork that reads the checkpoint, here and now", f"{(time.perf_counter() - started) / times * 1e3:.1f} ms"
    )
    assert scenario.has_recovery


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    bench = Bench(parser.parse_args().quick)
    with measuring.session() as session:
        rate(bench, session, "parts", ("kill",) if bench.quick else MODELS)
        exhausted(bench, session)
        enumeration(bench, session)
        forks(bench, session)
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
