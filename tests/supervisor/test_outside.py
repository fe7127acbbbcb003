"""Which uses of paths outside the watched directory depend on each other."""

from __future__ import annotations

import pytest

from racecheck.supervisor.state.outside import Outside

USES = {
    "stat": {"writes": False, "names": False},
    "write": {"writes": True, "names": False},
    "make": {"writes": True, "names": True},
}


def meets(*uses: tuple[int, str, str]) -> bool:
    """Whether the last of these uses depends on an earlier one."""
    outside = Outside()
    return [outside.meets(path, rank, **USES[use]) for rank, use, path in uses][-1]


@pytest.mark.parametrize("path", ["/a/b", "/a"])
def test_a_name_above_that_another_rank_makes(path: str) -> None:
    assert meets((0, "make", path), (1, "stat", "/a/b/c"))
    assert meets((1, "stat", "/a/b/c"), (0, "make", path))
    assert not meets((0, "stat", path), (1, "stat", "/a/b/c"))
    assert not meets((0, "make", path), (0, "stat", "/a/b/c")), "its own"


def test_one_path() -> None:
    assert meets((0, "write", "/a/b"), (1, "stat", "/a/b"))
    assert meets((1, "stat", "/a/b"), (0, "write", "/a/b"))
    assert not meets((0, "make", "/a/b"), (1, "make", "/a/c"))
