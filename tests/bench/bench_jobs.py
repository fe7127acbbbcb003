"""What --jobs brings: whole commands with one job and with more, in turns, and whether their results are the same.

    python tests/bench/bench_jobs.py [--jobs N]... [--times N] [CASE...]

A command's time includes its start, of this process and of the workers.  The exit status is 1 for a result that
depends on the number of jobs, never for a slow machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.timeless import timeless

HERE = Path(__file__).parent
SCENARIOS = Path(__file__).parents[2] / "scenarios"
CASES = {
    "search": ("run", f"{SCENARIOS}/test_dcp_save.py::plain", "--strategy", "random", "--schedules", "200"),
    "proof": ("run", f"{HERE}/subjects.py::appends", "--strategy", "dpor", "--schedules", "1000"),
    "auto": ("run", f"{SCENARIOS}/test_dcp_save.py::plain", "--schedules", "200"),
    "sweep": ("run", f"{SCENARIOS}/test_dcp_save.py::plain", "--fault", "EIO on any nth=each", "--schedules", "200"),
    "replay": ("replay", "{finding}", "--times", "100", "--trust"),
    "gate": ("gate", "dcp", "--fresh"),
}


def racecheck(directory: Path, *words: str) -> tuple[float, Any]:
    """Run a command with --json; return its seconds and its data."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "racecheck", *words, "--json"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode not in {0, 1, 3}:
        sys.exit(f"racecheck {' '.join(words)}: status {done.returncode}: {done.stderr}")
    return seconds, json.loads(done.stdout)


def compare(directory: Path, name: str, jobs: list[int], times: int) -> bool:
    """Run a case with each number of jobs, in turns; print medians; return whether the results are the same."""
    words = CASES[name]
    if name == "replay":
        _, found = racecheck(directory, "run", f"{SCENARIOS}/test_dcp_resave.py::mixed", "--explain", "0")
        words = tuple(each.format(finding=found["violations"][0]["finding"]) for each in words)
    seconds: dict[int, list[float]] = {each: [] for each in jobs}
    results = []
    for _ in range(times):
        for each in jobs:
            spent, data = racecheck(directory, *words, "--jobs", str(each))
            seconds[each].append(spent)
            results.append(timeless(data))
    first = median(seconds[jobs[0]])
    told = "; ".join(f"{each}: {median(seconds[each]):.1f} s, {first / median(seconds[each]):.2f}" for each in jobs)
    same = all(each == results[0] for each in results)
    print(f"{name:8} jobs {told}; {'one result' if same else 'RESULTS DIFFER'}", flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--jobs", type=int, action="append", help="a number of jobs; repeatable (1 and 2)")
    parser.add_argument("--times", type=int, default=3, help="how often each is run (3)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        same = [compare(Path(directory), each, given.jobs or [1, 2], given.times) for each in given.cases or CASES]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
