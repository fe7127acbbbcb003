"""Two nodes that play the programs of `tests.storage.conformance.programs`, line by line.

Sleeps are in virtual time: they take none.  Not collected by pytest.
"""

import time
from collections.abc import Callable

from racecheck import Rank, scenario
from tests.storage.conformance.programs import PROGRAMS, act


def _player(number: int) -> Callable[[Rank], list[str]]:
    def play(rank: Rank) -> list[str]:
        """The answers to its own lines; each line is over everywhere before the next begins."""
        import torch.distributed as dist

        found: list[str] = []
        files: dict[str, int] = {}
        for step in PROGRAMS[number].steps():
            if step.node == rank.rank:
                found.append(act(step, str(rank.path), files))
            elif step.node < 0 and rank.rank == 0:
                time.sleep(float(step.path))
            dist.barrier()
        return found

    play.__name__ = play.__qualname__ = f"plays{number}"
    return play


for _number, _program in enumerate(PROGRAMS):
    globals()[f"plays{_number}"] = scenario(ranks=2, nodes=2, storage=_program.storage)(_player(_number))
