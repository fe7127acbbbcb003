"""The command line: what it prints where, and its exit status, which others build on.

Most tests call `main` in this process and share one session; starting torch takes longer than they do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from racecheck.explore import findings, search
from racecheck.explore.reports import Found, Report
from racecheck.explore.requests import Search
from racecheck.model.nouns import Verdict, Violation
from racecheck.report.results import Page, search_text
from racecheck.scheduling.explain import PAIR, SWITCHES, Explanation
from racecheck.sessions import session
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.session import Session, Slot
from racecheck.targets import resolve
from tests.support import pictures
from tests.support.command_line import FILE, RACECHECK, Cli, finding_of
from tests.support.reports import report
from tests.support.waiting import wait

pytestmark = pytest.mark.usefixtures("project")

INTERRUPTIBLE = """
import signal, sys
from racecheck.frontends.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""
"""What a shell starts in the background ignores SIGINT, and so do its children."""


# run


def test_a_failure_shows_the_interleaving_and_how_to_replay_it(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--seed", "7", "--strategy", "round-robin") == 1
    first, run, where, least, *lines = cli.out.splitlines()
    said = re.match(r"FAIL  (no-file-errors: FileExistsError on rank \d: ckpt)$", first)
    assert said is not None
    assert run == "      seed 7, schedule 1 of 100; 2 ranks, 4 ops"
    assert where.startswith("      Finding: .racecheck/racing-")
    assert least == "      minimised: 4 ops, 2 ranks, 2 -> 1 switch"
    now = "no-file-errors: FileExistsError on rank 0: ckpt"
    if said[1] != now:
        assert lines.pop(0).strip() == now, "what is shown below is the least run"
    happened = r"Rank 1 did mkdir ckpt \(line (\d+)\), and then rank 0's mkdir ckpt \(line \1\) failed with EEXIST\."
    assert re.fullmatch(happened, lines.pop(0).strip())
    assert [lines.pop(0), *lines.pop(0).split()] == ["", "rank", "0", "rank", "1"]
    assert any(re.search(r"mkdir ckpt +EEXIST .*<--- +.*savers.py:\d+ racing", line) for line in lines)
    assert any(line.startswith("rank 0  raised FileExistsError") for line in lines)
    assert any(line.startswith("coverage: 4 ops controlled") for line in lines)
    how, picture, explain = (line for line in lines if line.startswith(("Replay:", "Picture:", "Explain:")))
    assert explain == "Explain: racecheck explain no-file-errors"
    assert how.split() == ["Replay:", "racecheck", "replay", where.split()[1], "--trust"], "its file is elsewhere"
    assert picture.split() == ["Picture:", "racecheck", "report", where.split()[1]]
    assert findings.load(Path(where.split()[1])).seed == "7"


def test_a_failure_as_json(cli: Cli) -> None:
    assert (
        cli("run", f"{FILE}::racing", "--ranks", 3, "--schedules", 50, "--seed", "text", "--explain", 600, "--json")
        == 1
    )
    data = cli.data
    assert (data["verdict"], data["exhaustive"], data["seed"]) == ("FAIL", False, "text")
    assert (data["explanation"]["found"]["ranks"], data["world"]["ranks"]) == (3, 2)
    assert data["ops"] == 4
    assert 1 <= data["distinct_schedules"] <= data["schedules"] <= 100
    violation = data["violations"][0]
    assert violation["invariant"] == "no-file-errors"
    assert violation["message"].startswith(f"FileExistsError on rank {violation['ranks'][0]}")
    assert findings.load(Path(violation["finding"])).outcome.world.ranks == 2


def test_a_pass_says_what_it_covered(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded") == 0
    assert re.match(r"PASS  EXHAUSTED: \d traces?, 0 redundant; every interleaving of 2 ranks, \d ops; ", cli.out)


def test_a_pass_by_sampling_says_that_it_is_no_proof(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded", "--schedules", 8, "--strategy", "random") == 0
    first, _, coverage = cli.out.splitlines()
    assert re.fullmatch(r"PASS  8 schedules \(\d distinct\) of 2 ranks, \d ops; .* s; no violation; .*", first)
    assert first.endswith("; sampled with random: not a proof")
    assert coverage.startswith("coverage: ")
    assert not Path(".racecheck").exists()


def test_unknown_has_a_reason_and_a_hint(cli: Cli) -> None:
    assert cli("run", f"{FILE}::differing") == 3
    first, reason, hint, *_ = cli.out.splitlines()
    assert first == "UNKNOWN  after 1 of 100 schedules"
    assert "two runs of the same schedule differ" in reason
    assert hint.strip().startswith("-> make the scenario deterministic")


def test_a_finding_of_free_mode_is_tried_again_in_free_mode(cli: Cli) -> None:
    assert cli("run", f"{FILE}::raising", "--mode", "free", "--json") == 1
    assert cli.data["strategy"] == "free"
    assert cli("replay", cli.data["violations"][0]["finding"], "--times", "2", "--json", "--trust") == 1
    assert (cli.data["reproduced"], cli.data["diverged"]) == (2, 0)


def test_what_a_scenario_prints_does_not_get_into_the_result(cli: Cli, tmp_path: Path) -> None:
    """savers.py prints when it is imported, which happens here once."""
    (tmp_path / "printing.py").write_text(FILE.read_text())
    assert cli("run", "printing:guarded", "--schedules", 1, "--json") == 0
    assert cli.data["target"] == "printing.py::guarded"
    assert "imported" in cli.err


def test_a_setup_that_fails(cli: Cli) -> None:
    assert cli("run", f"{FILE}::broken_setup") == 2
    assert cli.out == ""
    assert cli.err.splitlines()[-1].endswith("failed: ValueError: no such checkpoint")


def test_a_machine_that_cannot_cover_its_files_is_unknown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(session, "Layer", refused)
    command = ["run", "--watch", str(tmp_path / "out"), "--", "torchrun", "train.py"]
    why = "cannot cover this machine's files: Operation not permitted; racecheck doctor says what launch commands need"
    assert cli(*command) == 3
    assert cli.out == f"UNKNOWN  {why}; a scenario runs without it\n"
    assert cli(*command[:1], "--json", *command[1:]) == 3
    assert json.loads(cli.out)["reasons"] == [f"{why}; a scenario runs without it"]


def test_our_own_bug_is_never_a_fail(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python itself would exit with status 1."""

    def explore(*_: object) -> Report:
        raise KeyError("a rank that is not there")

    monkeypatch.setattr(search, "explore", explore)
    assert cli("run", f"{FILE}::guarded", "--json") == 3
    assert cli.data["verdict"] == "UNKNOWN"
    (reason,) = cli.data["reasons"]
    assert reason == "KeyError: 'a rank that is not there' (this is a bug in racecheck: please report it)"
    assert "Traceback" in cli.err

    monkeypatch.setattr(resolve, "load", explore)
    assert cli("run", f"{FILE}::guarded", "--json") == 3
    assert cli.out == ""
    assert "please report it" in cli.err.splitlines()[-1]


# replay


def test_a_replay_reproduces(cli: Cli) -> None:
    finding = finding_of(cli)
    assert cli("replay", finding, "--times", 3, "--trust") == 1
    assert cli.out.splitlines()[-1] == "Explain: racecheck explain no-file-errors"
    assert re.match(r"FAIL  reproduced 3 of 3\n      seed 0, schedule \d+; 2 ranks, 4 ops\n", cli.out)
    assert re.search(r"mkdir ckpt +EEXIST .*<---", cli.out)
    assert cli("replay", finding, "--times", 2, "--json", "--trust") == 1
    expected = {"times": 2, "reproduced": 2, "diverged": 0, "verdict": "FAIL", "divergence": "", "doubts": []}
    assert cli.data == expected


RACING_VALUES = """
import racecheck

@racecheck.scenario(ranks=2)
def values(rank):
    mine = rank.path / f"{rank.rank}"
    mine.write_text("x" * 10)
    (rank.path / "last").write_text(f"{rank.rank}")
    for number in range(4):
        (rank.path / f"{rank.rank}.{number}").touch()
    if rank.rank == 0 and (rank.path / "last").read_text() == "1":
        raise ValueError("the other one was last")
"""


@pytest.mark.parametrize("target", ["values.py::values", f"{FILE}::racing"])
def test_a_replay_draws_what_the_run_drew(cli: Cli, target: str) -> None:
    """The pair that decides is in the finding: it says which ops the table shows, and marks."""
    Path("values.py").write_text(RACING_VALUES)
    assert cli("run", target) == 1
    drawn = [line for line in cli.out.splitlines() if re.match(r" +(\d+ |\.\.\. )", line)]
    (finding,) = Path(".racecheck").glob("*/*.json")
    assert cli("replay", finding, "--times", 2, "--trust") == 1
    assert [line for line in cli.out.splitlines() if re.match(r" +(\d+ |\.\.\. )", line)] == drawn
    assert len(drawn) > 2


def test_a_replay_that_leaves_the_schedule_says_where(cli: Cli) -> None:
    finding = findings.load(finding_of(cli))
    choices = finding.outcome.schedule
    other = (*choices[:1], replace(choices[1], label="0 rmdir ckpt"), *choices[2:])
    path = findings.save(replace(finding, outcome=replace(finding.outcome, schedule=other)), Path("other"))
    assert cli("replay", path, "--times", 2, "--trust") == 3
    assert cli.out.startswith("UNKNOWN  reproduced 0 of 2; 2 diverged: at choice 1 the schedule takes '0 rmdir ")
    assert cli("replay", path, "--times", 2, "--json", "--trust") == 3
    assert (cli.data["verdict"], cli.data["diverged"]) == ("UNKNOWN", 2)


def test_a_replay_judges_as_the_finding_was_judged(cli: Cli, session: Session) -> None:
    """A test may ask for other invariants than its scenario: here for a function of the module."""
    scenario = resolve.load(f"{FILE}::guarded")
    invariant = sys.modules[scenario.module].nothing_made
    asked = Search(scenario, scenario.world, [invariant], schedules=1, findings=Path("found"))
    finding = search.explore(session, asked).violations[0].finding
    assert finding is not None
    assert cli("replay", finding, "--times", 1, "--trust") == 1
    assert "nothing-made: made ckpt" in cli.out

    unknown = findings.save(replace(findings.load(finding), invariants=("no-such-thing",)), Path("found"))
    assert cli("replay", unknown, "--trust") == 2
    assert "the finding was judged by no-such-thing" in cli.err


def test_a_finding_of_a_scenario_that_has_changed(cli: Cli, tmp_path: Path) -> None:
    """It is compared before it is imported: here it could not even be."""
    file = tmp_path / "changing.py"
    file.write_text(FILE.read_text())
    assert cli("run", "changing.py::racing", "--json") == 1
    finding = cli.data["violations"][0]["finding"]
    del sys.modules["changing"]
    file.write_text("raise SystemExit")
    assert cli("replay", finding) == 2
    assert cli.err == (
        "racecheck: changing.py has changed since the finding was created: create a new one with "
        "racecheck run changing.py::racing, or replay its --constraints with --trust\n"
    )
    file.unlink()
    assert cli("replay", finding) == 2
    assert "no changing.py::racing here" in cli.err


# Wrong usage and input


QUITS = "import sys; sys.exit(0)"
WRONG = [
    ("guess x", "unknown command 'guess'"),
    ("rnu x", "unknown command 'rnu'; did you mean run?"),
    ("torchrun train.py", "torchrun is no command of racecheck; to run it: racecheck run -- torchrun train.py"),
    ("a.py::b", "to explore it: racecheck run a.py::b"),
    ("run", "name a scenario (path/to/file.py::name) or a launch command"),
    ("run a.py::b a.py::c", "name one TARGET, not 2"),
    ("run greedy.py", "greedy.py is a file: write greedy.py::name (racecheck list greedy.py shows the names)"),
    ("run nowhere", "is not a scenario: write path/to/file.py::name or package.module:name"),
    ("run nowhere.py::x", "no such file: nowhere.py"),
    ("run directory::x", "no such file: directory"),
    ("run no.module:x", "no.module: ModuleNotFoundError: No module named 'no'\n"),
    ("run unfit.py::x", "unfit: unknown backend 'mpi'; known: gloo, nccl, auto"),
    ("run torch-rename", "torch-rename is a class: use racecheck gate torch-rename"),
    ("run FILE::nothing", "has no scenario 'nothing'; it has: broken_setup, differing, guarded, named_by_pid, racing"),
    ("run syntax.py::x", "syntax: SyntaxError"),
    ("run needs.py::x", "No module named 'nothere' (needs.py:2)\n"),
    ("run unknown.py::x", "unknown: World has no field 'rank'; fields: ranks, nodes, storage, skew, faults, backend,"),
    ("run misspelt.py::x", "misspelt: AttributeError: 'Scenario' object has no attribute 'recovery'"),
    ("run raises.py::x", "raises: ValueError: two lines (raises.py:1)\n"),
    ("run quits.py::x", "quits.py::x: it calls sys.exit"),
    ("run FILE::racing --ranks 0", "ranks must be from 1 to 1024, not 0"),
    ("run FILE::racing --ranks many", "'many' is not a valid integer"),
    ("run FILE::racing --schedules 0", "0 is not in the range"),
    ("run FILE::racing --strategy dfs", "unknown strategy 'dfs'; known: auto, dpor, portfolio, pct, "),
    ("run FILE::racing --strategy pct:0", "the depth of PCT must be 1 to 9, as in pct:3, not '0'"),
    ("run FILE::racing --strategy pct:many", "the depth of PCT must be 1 to 9, as in pct:3, not 'many'"),
    ("run FILE::racing --strategy pos:2", "unknown strategy 'pos:2'"),
    ("run FILE::racing --seconds 0", "--seconds must be more than 0 and at most 1000000 seconds, not 0.0"),
    ("run FILE::racing --seconds nan", "--seconds must be more than 0 and at most 1000000 seconds, not nan"),
    ("run FILE::racing --storage zfs", "unknown storage 'zfs'; known: incoherent-fuse, nfs, node-local"),
    ("run FILE::racing --nodes 3", "2 ranks do not divide evenly among 3 nodes"),
    ("run FILE::racing --nodes 0", "among 0 nodes"),
    ("run FILE::racing --skew 1", "--skew takes RANK=SECONDS, such as 1=0.5, not '1'"),
    ("run FILE::racing --skew 1=1.2.3", "--skew takes RANK=SECONDS"),
    ("run FILE::racing --skew 1=1 --skew 1=2", "--skew is given twice for rank 1"),
    ("run FILE::sized --size steps=2 --size steps=3", "--size is given twice for steps: leave one out"),
    ("run FILE::racing --size steps", "--size takes NAME=NUMBER, such as steps=3, not 'steps'"),
    ("run FILE::racing --size steps=2", "unknown size 'steps'; the scenario has: none"),
    ("run FILE::sized --size step=2", "unknown size 'step'; the scenario has: steps, shards"),
    ("run FILE::sized --size steps=0", "a size must be a name and a number from 1 to 1000000, not steps=0"),
    ("run FILE::racing --skew 2=1", "skew names rank 2, but the world has 2 ranks"),
    ("run FILE::racing --skew 1=9999999999", "a skew must be at most"),
    ("run FILE::racing --explain -1", "--explain must be at least 0 and at most 1000000 seconds, not -1.0"),
    ("run FILE::racing --explain nan", "--explain must be at least 0 and at most 1000000 seconds, not nan"),
    ("run FILE::racing --timeout 0", "--timeout must be more than 0"),
    ("run FILE::racing --timeout nan", "--timeout must be more than 0"),
    ("run FILE::racing --timeout inf", "at most 1000000 seconds, not inf"),
    ("run FILE::racing --mode free --strategy random", "--strategy has no effect in free mode"),
    ("run FILE::racing --frobnicate", "No such option"),
    ("replay nothing.json", "nothing.json: no such file"),
    ("replay directory", "directory: a directory; name a file"),
    ("replay foreign.json", "foreign.json: not a finding"),
    ("replay syntax.py", "syntax.py: not a finding: not JSON"),
    ("replay foreign.json --times 0", "0 is not in the range"),
    ("list", "no such file or directory: scenarios"),
    ("list nowhere.py", "no such file or directory: nowhere.py"),
    ("list quits.py", "quits.py: it calls sys.exit"),
    ("list raises.py", "raises: ValueError: two lines"),
    ("list leaves.py", "a file terminated the interpreter (exit status 0)"),
]  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("command", "said"), WRONG)
def test_wrong_usage_is_one_line_with_the_hint(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, said: str, as_json: bool
) -> None:
    monkeypatch.setattr(Starting, "lent", lambda *_: pytest.fail("this needs no session"))
    resolve.load(f"{FILE}::racing")
    cli._capsys.readouterr()  # it says that it is imported
    Path("directory").mkdir()
    texts = {"syntax.py": "def (", "raises.py": "raise ValueError('two\\nlines')", "quits.py": QUITS}
    texts["unfit.py"] = "from racecheck import scenario; scenario(backend='mpi')(print)"
    texts["unknown.py"] = "from racecheck import scenario; scenario(rank=2)(print)"
    texts["misspelt.py"] = "import racecheck; racecheck.scenario()(lambda rank: None).recovery(print)"
    texts["needs.py"] = "import os\nimport nothere\n"
    texts |= {"leaves.py": "import os; os._exit(0)", "foreign.json": "{}"}
    for name, text in texts.items():
        Path(name).write_text(text)
    arguments = command.replace("FILE", str(FILE)).split()
    cli_out = cli(*arguments, *(["--json"] if as_json and arguments else []))
    assert cli_out == 2
    assert cli.out == ""
    assert cli.err.count("\n") == 1
    assert cli.err.startswith("racecheck: ")
    assert said in cli.err


def test_an_unwritable_place_for_findings_is_reported_before_the_search(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("RACECHECK_FINDINGS", "file/findings")
    monkeypatch.setattr(Starting, "lent", lambda *_: pytest.fail("this needs no session"))
    assert cli("run", f"{FILE}::racing") == 2
    assert re.search(r"cannot write findings to .*/file/findings: set RACECHECK_FINDINGS", cli.err)


# list


def test_list_shows_what_scenarios_document(cli: Cli) -> None:
    assert cli("list", FILE, "--json") == 0
    found = {each["target"].rpartition("::")[2]: each for each in cli.data["scenarios"]}
    assert list(found) == ["racing", "guarded", "differing", "raising", "sized", "named_by_pid", "broken_setup"]
    racing = {"report": "example/repo#1", "expected": "FAIL", "invariant": "no-file-errors"}
    assert found["racing"] == {"target": f"{FILE}::racing", **racing}
    assert found["guarded"]["expected"] == "PASS"

    assert cli("list", FILE) == 0
    heads, first, *_ = cli.out.splitlines()
    assert heads.split() == ["target", "expected", "invariant", "report"]
    assert first.split() == [f"{FILE}::racing", "FAIL", "no-file-errors", "example/repo#1"]


def test_list_looks_through_a_directory_for_what_may_be_scenarios(cli: Cli, tmp_path: Path) -> None:
    """Files that do not speak of racecheck are not imported: they could do anything."""
    for name in ("scenarios/b.py", "scenarios/deep/a.py", "scenarios/.venv/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FILE.read_text())
    for name in ("scenarios/conftest.py", "scenarios/setup.py"):
        (tmp_path / name).write_text(QUITS)
    assert cli("list", "--json") == 0
    racing = [each["target"] for each in cli.data["scenarios"] if each["target"].endswith("::racing")]
    assert racing == ["scenarios/b.py::racing", "scenarios/deep/a.py::racing"]


def test_list_shows_the_others_and_why_a_file_does_not_import(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "needy.py").write_text("import racecheck, there_is_no_such_framework\n")
    (tmp_path / "scenarios" / "savers.py").write_text(FILE.read_text())
    assert cli("list") == 0
    assert "scenarios/savers.py::guarded" in cli.out
    (line,) = (each for each in cli.out.splitlines() if "needy" in each)
    assert line.startswith("scenarios/needy.py  not listed: ")
    assert line.endswith("No module named 'there_is_no_such_framework' (scenarios/needy.py:1)")
    assert cli("list", "--json") == 0
    assert [each["file"] for each in cli.data["broken"]] == ["scenarios/needy.py"]
    assert cli("list", "scenarios/needy.py") == 2, "a file that is named has to import"


def test_list_of_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    assert cli("list", "--json") == 0
    assert cli.data == {"scenarios": [], "broken": []}
    assert cli("list") == 0
    assert (cli.out, cli.err) == ("", "racecheck: no scenarios in scenarios\n")


# What only a process of its own shows


def test_the_process_of_the_command_line_imports_no_torch() -> None:
    """Not even if scenarios do: guarded imports it in its ranks, and the file that is listed at its top."""
    Path("greedy.py").write_text("import torch\n" + FILE.read_text())
    code = "import sys; from racecheck.frontends.cli.main import main; "
    code += "print([main(each.split()) for each in sys.argv[1:]])"
    code += "; print([each for each in sys.modules if each.startswith('torch')])"
    commands = (f"run {FILE}::guarded --schedules 1", "list greedy.py", "doctor")
    done = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["[0, 0, 0]", "[]"]


def test_interrupted_in_its_search_it_shows_what_it_has_and_leaves_nothing(tmp_path: Path) -> None:
    """More runs than it takes to warm up are under way or over."""
    runs = tmp_path / "runs"
    process = _run_forever(f"{FILE}::guarded", runs)
    wait(process, lambda: any(int(path.name) >= 20 for path in runs.glob("*/output/[0-9]*")))
    out, err = _interrupt(process, runs)
    assert re.match(r"UNKNOWN  after (\d+) of 1000000 schedules\n +interrupted after \1 of 1000000 schedules\n", out)
    assert "interrupted" not in err


LABYRINTH = """
import os
from racecheck import scenario

@scenario(ranks=3)
def endless(rank):
    if rank.world_size < 3:
        open(os.environ["SEEN"], "w").close()
        while True: pass
    (rank.path / "ckpt").mkdir()
"""
"""A failure whose explanation does not end."""


@pytest.mark.parametrize(("number", "as_json"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_interrupted_in_its_explanation_it_shows_what_it_has(tmp_path: Path, number: int, as_json: bool) -> None:
    runs, seen = tmp_path / "runs", tmp_path / "seen"
    Path("labyrinth.py").write_text(LABYRINTH)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "run", "labyrinth.py::endless", *(["--json"] if as_json else [])],
        env={**os.environ, "RACECHECK_RUNS": str(runs), "SEEN": str(seen)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = "" if as_json else "".join(process.stdout.readline() for _ in range(4))
    wait(process, seen.exists)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    if as_json:
        data = json.loads(out)
        assert (data["verdict"], data["explained"]) == ("FAIL", False)
        finding = data["violations"][0]["finding"]
    else:
        head, _, _, where = first.splitlines()
        assert head.startswith("FAIL  no-file-errors: FileExistsError on rank "), "at once"
        finding = where.split()[1]
        assert "\nLeft out of the explanation: a smaller world, fewer switches, " in out
        assert " the fewest orderings (interrupted).\n" in out
    assert findings.load(Path(finding)).outcome.world.ranks == 3
    assert _processes_below(runs) == []


def test_interrupted_before_its_search_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """The rank that computes forever does so in the first run that warms up."""
    runs = tmp_path / "runs"
    Path("endless.py").write_text("""
from racecheck import scenario
@scenario(ranks=1)
def endless(rank):
    (rank.path / "ckpt").mkdir()
    while True: pass
""")
    process = _run_forever("endless.py::endless", runs)
    wait(process, lambda: any(runs.glob("*/disk/ckpt")))
    out, err = _interrupt(process, runs)
    assert out == ""
    assert err.splitlines()[-1] == "racecheck: interrupted after 0 of 1000000 schedules, 0 distinct"


def _run_forever(target: str, runs: Path) -> subprocess.Popen[str]:
    options = ["--strategy", "random", "--schedules", "1000000"]
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "run", target, *options],
        env={**os.environ, "RACECHECK_RUNS": str(runs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _interrupt(process: subprocess.Popen[str], runs: Path) -> tuple[str, str]:
    """Ctrl-C; returns what both streams have.  Nothing may be left."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" not in err
    assert [path for path in runs.rglob("*") if path.name != "racecheck-0000"] == []
    assert _processes_below(runs) == []
    return out, err


def _processes_below(runs: Path) -> list[str]:
    """The processes that were started for a session there: their environment says so."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"RACECHECK_SLOT={runs}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found


def test_a_reader_that_has_gone_does_not_change_the_status() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*RACECHECK, "list", str(FILE)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert b"Broken pipe" not in done.stderr


# Text


def test_the_run_is_on_a_line_after_the_headline() -> None:
    lines = search_text(report(), 9, Page(width=80)).splitlines()
    assert lines[:2] == ["FAIL  no-file-errors: x", "      seed 0, schedule 1 of 9; 2 ranks, 0 ops"]


def test_a_run_of_which_not_all_smaller_ones_were_tried_is_minimised_in_part() -> None:
    (found,) = report().violations
    assert found.outcome is not None
    explained = Explanation(found.outcome, found.outcome, found.violation, None, None, 3)
    for left_out, said in (((SWITCHES, PAIR), "minimised in part: "), ((PAIR,), "minimised: ")):
        text = search_text(report(explanation=replace(explained, left_out=left_out)), 9, Page())
        assert f"\n      {said}0 ops, 2 ranks, 0 switches\n" in text


def test_the_ops_of_a_recovery_that_failed_are_shown() -> None:
    apart = pictures.node_local()
    found = [Found(each, apart.outcome) for each in apart.judgement.violations]
    text = search_text(report(violations=found, outcome=apart.outcome), 9, Page())
    assert "\n\nThe recovery:\n      rank 0" in text
    assert re.search(r"\n   1  \. +open ckpt/.metadata +ENOENT +project/train.py:10 save\n", text)
    assert "open ckpt/1" not in text, "the run itself went well"
    assert "open ckpt/1" in search_text(report(violations=found, outcome=apart.outcome), 9, Page(full=True))


COMPRESSED = """
import zlib, racecheck

@racecheck.scenario()
def named(rank):
    (rank.path / f"meta{rank.rank}").write_bytes(zlib.compress(str(rank.path).encode()))
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()
"""


def test_a_path_that_is_compressed_is_the_same_in_a_replay(
    alone: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACECHECK_RUNS", str(tmp_path))
    Path("compressed.py").write_text(COMPRESSED)
    beside = Slot(tmp_path)
    assert alone("run", "compressed.py::named", "--explain", 0, "--json") == 1
    finding = alone.data["violations"][0]["finding"]
    beside.close()
    assert alone("replay", finding, "--times", 2, "--json") == 1
    assert alone.data["reproduced"] == 2
    beside = Slot(tmp_path, 1)
    assert alone("replay", finding, "--times", 2, "--json") == 3
    assert (alone.data["reproduced"], alone.data["diverged"]) == (0, 2)
    assert "the path of the finding has the number 0001, which was in use: try again later" in alone.err
    beside.close()


UNJUDGED = """
import os, racecheck

def mine(outcome):
    if "RAISES" in os.environ:
        raise ValueError("cannot say")
    yield racecheck.Violation("mine", "it is there", (0,))

@racecheck.scenario(ranks=1, invariants=[mine])
def made(rank):
    (rank.path / "ckpt").mkdir()
"""


def test_a_replay_that_cannot_be_judged_is_no_pass(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("unjudged.py").write_text(UNJUDGED)
    assert cli("run", "unjudged.py::made", "--explain", 0) == 1
    finding = re.findall(r"Finding: (\S+)", cli.out)[0]
    assert cli("replay", finding, "--times", 2) == 1
    monkeypatch.setenv("RAISES", "1")
    assert cli("replay", finding, "--times", 2) == 3
    assert cli.out.startswith("UNKNOWN  reproduced 0 of 2\n")
    assert "\n      mine could not judge the run: ValueError: cannot say\n" in cli.out


SELDOM_JUDGED = """
import racecheck

def seldom(outcome):
    if outcome.ops[0].rank == 0:
        raise LookupError("rank 0 was first")
    return iter(())

@racecheck.scenario(invariants=[seldom, racecheck.no_file_errors])
def race(rank):
    if rank.rank == 0:
        (rank.path / "ckpt").mkdir()
    else:
        (rank.path / "ckpt" / "shard").{how}

@racecheck.scenario(invariants=[seldom, racecheck.no_file_errors], faults=["EIO on unlink"])
def faulty(rank):
    race(rank)
"""


def test_an_invariant_that_cannot_judge_a_run_does_not_end_the_search(cli: Cli) -> None:
    Path("seldom.py").write_text(SELDOM_JUDGED.replace("{how}", "exists()"))
    assert cli("run", "seldom.py::race", "--json") == 3
    report = json.loads(cli.out)
    assert report["schedules"] == 2, "both orders"
    assert report["reasons"] == ["seldom could not judge the run: LookupError: rank 0 was first (in 1 of 2 runs)"]
    Path("often.py").write_text(SELDOM_JUDGED.replace("{how}", "mkdir()"))
    assert cli("run", "often.py::race", "--json", "--strategy", "random") == 1
    report = json.loads(cli.out)
    assert report["schedules"] > 1, "the first run could not be judged by all, and did not fail"
    assert [each["invariant"] for each in report["violations"]] == ["no-file-errors"]


UNCONTROLLED = """
import mmap
import racecheck

@racecheck.scenario(faults=["EIO on unlink"])
def outside(rank):
    (rank.path / "shared").touch()
    write(rank.path / f"f{rank.rank}")

@racecheck.scenario(ranks=2)
def races(rank):
    write(rank.path / f"f{rank.rank}")
    if rank.rank == 0:
        (rank.path / "ckpt").mkdir()
    elif not (rank.path / "ckpt").exists():
        raise ValueError("missed")

def write(path):
    path.write_bytes(bytes(4096))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        mapped[0] = 1
"""


def test_what_is_not_controlled_does_not_end_a_search(cli: Cli) -> None:
    Path("cut_search.py").write_text(UNCONTROLLED)
    assert cli("run", "cut_search.py::outside", "--json") == 3
    report = json.loads(cli.out)
    assert report["schedules"] > 1
    known, reached = report["reasons"]
    assert known.startswith("not controlled: ")
    assert reached == "never reached: EIO on unlink"
    assert cli("run", "cut_search.py::races", "--json") == 1
    report = json.loads(cli.out)
    assert report["schedules"] > 1
    assert report["reasons"] == [known]


def test_a_search_that_could_not_continue_says_nothing_of_faults_that_were_not_reached(cli: Cli) -> None:
    assert cli("run", f"{FILE}::differing", "--fault", "EIO on unlink", "--json") == 3
    assert not [each for each in json.loads(cli.out)["reasons"] if "never reached" in each]


def test_names_that_are_no_text_can_be_printed() -> None:
    text = search_text(report(message="ckpt/\udcff\x1b[31m\n"), 9, Page())
    assert r"ckpt/\xff\x1b[31m\n" in text
    text.encode()


def test_reasons_of_a_failure_are_shown_too() -> None:
    """What was not under control may bear on how to read it."""
    doubtful = report(reasons=["not controlled: a second thread of rank 0 made calls (3 times)"])
    lines = search_text(doubtful, 9, Page()).splitlines()
    assert lines[2] == "      not controlled: a second thread of rank 0 made calls (3 times)"
    assert lines[3] == "      -> keep these calls out of the scenario, or out of the watched directory"


@pytest.mark.parametrize(("verdict", "advised"), [(Verdict.FAIL, False), (Verdict.UNKNOWN, True)])
def test_a_failed_rank_gets_no_advice_to_declare_saves(verdict: Verdict, advised: bool) -> None:
    silent = report(
        verdict=verdict, reasons=["liveness could not judge the run: LookupError: no save follows the faults"]
    )
    assert ("-> call rank.saved" in search_text(silent, 9, Page())) is advised
    assert ("could not judge" in search_text(silent, 9, Page())) is advised


@pytest.mark.parametrize(
    ("verdict", "reason", "name"),
    [
        (Verdict.UNKNOWN, "not controlled: a kernel timer (real time) (3 times)", "'a kernel timer (real time)'"),
        (Verdict.UNKNOWN, "rank 1 did not end: no progress for 3 s: no op, no exit", "'did not end'"),
        (Verdict.UNKNOWN, "two runs of the same schedule differ: step 2", "'two runs of the same schedule differ'"),
        (Verdict.UNKNOWN, "the zygote or guardian died", ""),
        (Verdict.FAIL, "", "no-file-errors"),
        (Verdict.PASS, "", ""),
    ],
)
def test_a_report_ends_with_what_explains_it(verdict: Verdict, reason: str, name: str) -> None:
    found = Found(Violation("no-file-errors", "m"), None)
    violations = [found] if verdict is Verdict.FAIL else []
    text = search_text(report(verdict=verdict, reasons=[reason] if reason else [], violations=violations), 9, Page())
    last = text.splitlines()[-1]
    assert last.startswith("Explain: racecheck explain ") is bool(name)
    assert not name or last == f"Explain: racecheck explain {name}"


def test_colour_is_on_the_verdict_alone() -> None:
    plain = search_text(report(), 9, Page())
    coloured = search_text(report(), 9, Page(colour=True))
    assert coloured == plain.replace("FAIL", "\x1b[1;31mFAIL\x1b[0m", 1)


def test_a_finding_elsewhere_is_shown_with_its_whole_path(tmp_path: Path) -> None:
    found = Found(Violation("i", "m"), None, Path("/elsewhere/f.json"))
    text = search_text(report(violations=[found]), 9, Page())
    assert text.endswith(
        "Finding: /elsewhere/f.json\n\nReplay:  racecheck replay /elsewhere/f.json\n"
        "Picture: racecheck report /elsewhere/f.json"
    )
