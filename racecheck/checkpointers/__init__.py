"""Savers under test: what is asked of one, the checks that it must stand, and the ones that everybody uses.

    protocol       the methods of a checkpointer, who calls them and when
    state          the model and optimizer that it is given
    driving        a rank's side of a check
    checks         what is done, in which world, and what must hold then
    suite          a checkpointer and a check make a scenario
    (the others)   adapters over the public interfaces of released savers, one file for each framework

``NAMES`` are the adapters by the name that the command line knows them by.
"""

from __future__ import annotations

from racecheck.checkpointers.checks import CHECKS, Check
from racecheck.checkpointers.protocol import Checkpointer, Handle, State
from racecheck.checkpointers.suite import applicable, reason_against, scenario

__all__ = ["CHECKS", "NAMES", "Check", "Checkpointer", "Handle", "State", "applicable", "reason_against", "scenario"]

NAMES = {
    "torch-in-place": "racecheck.checkpointers.torch_save:InPlace",
}
