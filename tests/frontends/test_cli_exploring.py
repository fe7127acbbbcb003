"""The command line of searches: how far they go, what explains a failure, what one run says of others."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest

from racecheck.explore import findings
from racecheck.explore.recovery.runs import CrashedRuns
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Size
from racecheck.report import results
from tests.support.command_line import FILE, RACECHECK, Cli, finding_of

pytestmark = pytest.mark.usefixtures("project")


def test_a_failure_is_made_small_and_explained(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--ranks", 4, "--explain", 600) == 1
    assert cli.out.startswith("FAIL  no-file-errors: FileExistsError on rank ")
    assert "\n      minimised: 6 -> 4 ops, 4 -> 2 ranks, 1 switch\n" in cli.out
    assert "Left out of the explanation" not in cli.out
    at = r" \(step \d, line \d+\)"
    said = rf"It passes if rank \d's mkdir ckpt{at} comes before rank \d's stat ckpt{at}, as one run did\."
    assert re.search(said, " ".join(cli.out.split()))
    finding = findings.load(Path(re.findall(r"Finding: (\S+)", cli.out)[0]))
    assert len([*Path(".racecheck").glob("racing-*/*")]) == 1, "the path that was announced holds the least run now"
    assert finding.outcome.world.ranks == 2
    assert len(finding.pair) == 2
    assert 1 <= len(finding.constraints) <= 2


def test_a_run_that_passed_is_shown_too(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--show-passing") == 1
    fails, passes = cli.out.split("\nA run that passed:\n")
    assert "EEXIST" in fails
    assert "EEXIST" not in passes.partition("Replay:")[0]
    assert len(re.findall(r"(?m)^rank \d  returned$", passes)) == 2
    assert cli("run", f"{FILE}::guarded", "--show-passing", "--schedules", 20) == 0
    assert re.search(r"\nA run that passed:\n      rank 0 .*\n   1  ", cli.out)


def test_a_failure_is_made_small_in_sizes_and_faults_too(cli: Cli) -> None:
    """It takes a second step; that is the first of two."""
    assert cli("run", f"{FILE}::sized", "--schedules", 300, "--explain", 600) == 1
    small = ", 3 -> 2 ranks, steps 4 -> 2, shards 3 -> 1, 66 -> 1 switch, without slow on write seconds=1"
    assert small in cli.out
    finding = re.findall(r"Finding: (\S+)", cli.out)[0]
    assert findings.load(Path(finding)).outcome.world.sizes == (Size("steps", 2), Size("shards", 1))
    assert cli("replay", finding, "--times", 3, "--json", "--trust") == 1
    assert cli.data["reproduced"] == 3
    assert cli("run", f"{FILE}::sized", "--size", "steps=1", "--strategy", "round-robin", "--json") == 0
    assert cli.data["world"]["sizes"] == {"steps": 1, "shards": 3}


@pytest.mark.parametrize("mode", ["controlled", "free"])
def test_a_size_that_there_is_not_is_wrong_usage(cli: Cli, mode: str) -> None:
    Path(f"missized_{mode}.py").write_text("""
import racecheck

@racecheck.scenario(ranks=2, sizes={"steps": 4, "shards": 3})
def missized(rank):
    (rank.path / "x").write_text("x" * rank.sizes["step"])
""")
    assert cli("run", f"missized_{mode}.py::missized", "--mode", mode) == 2
    assert cli.err == "racecheck: the scenario reads size 'step', but its world has: steps, shards\n"


def test_too_little_time_is_enough_for_one_schedule(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--seconds", 1e-6, "--strategy", "dpor", "--json") == 0
    assert cli.data["schedules"] == 1


def test_without_an_explanation(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--ranks", 4, "--explain", 0) == 1
    assert "minimised" not in cli.out
    finding = findings.load(Path(re.findall(r"Finding: (\S+)", cli.out)[0]))
    assert finding.outcome.world.ranks == 4
    assert cli("run", f"{FILE}::racing", "--ranks", 4, "--explain", 0, "--json") == 1
    assert (cli.data["explained"], cli.data["explanation"]) == (False, None)


def test_the_time_of_a_search_is_that_of_its_explanation_too(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--strategy", "round-robin", "--seconds", 1e-6) == 1
    assert "\nLeft out of the explanation: all of it (the time of the search was up).\n" in cli.out


def test_what_takes_longer_than_allowed_is_left_out(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--ranks", 4, "--explain", 1e-6) == 1
    steps = "a smaller world, fewer switches, the critical pair, the fewest orderings"
    assert f"\nLeft out of the explanation: {steps} (1e-06 seconds were too few).\n" in cli.out


def test_the_explanation_as_data(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--json") == 1
    assert cli.data["explained"]
    data = cli.data["explanation"]
    assert data["found"] == {"ranks": 2, "ops": 4, "sizes": {}, "faults": []}
    assert data["fails_with_them"] == [20, 20]
    assert len(data["pair"]) == 2
    assert all(" before " in each for each in data["constraints"])


def test_constraints_are_replayed_also_in_code_that_has_changed(cli: Cli) -> None:
    source = Path("evolving.py")
    source.write_text(FILE.read_text())
    assert cli("run", "evolving.py::racing", "--json") == 1
    finding = cli.data["violations"][0]["finding"]
    line = "def racing(rank: Rank) -> None:\n"
    source.write_text(source.read_text().replace(line, f"{line}    (rank.path / 'new').touch()\n"))
    assert cli("replay", finding) == 2
    assert "or replay its --constraints" in cli.err
    assert cli("replay", finding, "--constraints", "--times", 5, "--json", "--trust") == 1
    assert (cli.data["reproduced"], cli.data["times"]) == (5, 5)


def test_a_failure_before_the_op_of_a_constraint_counts(cli: Cli) -> None:
    """Without the look both make it, so one fails whatever the order.  Each replay is in a process of its own, which
    imports the code as it is then.
    """
    source = Path("blind.py")
    source.write_text(FILE.read_text())
    assert cli("run", "blind.py::racing", "--json") == 1
    replay = [*RACECHECK, "replay", cli.data["violations"][0]["finding"], "--constraints", "--times", "3", "--trust"]
    looks = '    if not (rank.path / "ckpt").exists():\n        (rank.path / "ckpt").mkdir()\n'
    makes = '    (rank.path / "ckpt").mkdir()\n'
    assert looks in source.read_text()
    source.write_text(source.read_text().replace(looks, makes))
    done = subprocess.run(replay, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAIL  reproduced 3 of 3\n")
    source.write_text(source.read_text().replace(makes, '    (rank.path / "other").touch()\n'))
    done = subprocess.run(replay, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "never happens; create the finding again" in done.stderr


def test_a_constraint_of_what_never_happens_is_one_line(cli: Cli) -> None:
    path = finding_of(cli)
    path.write_text(path.read_text().replace('"call": "mkdir", "paths"', '"call": "rmdir", "paths"'))
    assert cli("replay", path, "--constraints", "--times", 2, "--trust") == 2
    said, wrong = cli.err.splitlines()
    assert said == f"racecheck: replay will import {FILE}"
    assert re.search(r"rmdir ckpt never happens; create the finding again with racecheck run \S+::racing$", wrong)


def test_without_constraints_there_is_nothing_to_keep(cli: Cli) -> None:
    path = finding_of(cli)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "constraints": []}))
    assert cli("replay", path, "--constraints") == 2
    assert "has no constraints: create a new finding with racecheck run" in cli.err


def test_each_way_in_which_runs_end(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--keep-going", "--strategy", "dpor") == 1
    assert "The runs had 3 distinct results:" in cli.out
    assert len(re.findall(r"^ +\d+ no-file-errors: FileExistsError on rank \d: ckpt$", cli.out, re.MULTILINE)) == 2
    assert cli("run", f"{FILE}::racing", "--keep-going", "--strategy", "dpor", "--json") == 1
    assert cli.data["claim"] == "EXHAUSTED: 4 traces, 0 redundant"
    assert cli.data["exhaustive"]
    assert sum(each["runs"] for each in cli.data["endings"]) == cli.data["schedules"] == 4


SIGNED = """
from racecheck import Rank, scenario


@scenario(ranks=2)
def signed(rank: Rank) -> None:
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()
    (rank.path / "last").write_text(str(rank.rank))
"""


def test_ways_that_differ_in_nothing_that_was_asked_about_are_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "signed.py").write_text(SIGNED)
    target = f"{tmp_path / 'signed.py'}::signed"
    assert cli("run", target, "--keep-going", "--strategy", "dpor") == 1
    ways = re.findall(
        r"^ +(\d+) ((?:no violation|no-file-errors).*)$", cli.out.partition("The runs had")[2], re.MULTILINE
    )
    assert f"The runs had {len(ways)} distinct results:" in cli.out
    assert len({text for _, text in ways}) == len(ways) == 3
    assert cli("run", target, "--keep-going", "--strategy", "dpor", "--json") == 1
    assert len(cli.data["endings"]) > 3
    assert sum(int(runs) for runs, _ in ways) == cli.data["schedules"]


def test_a_search_continues(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded", "--schedules", 1) == 0
    assert "; no violation; INCOMPLETE: 1 branch left to try, about 50% done; 1 trace, 0 redundant\n" in cli.out
    kept = re.findall(r"^Resume:  racecheck run \S+::guarded --resume (\S+)", cli.out, re.MULTILINE)[0]
    assert cli("run", f"{FILE}::guarded", "--resume", kept) == 0
    assert "PASS  EXHAUSTED: 2 traces, 0 redundant" in cli.out
    assert "Resume" not in cli.out


def test_a_search_continues_only_with_its_own_settings(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded", "--schedules", 1, "--json") == 0
    kept = cli.data["resume"]
    for wrong, says in (
        (["--ranks", 3], "is a search in another world: drop --resume"),
        (["--seed", 1], "is a search with another seed: drop --resume"),
        (["--strategy", "random"], "only auto and dpor can resume a search, not random"),
    ):
        assert cli("run", f"{FILE}::guarded", "--resume", kept, *wrong) == 2
        assert says in cli.err
        assert cli.err.count("\n") == 1


def test_seconds_end_a_search(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded", "--strategy", "random", "--schedules", 10**6, "--seconds", 0.5, "--json") == 0
    assert 1 <= cli.data["schedules"] < 10**4


def test_one_passing_run_shows_a_race(cli: Cli) -> None:
    assert cli("predict", f"{FILE}::racing") == 1
    assert cli.out.splitlines()[-1] == "Explain: racecheck explain no-file-errors"
    assert "confirmed: the other order violates no-file-errors" in cli.out
    finding = re.findall(r"^Replay:  racecheck replay (\S+)", cli.out, re.MULTILINE)[0]
    assert cli("replay", finding, "--times", 2, "--json", "--trust") == 1
    assert cli.data["reproduced"] == 2


def test_a_harmless_race(cli: Cli) -> None:
    assert cli("predict", f"{FILE}::guarded", "--json") == 0
    assert [each["verdict"] for each in cli.data["races"]] == ["harmless"]


def test_nothing_is_predicted_from_a_run_that_fails(cli: Cli) -> None:
    assert cli("predict", f"{FILE}::differing") == 3
    assert "the first run does not pass" in cli.out


def test_a_failure_that_was_found_before_a_cut_stays_found(cli: Cli) -> None:
    """The rest of the search passes: only what is in the file says that it fails."""
    assert cli("run", f"{FILE}::racing", "--keep-going", "--strategy", "dpor", "--schedules", 2, "--json") == 1
    first, before = cli.data, [(each["message"], each["finding"]) for each in cli.data["violations"]]
    assert first["resume"]
    again = ("run", f"{FILE}::racing", "--resume", first["resume"])
    assert cli(*again) == 1
    assert f"FAIL  no-file-errors: {before[0][0]}" in cli.out
    assert f"Replay:  racecheck replay {before[0][1]}" in cli.out
    assert cli(*again, "--keep-going", "--strategy", "dpor", "--json") == 1
    assert (cli.data["schedules"], cli.data["claim"]) == (4, "EXHAUSTED: 4 traces, 0 redundant")
    assert before[0] in [(each["message"], each["finding"]) for each in cli.data["violations"]]
    assert cli.data["distinct_schedules"] == 4


WAITS = """
import torch.distributed as dist

from racecheck import Rank, scenario


@scenario(ranks=1)
def waits(rank: Rank) -> None:
    dist.barrier(async_op=True).is_completed()
"""


def test_a_doubt_stands_where_no_choice_was_to_be_made(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    assert cli("run", f"{tmp_path / 'waits.py'}::waits", "--json") == 0
    assert not cli.data["exhaustive"]
    assert cli.data["claim"].startswith("INCOMPLETE: ")
    assert any("Work.is_completed()" in each for each in cli.data["doubts"])


def test_the_data_has_the_same_keys_whatever_the_verdict(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("run", f"{FILE}::guarded", "--json") == 0
    passed = cli.data
    assert {"claim", "conditions", "doubts"} <= passed.keys()
    assert cli("run", f"{FILE}::racing", "--json") == 1
    assert cli.data.keys() == passed.keys()
    monkeypatch.setattr(CrashedRuns, "recorder", cannot)
    assert cli("run", f"{FILE}::guarded", "--json") == 3
    assert cli.data.keys() == passed.keys()
    assert (cli.data["claim"], cli.data["reasons"]) == ("no more memory", ["no more memory"])


def cannot(_: object) -> None:
    raise CannotRun("no more memory")


def test_what_was_found_stays_found_where_the_search_cannot_continue(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = CrashedRuns.recorder, itertools.count()
    monkeypatch.setattr(CrashedRuns, "recorder", lambda runs: real(runs) if next(calls) < 3 else cannot(runs))
    assert cli("run", f"{FILE}::racing", "--keep-going", "--strategy", "dpor", "--json") == 1
    assert (cli.data["verdict"], cli.data["reasons"]) == ("FAIL", ["no more memory"])
    assert "no more memory" in cli.data["doubts"]


@pytest.mark.parametrize(("parts", "below"), [(1, 0), (8, 0), (9, 2), (12, 5)])
def test_the_rest_of_a_long_claim_is_below_its_line(parts: int, below: int) -> None:
    claim = "; ".join(f"condition {number:02d} of a claim" for number in range(parts))
    line, rest = results._capped(claim)
    assert len(line) <= 200
    assert len(rest) == below
    assert "; ".join([*line.split("; ")[: parts - below], *rest]) == claim
    assert line.endswith(f"; {below} more below") is bool(below)
