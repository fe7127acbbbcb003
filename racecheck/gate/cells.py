"""A cell: the result of a checkpointer and a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from racecheck.model.nouns import Tried, Verdict
from racecheck.report.words import count
from racecheck.scheduling.claims import Claim

NO_TIME = "no schedule was run"
SCANT = "less than half was tried"
TOO_LITTLE = "not enough time"
_SHORT = ("never reached: ", NO_TIME, SCANT)
"""The beginning of a reason for UNKNOWN that more time may remove."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold: how that was first seen, and the file of the finding ("" if none was kept).

    ``defect`` identifies what breaks it (`racecheck.gate.defects`); two defects are two of these.
    ``unkept`` says why its finding could not be kept.
    """

    invariant: str
    message: str
    finding: str = ""
    defect: str = ""
    unkept: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A checkpointer, by the name that it was given, a check, and the result.

    ``versions`` are of the packages that the checkpointer takes and of torch: the same checkpointer with others is
    another row.  ``asked`` are the names of the invariants.  ``against`` says why what is found here is not held
    against the checkpointer, "" if it is.  ``text`` is a failing run as people read it.  ``is_done`` is False while a
    longer search is still to come.  ``tried`` is how far the search came with the faults, stale reads and crash states.
    """

    checkpointer: str
    check: str
    storage: str
    versions: Mapping[str, str]
    verdict: Verdict
    asked: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    reasons: tuple[str, ...] = ()
    schedules: int = 0
    claim: Claim = field(default_factory=Claim)
    tried: tuple[Tried, ...] = ()
    seconds: float = 0.0
    against: str = ""
    text: str = field(default="", repr=False)
    is_done: bool = True

    @property
    def target(self) -> str:
        """The name that ``racecheck run`` knows it by."""
        return f"{self.checkpointer}[{self.check}]"

    @property
    def row(self) -> str:
        """Return the checkpointer with the versions that matter, without their builds ("+cpu")."""
        versions = sorted(self.versions.items(), key=lambda each: (each[0] == "torch", each[0]))
        own = ", ".join(f"{name} {each.partition('+')[0]}".rstrip() for name, each in versions)
        return f"{self.checkpointer} ({own})"

    @property
    def violated(self) -> str:
        """Name each invariant that does not hold."""
        return ", ".join(dict.fromkeys(each.invariant for each in self.broken))

    @property
    def exhaustive(self) -> bool:
        """Whether every interleaving was covered, under the conditions of the claim."""
        return self.claim.exhaustive

    @property
    def is_held(self) -> bool:
        """Whether it counts."""
        return not self.against

    @property
    def is_part(self) -> bool:
        """Whether some of the faults, stale reads or crash states were left out."""
        return not all(each.is_all for each in self.tried)

    @property
    def extent(self) -> str:
        """Say how much was tried: "all, in 3 schedules", "2 of 41 faults, 3 schedules"."""
        if not self.schedules:
            return "nothing"
        schedules = count(self.schedules, "schedule")
        return ", ".join(["all", f"in {schedules}"] if self.exhaustive else [*map(str, self.tried), schedules])

    @property
    def is_short(self) -> bool:
        """Whether it is UNKNOWN only for lack of time."""
        return self.verdict is Verdict.UNKNOWN and all(each.startswith(_SHORT) for each in self.reasons)

    @property
    def why(self) -> str:
        """Say why it is UNKNOWN."""
        scant = f": {SCANT}" if SCANT in self.reasons else ""
        return f"{TOO_LITTLE}{scant}" if self.is_short else "; ".join(self.reasons)

    def deepened(self, other: Cell) -> Cell:
        """Return this cell and that of a longer search for the same, as one.

        A finding of either counts.  A lack of time in one does not, if the other had enough.
        """
        both = (self, other)
        told = [each for each in both if not each.is_short] or [other]
        grave = max(reversed(told), key=lambda each: each.verdict)
        farthest = max(both, key=lambda each: sum(one.done for one in each.tried))
        return replace(
            grave,
            schedules=self.schedules + other.schedules,
            seconds=self.seconds + other.seconds,
            claim=self.claim.deepened(other.claim),
            tried=farthest.tried,
            is_done=other.is_done,
        )
