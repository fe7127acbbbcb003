"""What a finding says beside its run: read from real searches."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from racecheck.explore import findings
from racecheck.explore.evidence import Evidence, Source, sources
from racecheck.invariants import DEFAULT, judge
from racecheck.model.nouns import Frame, Verdict
from tests.support.command_line import Cli

pytestmark = pytest.mark.usefixtures("project")

RACE = """
import racecheck

@racecheck.scenario(ranks=2)
def racing(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()  # only one rank may
"""

EMPTY = """
import racecheck

def nothing_empty_is_read(outcome):
    read = [each.value for each in outcome.results if isinstance(each, racecheck.Returned)]
    if "" in read:
        yield racecheck.Violation("nothing-empty-is-read", "a rank read nothing")

@racecheck.scenario(ranks=2, invariants=[nothing_empty_is_read])
def reading(rank):
    if rank.rank == 1:
        return (rank.path / "latest").read_text()
    (rank.path / "latest").touch()
"""

STALE = """
import racecheck, torch.distributed as dist

@racecheck.scenario(ranks=2, nodes=2, storage="nfs", invariants=[racecheck.latest_consistency])
def looking(rank):
    latest = rank.path / "latest"
    if rank.rank == 1:
        latest.exists()
    else:
        (rank.path / "latest.tmp").write_text("step-1")
        (rank.path / "latest.tmp").replace(latest)
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "log").mkdir()
    else:
        (rank.path / "log").exists()
        latest.exists()
"""

KILLED = """
import racecheck

def resumes(outcome):
    if any("half" in each for each in outcome.disk):
        yield racecheck.Violation("resumes", "a part is left")

@racecheck.scenario(ranks=2, faults=["kill on rename"], invariants=[resumes])
def saving(rank):
    (rank.path / f"half{rank.rank}").touch()
    (rank.path / "shared").exists()
    (rank.path / f"half{rank.rank}").rename(rank.path / f"whole{rank.rank}")
    (rank.path / "shared").mkdir(exist_ok=True)
"""

HIT = """
import racecheck

def every_rank_returns(outcome):
    for rank, each in enumerate(outcome.results):
        if not isinstance(each, racecheck.Returned):
            yield racecheck.Violation("every-rank-returns", "a rank failed", (rank,))

@racecheck.scenario(ranks=2, faults=["EIO on write nth=each"], invariants=[every_rank_returns])
def writing(rank):
    if rank.rank == 0:
        (rank.path / "other").mkdir()
    else:
        (rank.path / "other").exists()
        (rank.path / "file").write_text("1")
"""

LONG = """
import racecheck

@racecheck.scenario(ranks=2)
def writing(rank):
    if rank.rank == 0:
        (rank.path / "file").write_bytes(bytes(8192))
    elif (rank.path / "file").exists():
        assert len((rank.path / "file").read_bytes()) == 8192
"""

CRASH = """
import os, racecheck

@racecheck.scenario(ranks=1, faults=["crash"], invariants=[racecheck.durable_after_ack])
def publish(rank):
    rank.saved({"w": 1}, step=1)
    (rank.path / "new").write_text("1")
    os.replace(rank.path / "new", rank.path / "model")
    rank.acked(step=1)

@publish.recover
def resume(rank):
    if (rank.path / "model").exists():
        rank.loaded({"w": 1}, step=int((rank.path / "model").read_text()))
"""


def evidence_of(cli: Cli, file: str, text: str, name: str, *more: str) -> tuple[findings.Finding, Evidence]:
    Path(file).write_text(text)
    assert cli("run", f"{file}::{name}", *more) == 1, cli.out + cli.err
    found = findings.load(Path(re.findall(r"Finding: (\S+)", cli.out)[0]))
    assert found.evidence is not None
    return found, found.evidence


def test_the_finding_of_a_race_has_the_order_that_passes_and_the_lines(cli: Cli) -> None:
    found, evidence = evidence_of(cli, "racing.py", RACE, "racing")
    assert evidence.passing is not None
    assert judge(evidence.passing, DEFAULT).verdict is Verdict.PASS
    assert evidence.passing.fired == found.outcome.fired
    assert (evidence.failed, evidence.completions) == (20, 20)
    assert evidence.before is not None
    assert evidence.before.ops >= len(found.outcome.ops)
    source = evidence.sources[str(Path("racing.py").resolve())]
    assert source.digest == hashlib.sha256(RACE.encode()).hexdigest()
    assert source.lines[7] == '        (rank.path / "ckpt").mkdir()  # only one rank may'
    assert set(source.lines) == {4, 5, 6, 7}, "only what is around the lines of the run"


def test_an_order_in_which_a_rank_fails_does_not_pass(cli: Cli) -> None:
    found, evidence = evidence_of(cli, "reading.py", EMPTY, "reading")
    assert (found.pair, evidence.passing) == ((), None)
    assert "No pair decides: of 1 pair in the other order (one run each) 1 failed in another way." in cli.out


def test_a_stale_answer_stays_stale_in_the_other_order(cli: Cli) -> None:
    found, _ = evidence_of(cli, "stale.py", STALE, "looking")
    assert [found.outcome.ops[each].label for each in found.pair] != ["0 mkdir log", "1 stat log"]
    said = " ".join(cli.out.split())
    assert "It passes if rank 0's rename latest.tmp -> latest (step" in said
    assert "comes before rank 1's stat latest (step 1, line" in said


def test_a_fault_stays_with_its_op_in_the_other_order(cli: Cli) -> None:
    found, _ = evidence_of(cli, "hit.py", HIT, "writing")
    assert (found.pair, sum(found.outcome.fired)) == ((), 1)
    assert "No pair decides: of 1 pair in the other order (one run each) 1 failed in the same way." in cli.out


def test_of_killed_ranks_no_pair_is_looked_for(cli: Cli) -> None:
    found, _ = evidence_of(cli, "killed.py", KILLED, "saving")
    assert found.pair == ()
    assert "No pair was looked for: a fault killed ranks." in cli.out


def test_a_proof_names_the_calls_that_it_took_for_one_step(cli: Cli) -> None:
    _, evidence = evidence_of(cli, "long.py", LONG, "writing")
    assert evidence.proof.endswith("(each call is one step)")


def test_a_proof_of_orderings_is_said_and_kept(cli: Cli) -> None:
    _, evidence = evidence_of(cli, "proven.py", RACE, "racing")
    assert evidence.proof == "1 of all 4 interleavings keeps them, and it fails"
    assert f"With these orderings 20 of 20 random schedules failed; {evidence.proof}:" in cli.out


def test_a_finding_that_was_not_explained_has_no_order_that_passes(cli: Cli) -> None:
    _, evidence = evidence_of(cli, "unexplained.py", RACE, "racing", "--explain", "0")
    assert (evidence.passing, evidence.before, evidence.completions) == (None, None, 0)
    assert evidence.sources


def test_the_finding_of_a_crash_has_the_repairs_that_were_tried(cli: Cli) -> None:
    _, evidence = evidence_of(cli, "publish.py", CRASH, "publish")
    assert evidence.repairs[0].name == "as it is"
    assert sum(evidence.repairs[0].bad.values()) > 0
    assert any(not any(each.bad.values()) and each.is_whole for each in evidence.repairs)
    assert evidence.judged.keys() == evidence.repairs[0].bad.keys()
    assert "os.replace" in " ".join(evidence.sources[str(Path("publish.py").resolve())].lines.values())


def test_what_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    os.mkfifo("pipe.py")
    large = Path("large.py")
    large.write_text("x\n" * (3 << 20))
    Path("own.py").write_bytes(b"a\n\xff\n")
    files = ["pipe.py", "large.py", "gone.py", "nul\0.py", ".", "own.py"]
    stacks = [(Frame(str(tmp_path / each), 2, "save"),) for each in files]
    digest = hashlib.sha256(b"a\n\xff\n").hexdigest()
    assert sources(iter(stacks)) == {str(tmp_path / "own.py"): Source(digest, {1: "a", 2: "\ufffd"})}
