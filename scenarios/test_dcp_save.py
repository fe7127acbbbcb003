"""A plain ``torch.distributed.checkpoint.save``: nothing is wrong with it, so nothing must be found.

**Mechanism.**  Each rank writes a file of its own into one directory.  Once all have, rank 0 writes
``.metadata`` beside them and renames it into place; the collectives in between keep that order.

**What must be found.**  Nothing.  This is the control: torch's own save, unmodified, under every
invariant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Violation, nothing_left_over

CHECKPOINT = "checkpoint"


def complete(outcome: Outcome) -> Iterator[Violation]:
    """Once a rank has returned, the metadata and the file of every rank are there and have content."""
    if any(isinstance(result, Returned) for result in outcome.results):
        files = [".metadata", *(f"__{rank}_0.distcp" for rank in range(outcome.world.ranks))]
        found = {path: entry.size for path, entry in outcome.disk.items()}
        missing = [name for name in files if not found.get(f"{CHECKPOINT}/{name}")]
        if missing:
            yield Violation("complete", f"missing or empty: {', '.join(missing)}")


@racecheck.scenario(ranks=2, invariants=(*DEFAULT, nothing_left_over, complete))
def plain(rank: Rank) -> None:
    """Every rank saves a tensor of its own and a copy of one that all have."""
    import torch
    import torch.distributed.checkpoint as dcp

    state = {f"own{rank.rank}": torch.full((1024,), float(rank.rank)), "common": torch.ones(1024)}
    dcp.save(state, checkpoint_id=rank.path / CHECKPOINT)


def test_plain(racecheck: Any) -> None:
    racecheck.check(plain, schedules=20)
