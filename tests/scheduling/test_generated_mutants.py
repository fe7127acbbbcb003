"""Each cause of a false proof, put back into the engine, is found by the generated programs."""

from __future__ import annotations

from random import Random

import pytest

from tests.generated import crashes, mutants
from tests.generated.mutants import MUTANTS
from tests.generated.tally import Tally, count, seeds


@pytest.mark.parametrize("name", MUTANTS)
def test_generated_programs_find(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests.scheduling.test_generated` shows that the whole engine misses nothing of such programs."""
    broken, feature, most = MUTANTS[name]
    broken(monkeypatch)
    tally = Tally()
    for number, seed in enumerate(seeds(0, most, (feature,)), start=1):
        count(tally, seed)
        if tally.missed:
            print(f"{name}: found by program {number} of {most}")
            return
    pytest.fail(f"{most} programs do not tell: {tally}")


def test_generated_crashes_find_that_one_order_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants.crash_order(monkeypatch)
    programs = [crashes.draw(Random(f"crash:{number}")) for number in range(20)]
    assert any(crashes.judged(each) - crashes.searched(each) for each in programs)
