"""What the checkpointers of the frameworks in an environment load is what torch's own load, bit for bit."""

from __future__ import annotations

import pytest

from racecheck.gate.subjects import Subject
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.suite import NAMES, protocol
from tests.support.resharding import assert_equal, assert_resharded, explored, loaded

KINDS = {name: resolve.checkpointer(name) for name in NAMES}
HERE = [name for name, kind in KINDS.items() if protocol.requires(kind) and not Subject(name, kind).missing]
RESHARD = [name for name in HERE if not {"shrink", "grow"} & protocol.not_for(KINDS[name]).keys()]


@pytest.mark.parametrize("name", HERE)
def test_all_load_the_same_weights(session: Session, name: str) -> None:
    wanted, found = (explored(session, f"{each}[save]").outcome for each in ("torch-rename", name))
    assert wanted is not None
    assert found is not None
    assert_equal(name, loaded(found.recovery, step=1), dict(loaded(wanted.recovery, step=1)[0].tensors), ranks=2)


@pytest.mark.parametrize("name", RESHARD)
def test_also_resharded_from_4_ranks_to_2_and_to_4(session: Session, name: str) -> None:
    assert_resharded(session, name)
