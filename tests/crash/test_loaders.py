"""Loaders: each state gets its own result, whatever becomes of the processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from racecheck.agent.disk_writer import DiskItem
from racecheck.explore.recovery.loaders import LOADERS, Loaded, Loaders
from racecheck.model.nouns import Died, Raised, Returned, World
from racecheck.sessions.session import Session
from tests.support.targets import target

WORDS = [f"state {number}" for number in range(40)]


@pytest.fixture
def spool(session: Session) -> Iterator[Path]:
    path = session.slot.path / "words"
    session.slot.reset(World(ranks=1))
    yield path
    path.unlink()


def loaded(session: Session, spool: Path, name: str, words: list[str], *, alone: bool = False) -> list[Loaded]:
    """What came of states with one file each that holds a word."""
    scenario = target("crashing", name)
    session.request("import", target=scenario.reference)
    spool.write_text("".join(words))
    starts = [sum(map(len, words[:number])) for number in range(len(words))]
    states = [
        [DiskItem("file", "file", size=len(word), spans=[(0, len(word), start)])]
        for word, start in zip(words, starts, strict=True)
    ]
    loaders = Loaders(session, scenario.reference, World(ranks=1), spool, seed="0", reading=False)
    try:
        found = dict(loaders.load(states, alone=alone))
    finally:
        loaders.close()
    assert sorted(found) == list(range(len(words)))
    return [found[number] for number in range(len(words))]


@pytest.mark.parametrize("alone", [False, True])
def test_each_state_gets_its_own_answer(session: Session, spool: Path, alone: bool) -> None:
    words = WORDS[: 4 if alone else None]
    assert [each.result for each in loaded(session, spool, "texts", words, alone=alone)] == [*map(Returned, words)]


def test_a_process_that_ends_takes_no_other_state_with_it(session: Session, spool: Path) -> None:
    words = WORDS[:6]
    assert [each.result for each in loaded(session, spool, "texts_once", words)] == [*map(Returned, words)]


def test_what_it_raises_and_what_it_changes_of_its_process(session: Session, spool: Path) -> None:
    words = ["one", "raise", "chdir", "two", "chdir", "three"]
    results = [each.result for each in loaded(session, spool, "texts", words)]
    assert isinstance(results[1], Raised)
    assert results[1].type == "ValueError"
    assert [results[number] for number in (0, 2, 3, 4, 5)] == [Returned(words[number]) for number in (0, 2, 3, 4, 5)]
    assert not any(isinstance(each, Died) for each in results)


def test_a_long_state_is_sent_too(session: Session, spool: Path) -> None:
    """Longer than what fits between two processes at once, and so is what it comes to."""
    scenario = target("crashing", "texts")
    session.request("import", target=scenario.reference)
    spool.write_text("all")
    long = [DiskItem(f"empty{number:06}" + "x" * 100, "file") for number in range(3000)]
    states = [[DiskItem("file", "file", size=3, spans=[(0, 3, 0)]), *long]] * (2 * LOADERS)
    loaders = Loaders(session, scenario.reference, World(ranks=1), spool, seed="0", reading=False)
    try:
        found = dict(loaders.load(states))
    finally:
        loaders.close()
    names = ["file", *(item.path for item in long)]
    assert [found[number].result for number in sorted(found)] == [Returned(sorted(names))] * (2 * LOADERS)
