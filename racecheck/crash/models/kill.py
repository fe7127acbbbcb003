"""The processes are killed and the machine continues: everything that they asked the kernel for lasts."""

from __future__ import annotations

from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.models.common import ModelRules


class Kill:
    """SIGKILL of the job; a write in progress may end between two pages."""

    split = False
    page = PAGE
    sizes = False
    tails = False
    keeps_all = True

    def rules(self, changes: Changes) -> ModelRules:
        return ModelRules([0] * len(changes.every))
