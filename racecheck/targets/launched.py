"""Launch commands as scenarios: ``train = racecheck.launch("torchrun train.py", watch="checkpoints")``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from racecheck import invariants as ours
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Invariant, Verdict, World
from racecheck.targets.programs import ASKED
from racecheck.targets.scenarios import Rank, Scenario


class Launched(Scenario):
    """A launch command.  Its program is known only when it is run.

    Then it is a `racecheck.targets.programs.Program`.  ``changes`` are fields of its world, beside the number of ranks.
    """

    def __init__(
        self,
        command: Sequence[str],
        watch: Path,
        start: Path | None,
        resume_with: str | None,
        changes: dict[str, Any],
        place: tuple[str, Path],
        **scenario: Any,
    ) -> None:
        super().__init__(_run, world=World(ranks=1), **scenario)
        self.command, self.watch, self.start, self.changes = tuple(command), watch, start, changes
        self._resume_with = resume_with
        self.module, self.file = place

    def resumed_by(self, faults: object) -> str | None:
        """Return the command of the recovery: "" for the same one, which it is where there are faults and no other."""
        return "" if self._resume_with is None and (faults or self.changes.get("faults")) else self._resume_with

    @property
    def name(self) -> str:
        """Return the name of the variable that holds it."""
        found = vars(sys.modules[self.module]) if self.module in sys.modules else {}
        return next((name for name, each in found.items() if each is self), "launch")

    @name.setter
    def name(self, value: str) -> None:
        del value


def launch(
    command: str | Sequence[str],
    *,
    watch: str | Path,
    start: str | Path | None = None,
    resume_with: str | None = None,
    invariants: Sequence[Invariant] = ASKED,
    report: str = "",
    expected: Verdict = Verdict.PASS,
    breaks: str = "",
    **world: Any,
) -> Scenario:
    """Return the scenario of a launch command, which runs unchanged, as ``racecheck run --watch`` does it.

    ``watch`` is the directory that it writes to, ``start`` its contents when a run begins (default: its contents
    now), ``resume_with`` the command of the recovery (default, if there are ``faults``: the same one).  ``invariants``
    are racecheck's, or functions of an `Outcome` that a file defines at its top; those that judge observed saves and
    loads are added where they can.  ``report``,
    ``expected``, ``breaks`` and the fields of the world are as in `scenario`; how many ranks there are, the command
    says.  Paths are relative to the working directory, in pytest to its root.  Raises `UsageError`.
    """
    words = shlex.split(command) if isinstance(command, str) else [*command]
    if not words:
        raise UsageError("launch: name a launch command, such as torchrun --nproc-per-node=2 train.py")
    for name in ("ranks", "sizes", "backend"):
        if name in world:
            raise UsageError(f"launch: {name} is decided by the command; leave it out")
    places_of(invariants)
    caller = sys._getframe(1)  # noqa: SLF001  (the module that will hold it)
    place = str(caller.f_globals.get("__name__", "")), Path(caller.f_code.co_filename).resolve()
    return Launched(
        words, Path(watch), Path(start) if start is not None else None, resume_with, world, place,
        invariants=invariants, report=report, expected=expected, breaks=breaks,
    )  # fmt: skip


def places_of(invariants: Sequence[Invariant]) -> dict[str, Invariant]:
    """Return the user's own invariants by their places, FILE::NAME, from which another process imports them.

    Raises `UsageError` if one cannot be imported so.
    """
    return {_place_of(each): each for each in invariants if not any(each is known for known in vars(ours).values())}


def _place_of(invariant: Invariant) -> str:
    name = getattr(invariant, "__name__", "")
    code = getattr(invariant, "__code__", None)
    if code is None or getattr(invariant, "__globals__", {}).get(name) is not invariant:
        raise UsageError(
            f"launch: {name or repr(invariant)} is no invariant of racecheck's, nor a function at the top of a file: "
            "define it there, so that a replay finds it"
        )
    return f"{Path(code.co_filename).resolve()}::{name}"


def _run(rank: Rank) -> None:
    del rank
    raise AssertionError("a launch command is run by what it starts")
