"""What a schedule costs, whether it repeats, and what is found.

    python tests/bench/bench_schedules.py [--quick] [--only TEXT]... [--replays N] [SECTION...]

Competitors run in turns within one invocation, and medians are compared.  Each line has its target beside
it.  The exit status is 1 for a wrong result (a run that does not repeat, a race not found, a false alarm),
never for a slow machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

from measuring import (
    HERE,
    SCENARIOS,
    TARGETS,
    Bench,
    busy,
    load,
    medians,
    schedules,
    session,
    timed_free,
    timed_schedules,
    timed_spawn,
    wilson,
)

from racecheck import Outcome, Returned, Scenario, Verdict
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.gate.subjects import Subject, checks
from racecheck.invariants import judge
from racecheck.model.compare import first_difference
from racecheck.scheduling.strategies import RandomWalk, Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.launched import Launched
from racecheck.targets.suite import NAMES

OPENPI = "test_openpi_overwrite.py::unguarded"
DCP = "test_dcp_save.py::plain"
BLOCK = 10
"""Schedules of a search that are timed together."""


def spawn(bench: Bench) -> None:
    """Schedules per second against the race looped with torch.multiprocessing.spawn."""
    for ranks in (2, 8):
        scenario = load(OPENPI, ranks=ranks)
        with session() as started, timed_spawn(scenario) as spawning:
            ours = timed_schedules(started, scenario, [], BLOCK)
            mine, theirs = medians(bench.times(7, 3), ours, spawning)
        rates = f"{1 / mine:.2f}/s against {1 / theirs:.2f}/s"
        bench.row(f"openpi race, {ranks} ranks", f"{rates}: {theirs / mine:.0f} times", "40 times")


def free(bench: Bench) -> None:
    """A controlled world against the same forked world uncontrolled."""
    for name, what in ((OPENPI, "openpi race"), (DCP, "dcp.save")):
        for ranks in (2, 4, 8):
            scenario, outcomes = load(name, ranks=ranks), list[Outcome]()
            with session() as started:
                mine, theirs = medians(
                    bench.times(9, 3),
                    timed_schedules(started, scenario, outcomes, BLOCK),
                    timed_free(started, scenario, BLOCK),
                )
            ops = median(len(outcome.ops) for outcome in outcomes)
            times = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms: {mine / theirs:.2f} times"
            bench.row(f"{what}, {ranks} ranks", times, "at most 2 times")
            whole, extra = mine * 1e3 / ops, (mine - theirs) * 1e3 / ops
            bench.row("", f"{ops:.0f} ops: {whole:.2f} ms each, {extra:.2f} of it for control")


def width(bench: Bench) -> None:
    """The cost of an op at 4 and at 16 ranks."""
    costs = {}
    for ranks in (4, 16):
        runs: dict[str, list[Outcome]] = {"few": [], "many": []}
        with session() as started:
            both = [
                timed_schedules(started, load(f"subjects.py::{name}", ranks=ranks), outcomes, 1)
                for name, outcomes in runs.items()
            ]
            few, many = medians(bench.times(15, 5), *both)
        ops = len(runs["many"][0].ops) - len(runs["few"][0].ops)
        costs[ranks] = (many - few) * 1e3 / ops
        bench.row(f"{ops} ops more, {ranks} ranks", f"{costs[ranks]:.2f} ms each")
    bench.row("16 ranks against 4", f"{costs[16] / costs[4]:.2f} times", "at most 2 times")


def all_scenarios(bench: Bench) -> list[Scenario]:
    files = sorted(SCENARIOS.glob("test_*.py"))
    found = [each for file in files for each in resolve.scenarios_in(resolve.load_file(file))]
    found = [each for each in found if not isinstance(each, Launched)]  # those need a process of their own
    return [each for each in found if not bench.only or any(text in title(each) for text in bench.only)]


def title(scenario: Scenario) -> str:
    return f"{scenario.file.stem.removeprefix('test_')} {scenario.name}"


def determinism(bench: Bench) -> None:
    """Replays with two busy loops beside them, half of them in fresh processes."""
    repeated(bench, all_scenarios(bench) + ([] if bench.only else [load(DCP, ranks=4)]))


def savers(bench: Bench) -> None:
    """The same with the reference checkpointers for which this environment has the packages."""
    scenarios = []
    for name in [each for each in NAMES if not bench.only or any(text in each for text in bench.only)]:
        subject = Subject(name, resolve.checkpointer(name))
        if subject.missing:
            bench.row(name, subject.missing)
        else:
            scenarios += [subject.scenario(each) for each in checks(subject, ("save", "async"), ())]
    repeated(bench, scenarios)


def repeated(bench: Bench, scenarios: Sequence[Scenario]) -> None:
    half, sessions = bench.replays // 2, max(2, bench.replays // 50)
    alike = [0] * len(scenarios)
    with busy(2):
        with session() as started:
            recorded = [record(started, scenario) for scenario in scenarios]
            for index, scenario in enumerate(scenarios):
                alike[index] += replay(bench, started, scenario, recorded[index], half)
        for _ in range(sessions):
            with session() as fresh:
                for index, scenario in enumerate(scenarios):
                    alike[index] += replay(bench, fresh, scenario, recorded[index], half // sessions)
    for scenario, count in zip(scenarios, alike, strict=True):
        shown = f"{count} of {2 * half} identical, {sessions} sessions more"
        bench.row(f"{title(scenario)}, {scenario.world.ranks} ranks", shown, "all")


def record(started: Session, scenario: Scenario) -> list[Outcome]:
    """Runs of five different schedules; names that differ from run to run are learnt before."""
    report = explore(started, Search(scenario, scenario.world, scenario.invariants, schedules=1))
    assert report.outcome is not None
    names, seeds = report.outcome.names, [f"determinism:{seed}" for seed in range(5)]
    return [timed_run(started, scenario, RandomWalk(), seed, names)[0] for seed in seeds]


def replay(bench: Bench, started: Session, scenario: Scenario, recorded: list[Outcome], times: int) -> int:
    """Replay the recorded schedules in turn; returns how many runs were the same."""
    alike = 0
    runner.warm_up(started, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    for number in range(times):
        outcome = recorded[number % len(recorded)]
        strategy = Replay(outcome.schedule)
        now, _ = timed_run(started, scenario, strategy, "", outcome.names)
        difference = strategy.divergence or first_difference(outcome, now)
        bench.must(not difference, f"{scenario.name} did not repeat: {difference}")
        alike += not difference
    return alike


def found(bench: Bench) -> None:
    """Racy scenarios are found, fixed ones are clean."""
    with session() as started:
        for scenario in all_scenarios(bench):
            if scenario.expected is Verdict.FAIL:
                seeds(bench, started, scenario)
                hits(bench, started, scenario)
            else:
                clean(bench, started, scenario)


def seeds(bench: Bench, started: Session, scenario: Scenario) -> None:
    needed = []
    for seed in range(1, 11):
        search = Search(scenario, scenario.world, scenario.invariants, schedules=20, seed=str(seed), stacks=False)
        report = explore(started, search)
        broken = {each.violation.invariant for each in report.violations}
        bench.must(scenario.breaks in broken, f"{scenario.name}, seed {seed}: {scenario.breaks} not found in 20")
        needed.append(report.schedules)
    shown = f"after {', '.join(map(str, needed))}"
    bench.row(f"{title(scenario)}, seeds 1 to 10", shown, "20 from each seed")


def hits(bench: Bench, started: Session, scenario: Scenario) -> None:
    tries = bench.times(1000, 50)
    count = 0
    for outcome in schedules(started, scenario, [f"hits:{each}" for each in range(tries)], stacks=False):
        broken = {each.invariant for each in judge(outcome, scenario.invariants).violations}
        count += scenario.breaks in broken
    low, high = wilson(count, tries)
    bench.row("", f"{count} of {tries}: {count / tries:.1%} (95%: {low:.1%} to {high:.1%})")


def clean(bench: Bench, started: Session, scenario: Scenario) -> None:
    tries = bench.times(200, 20)
    search = Search(scenario, scenario.world, scenario.invariants, schedules=tries, stacks=False)
    report = explore(started, search)
    bench.must(report.verdict is Verdict.PASS, f"{scenario.name}: {report.verdict.name} {[*report.reasons]}")
    shown = f"{report.verdict.name} after {report.schedules}{', all there are' if report.exhaustive else ''}"
    bench.row(f"{title(scenario)}, fixed", shown, f"PASS after {tries}")


def libraries(bench: Bench) -> None:
    """Real checkpointers: accelerate's schedules repeat, and filelock excludes, in no time."""
    with session() as started:
        scenario, tries = resolve.load(f"{TARGETS}/libraries.py::accelerate_thrice"), bench.times(200, 20)
        search = Search(scenario, scenario.world, scenario.invariants, schedules=1)
        report = explore(started, search)
        assert report.outcome is not None
        names, alike, seconds = report.outcome.names, 0, []
        for number in range(tries // 2):
            first, one = timed_run(started, scenario, RandomWalk(), str(number), names)
            again = Replay(first.schedule)
            second, other = timed_run(started, scenario, again, "", names)
            difference = again.divergence or first_difference(first, second)
            bench.must(not difference, f"accelerate did not repeat: {difference}")
            alike, seconds = alike + 2 * (not difference), [*seconds, one, other]
        bench.row("accelerate save_state x 3, 2 ranks", f"{alike} of {tries} identical", "all")
        bench.row("", f"{median(seconds):.2f} s a schedule", "under 0.5 s")
        scenario, tries = resolve.load(f"{TARGETS}/times.py::filelock_excludes"), bench.times(1000, 50)
        seconds, held = [], 0
        for number in range(tries):
            outcome, took = timed_run(started, scenario, RandomWalk(), str(number), ())
            held += all(isinstance(each, Returned) for each in outcome.results)
            seconds.append(took)
        bench.must(held == tries, "two ranks held one lock")
        bench.row("filelock, 8 ranks", f"excluded in {held} of {tries} schedules", "all")
        bench.row("", f"{median(seconds):.2f} s, at most {max(seconds):.2f} s", "under 1 s each")


def timed_run(
    started: Session, scenario: Scenario, strategy: Strategy, seed: str, names: Sequence[str]
) -> tuple[Outcome, float]:
    strategy.begin(Random(seed))
    begun = time.perf_counter()
    outcome = runner.run(started, RunRequest.of(scenario, scenario.world, strategy, seed="0", names=names))
    return outcome, time.perf_counter() - begun


def hunt(bench: Bench) -> None:
    """Processor time to the first hit, against a loop over torch.multiprocessing.spawn with random sleeps."""
    limit, ratios, alone, never = bench.times(600, 60), [], [], 0
    for scenario in all_scenarios(bench):
        if scenario.expected is Verdict.FAIL:
            ours, idle, theirs = (hunted(how, scenario, limit) for how in ("racecheck", "start", "spawn"))
            bench.must(ours["hit"], f"{title(scenario)} was not found")
            ratios.append(theirs["cpu"] / ours["cpu"])
            alone.append(theirs["cpu"] / max(ours["cpu"] - idle["cpu"], 0.05))
            never += not theirs["hit"]
            times = f"{ours['cpu']:.1f} s ({idle['cpu']:.1f} s of it to start) against {theirs['cpu']:.1f} s"
            runs = f"{ours['runs']} runs, {theirs['runs']} {'' if theirs['hit'] else 'without a hit'}"
            bench.row(title(scenario), f"{times}: {ratios[-1]:.0f} times ({alone[-1]:.0f}); {runs}")
    bench.row("median", f"{median(ratios):.0f} times, {median(alone):.0f} without the start of a session", "50 times")
    bench.row("the loop never hit", f"{never} of {len(ratios)}, in {limit} s each")


def hunted(how: str, scenario: Scenario, limit: int) -> dict[str, float]:
    command = [sys.executable, str(HERE / "hunting.py"), how, scenario.reference, "1", str(limit)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


SECTIONS: dict[str, Callable[[Bench], None]] = {
    each.__name__: each for each in (spawn, free, width, determinism, savers, found, hunt, libraries)
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sections:\n" + "\n".join(f"  {name:<12} {each.__doc__}" for name, each in SECTIONS.items()),
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: minutes instead of hours")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="scenarios with this in their title"
    )
    parser.add_argument(
        "--replays", type=int, default=0, help="of each scenario in `determinism` and `savers` (default: 500)"
    )
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"there is no section {unknown.pop()!r}; there is: {', '.join(SECTIONS)}")
    bench = Bench(options.quick, options.only)
    bench.replays = options.replays or bench.times(500, 20)
    for name in options.sections or SECTIONS:
        print(f"{name}: {SECTIONS[name].__doc__}", flush=True)
        SECTIONS[name](bench)
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
