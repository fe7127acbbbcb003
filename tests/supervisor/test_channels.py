"""Every way from one process to another on this machine: controlled, or named by the claim."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.supervisor.run.channels import CHANNELS, Channel
from tests.support.targets import target

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "files in the watched directory": ("file_inside",),
    "file locks in the watched directory": ("lock_inside",),
    "collectives of torch.distributed": ("collective",),
    "keys of torch's stores": ("store_key",),
    "the exit status of a child": ("exit_status",),
    "files outside the watched directory": ("file_outside",),
    "file locks outside the watched directory": ("lock_outside", "record_lock_outside"),
    "signals": ("signals",),
    "signals through a pidfd": ("signals_by_pidfd",),
    "the signal 0, which asks whether a process lives": ("signal_zero",),
    "pipes and socket pairs that a child inherits": ("inherited_pipe",),
    "FIFOs": ("fifo_inside", "fifo_outside"),
    "sockets of the Internet": ("datagrams",),
    "Unix sockets with a path": ("unix_socket",),
    "abstract Unix sockets": ("abstract_socket",),
    "descriptors in messages": ("sent_descriptor",),
    "POSIX shared memory": ("memory_posix",),
    "POSIX semaphores": ("semaphore_posix",),
    "POSIX message queues": ("queue_posix",),
    "System V shared memory": ("memory_system_v",),
    "System V semaphores": ("semaphore_system_v",),
    "System V message queues": ("queue_system_v", "queue_system_v_by_number"),
    "keys of the kernel": ("kernel_key",),
    "inotify outside the watched directory": ("inotify",),
    "/proc about another process": ("proc_of_another", "proc_list"),
    "/proc/locks": ("proc_locks",),
    "pidfds of another rank's process": ("pidfd",),
    "the memory of another process": ("memory_of_another",),
    "the group, session, processors, priority and limits of another process": (
        "group_of_another",
        "processors_of_another",
        "priority_of_another",
        "limits_of_another",
    ),
}
"""Scenarios of tests/programs/channels.py.  Connects to a listener have a file of tests of their own."""
ELSEWHERE = {"a connect to a listener on this machine"}


def searched(session: Session, name: str) -> Report:
    scenario = target("channels", name)
    return explore(session, Search(scenario, scenario.world, scenario.invariants, strategy="dpor", schedules=60))


def test_every_channel_has_a_program() -> None:
    assert {each.name for each in CHANNELS} == PROGRAMS.keys() | ELSEWHERE


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        pytest.param(channel, name, id=name)
        for channel in CHANNELS
        for name in PROGRAMS.get(channel.name, ())
    ],
)  # fmt: skip
def test_each_channel_is_controlled_or_named(session: Session, channel: Channel, name: str) -> None:
    report = searched(session, name)
    coverage = report.coverage
    said = [*report.claim.conditions, *report.claim.doubts, *coverage.holes, *coverage.notes]
    if channel.says:
        assert any(each.removeprefix("not tried: ").startswith(channel.says) for each in said), report.claim
    else:
        assert report.exhaustive, report.claim


def test_what_one_rank_uses_alone_is_no_gap(session: Session) -> None:
    report = searched(session, "alone")
    assert report.verdict is Verdict.PASS
    assert not report.claim.doubts


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("shared_mapping", "writes through a shared mapping, if the program makes it writable"),
        ("link_of_descriptor", "the path of an open file from /proc while another thread renames or removes it"),
    ],
)
def test_a_look_past_the_calls_is_named(session: Session, name: str, gap: str) -> None:
    assert gap in searched(session, name).coverage.untried
