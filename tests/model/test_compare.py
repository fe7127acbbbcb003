"""The first difference of two runs, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.model.compare import first_difference
from racecheck.model.nouns import Died, DiskEntry, Outcome, Raised, RankResult, Returned, Stopped, Weights, World

BEFORE = Outcome(World(ranks=1), (), (), (Returned(1),), {"f": DiskEntry("file", 4, "a")})
SAVED = Weights(0, "saved", 1, "", {"w": "x"})


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (Returned("x" * 100), f"rank 0 returned '{'x' * 59}…; before, it returned 1"),
        (Raised("FileExistsError", "text", errno="EEXIST"), "rank 0 raised FileExistsError (EEXIST); before, it "),
        (Died(signal="SIGKILL"), "rank 0 died by SIGKILL; before, it returned 1"),
        (Died(3), "rank 0 ended with exit status 3; before, it returned 1"),
        (Stopped("lock", "waits for a lock"), "rank 0 was stopped: waits for a lock; before, it returned 1"),
    ],
)
def test_ranks_end_in_words(result: RankResult, says: str) -> None:
    assert first_difference(BEFORE, replace(BEFORE, results=(result,))).startswith(says)


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        ({}, "f no longer exists"),
        ({"f": DiskEntry("file", 4, "a"), "g": DiskEntry("directory")}, "g exists now"),
        ({"f": DiskEntry("file", 5, "a")}, "f has 5 bytes; before, it had 4"),
        ({"f": DiskEntry("file", 4, "b")}, "f has different content"),
        ({"f": DiskEntry("directory")}, "f is a directory; it was a file"),
    ],
)
def test_disks_differ_in_words(disk: dict[str, DiskEntry], says: str) -> None:
    assert first_difference(BEFORE, replace(BEFORE, disk=disk)) == says


def test_weights_differ_in_words() -> None:
    after = replace(BEFORE, weights=(SAVED,))
    assert first_difference(BEFORE, BEFORE) == ""
    assert first_difference(BEFORE, after).startswith("rank 0 saved step 1 after 0 events (weights ")
    assert first_difference(BEFORE, after).endswith(" now; before, no rank declared any")
    assert first_difference(after, replace(after, weights=(replace(SAVED, tensors={"w": "y"}),))).count("weights") == 2
