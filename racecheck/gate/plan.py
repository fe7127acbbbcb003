"""The checks of a launch command: what goes wrong while it runs.

Each is a search of the same program in another world; what must hold then is what racecheck observes of its saves and
loads (`racecheck.explore.observed_saves`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from racecheck.explore.requests import Search
from racecheck.faults import parse
from racecheck.gate.effort import EFFORTS, Effort
from racecheck.model.errors import UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import World
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, Check
from racecheck.targets.suite.checks import CHANGES, NEEDS_ROOM, SHARED

_ORDERS = 8
"""How many times more schedules than in a check of a checkpointer: a program does more."""
_STATES = {"quick": 16, "normal": 60}
"""By effort, how many disks the recovery loads for each run and model; it has as many ranks as the job."""
_DAMAGED = {"quick": 4, "normal": 20}
"""The same for each kind of damage."""


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A check of a launch command: ``faults`` happen, or none, and the job is launched again.

    ``about`` describes the events, and ``when`` the condition of its findings, as the end of a sentence.
    """

    name: str
    about: str
    faults: tuple[str, ...] = ()
    when: str = ""
    quick: bool = True
    storage: str = SHARED

    def world(self, world: World) -> World:
        """Return the world of this check.

        On another storage than one file system on one node, its ranks are on two nodes, or each on one of its own.
        """
        nodes = world.nodes if self.storage == SHARED else world.ranks if world.ranks % 2 else 2
        return make_world(world, faults=self.faults, storage=self.storage, nodes=nodes)

    def search(self, search: Search, effort: Effort) -> Search:
        """Return the search of this check; ``search`` says what all checks of a command have in common."""
        world = self.world(search.world)
        due = effort.search(search.scenario, world)
        schedules = due.schedules if self.faults else due.schedules * _ORDERS
        return replace(
            search, world=world, strategy=due.strategy, schedules=schedules, swept=due.swept, keep_going=True,
            states=(_DAMAGED if _is_damage(self.faults) else _STATES).get(effort.name),
        )  # fmt: skip


PLAN: Mapping[str, CommandCheck] = {
    each.name: each
    for each in (
        CommandCheck("races", "nothing goes wrong; the ranks' ops come in other orders"),
        CommandCheck("job-killed", "the whole job is killed before each op that changes files, and resumes",
                     (f"kill-job on {CHANGES} nth=each",), "if the job is killed"),
        CommandCheck("preempted", "SIGTERM to all ranks before each op, SIGKILL 30 s later, and the job resumes",
                     ("preempt on any nth=each",), "if the job is preempted"),
        CommandCheck("power-failure", "the power fails at each moment, and the job resumes",
                     ("crash",), "if the power fails"),
        CommandCheck("part-missing", "a file that the resumed job reads is cut, empty or missing",
                     ("damage kind=cut|empty|missing",), "if a part of the checkpoint is missing"),
        CommandCheck("corrupted", "such a file has a flipped bit, a page of zeros, or the contents of an older save",
                     ("damage kind=flip|zero|older",), "if the checkpoint is corrupted"),
        CommandCheck("disk-full", "ENOSPC at each op that needs space",
                     (f"ENOSPC on {NEEDS_ROOM} nth=each",), "if the disk is full"),
        CommandCheck("io-error", "EIO on one rank, at each op", ("EIO on any nth=each",), "if a call fails with EIO"),
        CommandCheck("rank-killed", "one rank is killed before each op that changes files",
                     (f"kill on {CHANGES} nth=each",), "if a rank is killed"),
        CommandCheck("rank-told-to-end", "SIGTERM to one rank before each op that changes files",
                     (f"term on {CHANGES} nth=each",), "if a rank gets SIGTERM"),
        CommandCheck("slow-call", "one op takes a minute, each in turn",
                     (f"slow on {CHANGES} seconds=60 nth=each",), "if a call takes a minute", quick=False),
    )
}  # fmt: skip
KNOWN: Mapping[str, Check | CommandCheck] = {**CHECKS, **PLAN}
"""All checks, of checkpointers and of launch commands."""


def _is_damage(specs: Sequence[str]) -> bool:
    return any(parse(each).what == "damage" for each in specs)


def chosen(names: Sequence[str], effort: str) -> list[CommandCheck]:
    """Return the checks with these names; without any, those of the effort.  Raises `UsageError`."""
    for each in names:
        if each not in PLAN:
            raise UsageError(f"unknown check {each!r} of a launch command; {meant(each, PLAN)}")
    if names:
        return [each for each in PLAN.values() if each.name in names]
    return [each for each in PLAN.values() if each.quick or EFFORTS[effort].is_all]
