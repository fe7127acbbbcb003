"""Models against the file systems of this machine, where it lets us crash them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from racecheck.model.nouns import Verdict
from tests.peers.file_systems import litmus, loopfs, realfs, selftest
from tests.peers.file_systems.realfs import Certificate


@pytest.mark.slow
@pytest.mark.parametrize("fs", realfs.FILE_SYSTEMS)
def test_what_crashes_leave_is_what_the_model_allows(fs: str, tmp_path: Path):
    """Where there is no root, no loop device or no mkfs the verdict is UNKNOWN and says so."""
    seen: list[int] = []
    result = selftest.selftest([fs], 100, 20, lambda _, done: seen.append(done), str(tmp_path))
    (certificate,) = result.certificates
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    if certificate.reason:
        assert result.verdict is Verdict.UNKNOWN
        assert certificate.reason in result.text
        assert certificate.programs < 100
        return
    assert result.verdict is Verdict.PASS, result.text
    assert seen == list(range(1, 101))
    assert certificate.programs == 100
    assert certificate.lossy > 50, "these crashes have to lose something, else they prove nothing"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda patch: patch.setattr(loopfs.os, "geteuid", lambda: 1000), "mounting file systems needs root"),
        (lambda patch: patch.setattr(loopfs.shutil, "which", lambda _: None), "mkfs.xfs is not installed"),
    ],
)
def test_what_is_missing_is_said(broken, reason: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loopfs.os, "geteuid", lambda: 0)
    broken(monkeypatch)
    result = selftest.selftest(["xfs"], 5)
    assert result.verdict is Verdict.UNKNOWN
    assert result.certificates == (Certificate("xfs", "xfs", 0, 0, (), reason),)
    assert reason in result.text


def test_a_process_that_dies_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(realfs, "why_not", lambda _: "")
    monkeypatch.setattr(realfs.sys, "executable", "/bin/false")
    result = selftest.selftest(["ext4"], 5, directory=str(tmp_path))
    assert result.verdict is Verdict.UNKNOWN
    assert result.certificates[0].reason == "the test process died"
    assert list(tmp_path.iterdir()) == []


def test_verdicts_and_text(monkeypatch: pytest.MonkeyPatch):
    outside = Certificate("xfs", "xfs", 9, 5, ("program 3:\n  create(a)\nleft:\n  nothing",))
    found = {"ext4": Certificate("ext4", "ext4", 9, 7), "xfs": outside}
    monkeypatch.setattr(selftest, "certify", lambda fs, *_: found[fs])
    assert selftest.selftest(["ext4"], 9).verdict is Verdict.PASS
    failed = selftest.selftest(["ext4", "xfs"], 9)
    assert failed.verdict is Verdict.FAIL
    assert failed.text.splitlines() == [
        "ext4 (model ext4): 9 programs, 7 lossy crashes, 0 outside the model",
        "xfs (model xfs): 9 programs, 5 lossy crashes, 1 outside the model",
        "  first state that the model does not allow:",
        "  program 3:",
        "    create(a)",
        "  left:",
        "    nothing",
        "FAIL",
    ]


def test_a_file_system_without_a_model():
    with pytest.raises(ValueError, match="no model of 'zfs'; there are: ext4, xfs, btrfs"):
        realfs.certify("zfs", 1)


class Here:
    """A file system that is not crashed."""

    def flush(self, descriptor: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def commit(self) -> None:
        pass


def test_programs_make_what_their_logs_say(tmp_path: Path):
    """All of a program, carried out for real, is what is left if everything lasts, and never what none of it leaves."""
    wrong = 0
    for number in range(40):
        program = litmus.program(Random(f"real {number}"))
        directory = tmp_path / str(number)
        directory.mkdir()
        litmus.perform(program, str(directory), Here())
        found = realfs._read(directory)
        for model in ("ext4", "btrfs", "posix-min"):
            assert realfs.allows(model, program, found), realfs._text(number, program, found)
        found["z"] = b"never written"
        wrong += sum(realfs.allows(model, program, found) for model in ("ext4", "btrfs", "posix-min"))
    assert not wrong


def test_a_model_that_promises_too_much_or_too_little_is_found_out():
    """What no file system may leave is not allowed."""
    program = (
        litmus.Call("create", "a"), litmus.Call("write", "a", length=100, fill=7), litmus.Call("fsync", "a"),
        litmus.Call("write", "a", offset=100, length=100, fill=8), litmus.Call("rename", "a", "b"),
    )  # fmt: skip
    for model in ("ext4", "btrfs"):
        assert realfs.allows(model, program, {"a": b"\7" * 100})
        assert realfs.allows(model, program, {"b": b"\7" * 100 + b"\0" * 100})
        for left in (
            {},
            {"a": b""},
            {"a": b"\7" * 50},
            {"a": b"\7" * 100, "b": b"\7" * 100},
            {"a": b"\7" * 100 + b"\1"},
        ):
            assert not realfs.allows(model, program, left), (model, left)


def test_nothing_of_a_crashed_file_system_outlives_its_process(tmp_path: Path):
    realfs.certify("ext4", 2, directory=str(tmp_path))
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [path for path in backing if str(tmp_path) in path]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert list(tmp_path.iterdir()) == []
