"""What a machine can tell of a Ray cluster without Ray; `tests/frameworks/test_ray_cluster.py` has the rest."""

from __future__ import annotations

import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from racecheck.explore.findings import versions
from racecheck.explore.runs import frames
from racecheck.explore.runs.workers import Workers
from racecheck.frontends import cluster
from racecheck.frontends.cli.jobs import workers_of
from racecheck.model import config
from tests.support.command_line import Cli
from tests.support.outside import eventually


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("somewhere", "--cluster somewhere: must be auto, or HOST:PORT of the head node, as ray start prints it"),
        ("ray://head:10001", "--cluster ray://head:10001: must be auto, or HOST:PORT of the head node"),
        ("head:99999", "--cluster head:99999: must be auto, or HOST:PORT of the head node"),
        ("", "--cluster : must be auto, or HOST:PORT of the head node"),
        ("127.0.0.1:1", "--cluster 127.0.0.1:1: Connection refused"),
    ],
)
def test_a_wrong_address_is_one_line(
    cli: Cli, project: None, monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: True)
    assert cli("run", "racecheck.examples:guarded", "--cluster", address) == 2
    assert cli.err.startswith(f"racecheck: {says}")
    assert cli.err.count("\n") == 1


def test_something_else_at_the_address_is_one_line(cli: Cli, project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(cluster, "_ASKS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert cli("run", "racecheck.examples:guarded", "--cluster", address) == 2
    wrong = f"racecheck: --cluster {address}: no Ray cluster answers there ("
    assert cli.err.startswith(wrong)
    assert cli.err.endswith(f"); try ray status --address {address}\n")
    assert cli.err.count("\n") == 1


def test_ray_has_to_be_installed(cli: Cli, project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: None)
    assert cli("run", "racecheck.examples:guarded", "--cluster", "auto") == 2
    assert cli.err == "racecheck: --cluster needs Ray: pip install 'torch-racecheck[ray]'\n"


def test_a_node_with_other_versions_or_files_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.py"
    file.write_text("x = 1\n")
    files = cluster.sources(f"{file}::race")
    theirs = {**asdict(versions()), "torch": "1.0"}
    file.write_text("x = 2\n")
    what, why = frames.message(cluster.Relay(theirs, files).exchange(b""))
    assert what == "failed"
    assert why.startswith(f"node {socket.gethostname()} has torch ")
    assert why.endswith(f" in place of 1.0 and another {file}")
    file.unlink()
    _, why = frames.message(cluster.Relay(asdict(versions()), files).exchange(b""))
    assert why == f"node {socket.gethostname()} has another {file}"


def test_a_module_has_no_file_of_its_own() -> None:
    assert cluster.sources("racecheck.examples:guarded") == {}


def test_workers_that_were_not_used_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with workers_of(3, None) as workers:
        workers.lost += ["no memory", "no memory", "no node"]
    assert capsys.readouterr().err == (
        "racecheck: 2 workers were not used, or not to the end: no memory\n"
        "racecheck: a worker was not used, or not to the end: no node\n"
    )


def test_a_relay_that_cannot_start_loses_its_workers_alone(tmp_path: Path) -> None:
    """It has no Ray here, or no cluster: this process makes the runs, and says why."""
    with Workers(2, "127.0.0.1:1") as workers:
        workers.open(config.read(), f"{tmp_path}/none.py::race")
        assert eventually(lambda: workers.answers(0.0) == [] and len(workers) == 0)
        assert len(workers.lost) == 2
        assert all("no Ray cluster at 127.0.0.1:1" in each for each in workers.lost)
