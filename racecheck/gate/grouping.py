"""The findings of all checks by their cause: one defect, one entry, the most harmful first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from racecheck.gate.cells import Broken, Cell
from racecheck.gate.plan import KNOWN

_HARMS = (
    {
        "consistent-weights": "wrong weights are loaded",
        "snapshot-isolation": "weights are saved that training has changed",
        "resume-equals": "the resumed job is another one",
        "damage-refused": "the job goes on from a damaged file",
        "same-start": "the ranks continue from different steps",
        "newest-loads": "an old step is loaded",
        "monotonic-step": "an old step is loaded",
    },
    {
        "durable-after-ack": "the checkpoint is lost",
        "old-survives": "the checkpoint is lost",
        "recovers": "the restart fails",
    },
    {
        "no-deadlock": "the job hangs",
        "equal-collectives": "the job hangs",
        "liveness": "no later save succeeds",
    },
    {
        "no-unexpected-errors": "the job fails",
        "no-file-errors": "the job fails",
        "error-honesty": "an error is not reported",
        "no-torn-files": "a file is read while it is written",
        "no-lost-writes": "what a rank has written is lost",
        "nothing-outside": "files are written elsewhere",
    },
)
"""The harm if an invariant does not hold: training goes wrong silently, work is lost, the job hangs, an error."""
_ORDER = {name: (rank, number) for rank, names in enumerate(_HARMS) for number, name in enumerate(names)}
_SAID = {name: said for names in _HARMS for name, said in names.items()}
_LAST = (len(_HARMS), 0)


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, with the checks and invariants by which it is ``shown``, the most harmful first."""

    shown: tuple[tuple[Cell, Broken], ...]

    @property
    def lead(self) -> tuple[Cell, Broken]:
        """Its most harmful effect, in the most telling check."""
        return self.shown[0]

    @property
    def is_held(self) -> bool:
        """Whether it counts."""
        return self.lead[0].is_held

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.check for cell, _ in self.shown))

    @property
    def invariants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(broken.invariant for _, broken in self.shown))

    @property
    def effect(self) -> str:
        """Return the effect and its condition: "the checkpoint is lost if the job is killed".

        It has no condition if a check shows it in which nothing goes wrong.
        """
        cell, broken = self.lead
        when = KNOWN[cell.check].when if all(KNOWN[each].when for each in self.checks) else ""
        return f"{_SAID.get(broken.invariant, f'{broken.invariant} does not hold')}{f' {when}' if when else ''}"

    @property
    def text(self) -> str:
        """Return a run that shows it, as people read it; "" if its checks show runs of other defects."""
        return next((cell.text for cell, broken in self.shown if broken.finding == cell.broken[0].finding), "")


def grouped(cells: Iterable[Cell]) -> list[Defect]:
    """Return the defects that cells show: defects that count come first, then the most harmful.

    Harm of one kind in one run has one cause.  So has harm of one kind in two runs, if their decisive op is in the same
    function, and the error is the same.
    """
    groups: dict[object, list[tuple[Cell, Broken]]] = {}
    of_run: dict[tuple[str, int], object] = {}
    for cell in cells:
        for broken in sorted(cell.broken, key=_harm):
            kind = _harm(broken)[0]
            key = of_run.get((broken.finding, kind)) or (cell.checkpointer, cell.is_held, kind, broken.defect)
            if broken.finding:
                of_run[broken.finding, kind] = key
            groups.setdefault(key, []).append((cell, broken))
    found = [Defect(_sorted(each)) for each in groups.values()]
    telling = [*KNOWN]
    return sorted(found, key=lambda each: (not each.is_held, _harm(each.lead[1])[0], telling.index(each.lead[0].check)))


def leading(cells: Iterable[Cell]) -> list[str]:
    """Return the checks with the most telling failures of the defects that count, the gravest defect first."""
    return [*dict.fromkeys(each.lead[0].check for each in grouped(cells) if each.is_held)]


def headline(found: Sequence[Defect]) -> str:
    """Return the result of a gate: "2 defects: the checkpoint is lost if the job is killed, in save (saver.py:12)"."""
    held = [each for each in found if each.is_held]
    if not held:
        return ""
    where = held[0].lead[1].place
    more = f", and {len(held) - 1} more" if len(held) > 1 else ""
    return f"{len(held)} defect{'s' * (len(held) != 1)}: {held[0].effect}{f', in {where}' if where else ''}{more}"


def _sorted(shown: list[tuple[Cell, Broken]]) -> tuple[tuple[Cell, Broken], ...]:
    return tuple(sorted(shown, key=lambda each: _harm(each[1])[0]))


def _harm(broken: Broken) -> tuple[int, int]:
    return _ORDER.get(broken.invariant, _LAST)
