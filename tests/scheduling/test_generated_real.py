"""Generated programs, carried out by real ranks under control, against the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from racecheck.model import config
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import Scenario
from tests.generated import judge, real
from tests.generated.drawing import REAL_FEATURES
from tests.generated.programs import dump
from tests.generated.tally import seeds
from tests.support import soak
from tests.support.targets import target

CHUNKS, CHUNK, SCHEDULES = 2, 12, 40


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Scenario]]:
    """A session of its own: its ranks inherit the name of the program's file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(real.PROGRAM, str(tmp_path_factory.mktemp("generated") / "program.json"))
        with Session(config.read().runs) as session:
            yield session, target("drawn", "carry_out")


def check(carried_out: tuple[Session, Scenario], names: list[str]) -> str:
    """Search these programs, and say how many searches came to an end, by feature."""
    ended: Counter[str] = Counter()
    for name in names:
        program = real.standard(name)
        try:
            compared = real.compare(*carried_out, program, SCHEDULES)
        except judge.TooMany:
            continue
        assert not compared.missed + compared.wrong, f"{name}: {compared}\n{program}\n{dump(program)}"
        ended[f"{name.partition(':')[0]} {str(compared.report.claim).partition(':')[0]}"] += 1
    return str(dict(sorted(ended.items())))


def test_real_ranks_do_what_the_judge_says(carried_out: tuple[Session, Scenario]) -> None:
    print(check(carried_out, seeds(0, len(REAL_FEATURES), REAL_FEATURES)))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_real_programs(carried_out: tuple[Session, Scenario], chunk: int) -> None:
    print(check(carried_out, seeds(1_000_000 + chunk * CHUNK, CHUNK, REAL_FEATURES)))


@pytest.mark.soak
def test_fresh_real_programs(carried_out: tuple[Session, Scenario]) -> None:
    for seed in soak.seeds():
        check(carried_out, seeds(seed, 1, REAL_FEATURES))
