"""A cell: the result of a checkpointer and a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from racecheck.model.nouns import Tried, Verdict
from racecheck.report.words import count, duration
from racecheck.scheduling.claims import Claim

CUT = "cut off by --seconds"
"""The beginning of the reason why a check has not come to its end."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold: how that was first seen, and the file of the finding ("" if none was kept).

    ``defect`` identifies its cause (`racecheck.gate.defects`); two defects are two of these.
    ``unkept`` says why its finding could not be kept.  ``place`` is the line of code of the op that decides, and
    ``sentence`` describes the run.
    """

    invariant: str
    message: str
    finding: str = ""
    defect: str = ""
    unkept: str = ""
    place: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A checkpointer, by the name that it was given, a check, and the result.

    ``versions`` are of the packages that the checkpointer takes and of torch: the same checkpointer with others is
    another row.  ``asked`` are the names of the invariants.  ``against`` says why what is found here is not held
    against the checkpointer, "" if it is.  ``text`` is a failing run as people read it.  ``tried`` is how far the
    search came with the faults, stale reads and crash states.  ``needs`` is about how many seconds more it takes
    to finish a check that the time limit has cut off.  ``faults`` has a row for each single fault
    (`racecheck.report.fault_table`), and ``repair`` says under which repair of the code no crash state breaks anything.
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
    needs: float = 0.0
    faults: tuple[tuple[str, ...], ...] = ()
    repair: str = ""

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
    def is_cut(self) -> bool:
        """Whether the time limit has cut it off."""
        return any(each.startswith(CUT) for each in self.reasons)

    @property
    def why(self) -> str:
        """Say why it is UNKNOWN."""
        more = f"; about {duration(self.needs)} more would settle it" if self.is_cut else ""
        return f"{'; '.join(self.reasons)}{more}"
