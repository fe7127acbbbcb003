"""The pytest plugin, from outside: what a project that uses it sees."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.inner_pytest import PLUGIN, run
from tests.support.waiting import wait

pytest_plugins = "pytester"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines with and without a terminal."""
    monkeypatch.setenv("COLUMNS", "120")


WITHOUT = (sys.executable, str(Path(__file__).parents[1] / "programs" / "forbidding.py"))
INTERRUPTIBLE = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
"""What a shell starts in the background ignores SIGINT, and so do its children."""

SCENARIOS = """
import racecheck as package
from racecheck import Violation, scenario
from racecheck.explore.findings import load
import pytest

@scenario(ranks=2, breaks="no-file-errors")
def racing(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()

@scenario(ranks=2)
def guarded(rank):
    (rank.path / "ckpt").mkdir(exist_ok=True)

def nothing_made(outcome):
    if outcome.disk:
        yield Violation("nothing-made", "made something")
"""


@pytest.fixture(autouse=True)
def _settings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin must live with the strictest settings; findings go where they go by default."""
    monkeypatch.delenv("RACECHECK_FINDINGS", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n")


CHECKS = """
def test_pass(racecheck):
    report = racecheck.check(guarded, schedules=3, strategy="random")
    assert (report.verdict, report.schedules, report.exhaustive) == (package.Verdict.PASS, 3, False)
    assert racecheck.check(guarded).exhaustive

def test_fail(racecheck):
    racecheck.check(racing)

def test_invariants(racecheck):
    racecheck.check(guarded, invariants=[racecheck.no_deadlock, nothing_made])

def test_nothing_to_judge_is_unknown(racecheck):
    racecheck.check(guarded, invariants=[], schedules=2)

@pytest.mark.racecheck(ranks=3, schedules=4, strategy="round-robin", seed=5)
def test_marker(racecheck):
    report = racecheck.check(guarded)
    assert (report.world.ranks, report.schedules, report.seed) == (3, 1, "5")
    report = racecheck.check(guarded, ranks=1, strategy="random")
    assert (report.world.ranks, report.schedules, report.exhaustive) == (1, 1, False), 'samples prove nothing'

@pytest.mark.racecheck(ranks=4, nodes=2, storage="node-local", invariants=[package.no_deadlock])
def test_marker_of_a_world(racecheck):
    world = racecheck.check(racing, schedules=1).world
    assert (world.ranks, world.nodes, world.storage) == (4, 2, "node-local"), 'another invariant would have failed'
    whole = package.World(ranks=2, timeout=9.0)
    assert racecheck.check(guarded, schedules=1, world=whole).world.ranks == 2, 'the call goes before the marker'
    assert racecheck.check(guarded, schedules=1, nodes=1, storage="nfs").world.storage == "nfs"

@pytest.mark.racecheck(world=package.World(ranks=4))
def test_marker_with_a_world(racecheck):
    assert racecheck.check(guarded, schedules=1).world.ranks == 4
    assert racecheck.check(guarded, schedules=1, ranks=3).world.ranks == 3

def test_two_worlds(racecheck):
    racecheck.check(guarded, world=package.World(), storage="nfs")

def test_unknown_keyword(racecheck):
    racecheck.check(guarded, node=3)

@pytest.mark.racecheck(rank=3)
def test_wrong_marker(racecheck):
    racecheck.check(guarded)

def test_options(racecheck):
    report = racecheck.check(guarded, strategy="random")
    assert (report.world.timeout, report.schedules, report.seed) == (7.5, 6, "nine")

def test_no_scenario(racecheck):
    racecheck.check(nothing_made)

def test_impossible_world(racecheck):
    racecheck.check(guarded, ranks=0)

def test_the_package_is_not_hidden(racecheck):
    assert racecheck.no_file_errors is package.no_file_errors
    assert not hasattr(racecheck, "no_such_thing")

def test_no_torch_here(racecheck):
    import sys
    assert "torch" not in sys.modules
"""

SAID = [
    "*_ test_fail _*",
    "FAIL  no-file-errors: FileExistsError on rank ?: ckpt",
    "      seed nine, schedule ? of 6; * ops",
    "      Finding: .racecheck/racing-*/*.json",
    "      minimised: 4 ops, 2 ranks, 1 switch",
    "      rank 0  * rank 1",
    "*mkdir ckpt*EEXIST*<---*test_check.py:* racing",
    "rank ?  raised FileExistsError*",
    "It passes if *",
    "Replay:  racecheck replay .racecheck/racing-*/*.json",
    "Picture: racecheck report .racecheck/racing-*/*.json",
    "coverage: 4 ops controlled*",
    "test_check.py:*: in test_fail",
    "*_ test_invariants _*",
    "FAIL  nothing-made: made something",
    "*_ test_nothing_to_judge_is_unknown _*",
    "UNKNOWN  after 1 of 2 schedules",
    "      nothing was judged: no invariant was given*",
    "*_ test_two_worlds _*",
    "racecheck: a world sets its own storage: leave out storage= or world=",
    "*_ test_unknown_keyword _*",
    "racecheck: unknown keyword node=; did you mean nodes=?",
    "*_ test_wrong_marker _*",
    "racecheck: the racecheck marker takes the keywords ranks, nodes, *, invariants, world, not rank",
    "*_ test_no_scenario _*",
    "racecheck: <function nothing_made at *> is not a scenario: *",
    "*_ test_impossible_world _*",
    "racecheck: ranks must be from 1 to 1024, not 0",
    "*_ test_pass _*",
    "PASS  3 schedules * no violation; sampled with random: not a proof",
    "coverage: *",
    "PASS  EXHAUSTED: *",
]
"""What these print, in order."""


def test_check(pytester: pytest.Pytester) -> None:
    """Everything about `check` in one process, since each starts torch."""
    pytester.makepyfile(SCENARIOS + CHECKS)
    words = ("--racecheck-schedules=6", "--racecheck-seed=nine", "--racecheck-timeout=7.5", "--junit-xml=junit.xml")
    done = run(pytester, "-rP", *words)
    done.assert_outcomes(passed=7, failed=8)
    properties = re.findall(r'<property name="finding" value="(.+?)"', (pytester.path / "junit.xml").read_text())
    assert properties
    assert all((pytester.path / each).is_file() for each in properties)
    done.stdout.fnmatch_lines(SAID)
    assert "Traceback" not in done.stdout.str()
    assert "During handling" not in done.stdout.str()


FINDS = """
def test_found(racecheck):
    report = racecheck.finds(racing, within=20)
    assert report.verdict is package.Verdict.FAIL
    assert report.violations[0].violation.invariant == "no-file-errors"
    assert report.violations[0].finding.is_file()

def test_others_do_not_end_the_search(racecheck):
    asked = (package.no_file_errors, two_made)
    report = racecheck.finds(marking, two_made, strategy="random", invariants=asked, explain=5)
    assert report.schedules > 1
    assert [each.violation.invariant for each in report.violations] == ["two-made"]
    assert report.explanation is not None
    assert load(report.violations[0].finding).constraints

def test_found_in_a_world(racecheck):
    racecheck.finds(racing, world=package.World(ranks=4, nodes=2))
    racecheck.finds(racing, ranks=2, nodes=1, storage="nfs")

@pytest.mark.racecheck(invariants=[nothing_made])
def test_found_by_the_marker(racecheck):
    racecheck.finds(guarded, "nothing-made", within=1)

def test_no_scenario(racecheck):
    racecheck.finds(nothing_made)

def test_not_known(racecheck):
    racecheck.finds(racing, depth=3)

def test_found_by_a_function_that_the_scenario_does_not_name(racecheck):
    racecheck.finds(guarded, nothing_made, within=1)

def test_not_found(racecheck):
    racecheck.finds(guarded, "no-file-errors", within=3)

def test_another_one_found(racecheck):
    racecheck.finds(racing, "no-deadlock")

def test_none_named(racecheck):
    racecheck.finds(guarded)

def test_unknown_name(racecheck):
    racecheck.finds(guarded, "no-such-thing")

@scenario(ranks=2)
def marking(rank):
    if rank.rank == 1 and (rank.path / "0").exists():
        (rank.path / "two").touch()
    elif rank.rank == 1:
        (rank.path / "none" / "file").touch()
    else:
        (rank.path / "0").touch()

def two_made(outcome):
    if "two" in outcome.disk:
        yield Violation("two-made", "two is there")
"""

FOUND = [
    "*_ test_no_scenario _*",
    "racecheck: <function nothing_made at *> is not a scenario: *",
    "*_ test_not_known _*",
    "racecheck: unknown keyword depth=; known: ranks=, *",
    "*_ test_not_found _*",
    "expected a violation of no-file-errors within 3 schedules; found none",
    "PASS  EXHAUSTED: 2 traces, 0 redundant; every interleaving of 2 ranks, 3 ops; *",
    "*_ test_another_one_found _*",
    "expected a violation of no-deadlock within 20 schedules; found none",
    "FAIL  no-file-errors: *",
    "*_ test_none_named _*",
    "racecheck: test_finds.py::guarded does not say which invariant it `breaks`: name one of *",
    "*_ test_unknown_name _*",
    "racecheck: test_finds.py::guarded is not judged by 'no-such-thing': name one of *",
]
"""What these print, in order."""


def test_finds(pytester: pytest.Pytester) -> None:
    """Everything about `finds` in one process, since each starts torch."""
    pytester.makepyfile(SCENARIOS + FINDS)
    done = run(pytester)
    done.assert_outcomes(passed=5, failed=6)
    done.stdout.fnmatch_lines(FOUND)


def test_lines_that_ranks_reach_are_covered(pytester: pytest.Pytester) -> None:
    """As the guide says; the files of coverage.py are not the program's."""
    pytest.importorskip("pytest_cov")
    pytester.makeini("[pytest]\naddopts = --cov=saver\n")
    pytester.makefile(".coveragerc", "[run]\npatch = subprocess\nparallel = true\n").rename(".coveragerc")
    pytester.makepyfile(
        saver="""
def save(path):
    path.mkdir(exist_ok=True)

def load(path):
    return path.stat()
"""
    )
    pytester.makepyfile("""
import racecheck, saver

@racecheck.scenario(ranks=2)
def saving(rank):
    saver.save(rank.path / "ckpt")

def test_saving(racecheck):
    assert racecheck.check(saving).coverage.untried == {}
""")
    done = run(pytester)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["saver.py *4 *1 *75%"])


def test_under_xdist_and_then_replayed(pytester: pytest.Pytester) -> None:
    """Each worker has a session of its own; findings go below the root directory; the replay line works."""
    tests = "".join(f"def test_{number}(racecheck):\n    racecheck.check(racing)\n" for number in range(2))
    pytester.mkdir("inner").joinpath("test_racing.py").write_text(SCENARIOS + tests)
    done = run(pytester, "-n2", "--racecheck-explain=0", "inner")
    done.assert_outcomes(failed=2)
    (line,) = set(re.findall(r"racecheck replay (\S+)", done.stdout.str()))
    assert re.fullmatch(r"\.racecheck/racing-[0-9a-f]{4}/\w+\.json", line)
    replay = (sys.executable, "-m", "racecheck", "replay", line)
    replayed = pytester.run(*replay, "--times=2", "--json", timeout=120)
    assert json.loads(replayed.stdout.str())["reproduced"] == 2
    assert replayed.ret == 1


def test_a_lost_session_fails_its_test_and_the_next_one_has_another(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SCENARIOS
        + """
import os, signal
from racecheck.sessions.session import Session

def test_killed(racecheck, monkeypatch):
    def request(self, do, **arguments):
        os.kill(self._guardian.pid, signal.SIGKILL)
        return ask(self, do, **arguments)
    ask = Session.request
    monkeypatch.setattr(Session, "request", request)
    racecheck.check(guarded, schedules=2)

def test_next(racecheck):
    racecheck.check(guarded, schedules=2)
"""
    )
    done = run(pytester)
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(["*_ test_killed _*", "UNKNOWN  the zygote or guardian died*"])


def test_a_machine_that_lacks_something(pytester: pytest.Pytester) -> None:
    """Not a skip: that would read as a success."""
    pytester.makepyfile(SCENARIOS + "def test_it(racecheck):\n    racecheck.check(guarded)\n")
    pytest_ = (sys.executable, "-m", "pytest", *PLUGIN)
    done = pytester.run(*WITHOUT, "kcmp=EPERM", "--", *pytest_, timeout=120)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["UNKNOWN  this machine cannot run controlled worlds: kcmp: *"])
    done.assert_outcomes(failed=1)


def test_projects_that_do_not_use_it_pay_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import sys

def test_nothing_is_imported():
    ours = {f"racecheck.{room}" for room in ("explore", "sessions", "report", "supervisor")}
    heavy = {"torch", "rich", "click", *ours}
    assert "racecheck.frontends.pytest_plugin" in sys.modules
    assert heavy & set(sys.modules) == set()
"""
    )
    done = run(pytester, "-p", "no:hypothesispytest", "-p", "no:xdist")
    done.assert_outcomes(passed=1)


def test_the_marker_and_the_options_are_documented(pytester: pytest.Pytester) -> None:
    marker = "@pytest.mark.racecheck(ranks=..., nodes=..., storage=..., schedules=..., *"
    run(pytester, "--markers").stdout.fnmatch_lines([marker])
    options = set(re.findall(r"--racecheck-[a-z]+", run(pytester, "--help").stdout.str()))
    assert options == {f"--racecheck-{each}" for each in ("collectives", "explain", "schedules", "seed", "timeout")}


ENDLESS = """
import os
import racecheck

@racecheck.scenario(ranks=3)
def endless(rank):
    if rank.world_size < 3:
        open(os.environ["SEEN"], "w").close()
        while True: pass
    (rank.path / "ckpt").mkdir()

def test_it(racecheck):
    racecheck.check(endless)

def test_never():
    print("not come to")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_in_an_explanation_it_fails_with_what_there_is(pytester: pytest.Pytester, number: int) -> None:
    pytester.makepyfile(ENDLESS)
    seen = pytester.path / "seen"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *PLUGIN], env={**os.environ, "SEEN": str(seen)}, text=True,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = []
    while not first or not first[-1].startswith("FAIL  no-file-errors: FileExistsError on rank "):
        first.append(process.stdout.readline())
        assert first[-1], "FAIL is said at once"
    wait(process, seen.exists)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    assert "Left out of the explanation: a smaller world, fewer switches, " in out
    assert "FAILED test_interrupted_in_an_explanation_it_fails_with_what_there_is.py::test_it" in out
    assert "1 failed in" in out
    assert "1 failed, " not in out, "no other test has begun"


def test_interrupted_it_leaves_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SCENARIOS + "def test_it(racecheck):\n    racecheck.check(guarded, schedules=10**6, strategy='random')\n"
    )
    runs = pytester.path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *PLUGIN],
        env={**os.environ, "RACECHECK_RUNS": str(runs)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    wait(process, lambda: any(runs.glob("*/disk/ckpt")))
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    assert [path.name for path in runs.rglob("*")] == ["racecheck-0000"]
