"""Run the scenario's recovery on crash states: in loaders if it has one rank, else in a world for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from racecheck import storage
from racecheck.agent.disk_writer import DiskItem, Placed
from racecheck.crash.log import Disk
from racecheck.explore.recovery.disk_images import Ages, TooLarge, items
from racecheck.explore.recovery.loaders import Loaded, Loaders
from racecheck.invariants import after_crash, wants_contents
from racecheck.model.epoch import EPOCH
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Content, Coverage, Invariant, Outcome, Point, World
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.one_run import Supervisor
from racecheck.targets.scenarios import Scenario, make_world

Disks = tuple[tuple[str, Disk], ...]

_SECOND = 10**9
_UNCONTROLLED = "the recovery was not controlled"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery (None: the scenario has none), and what was in the checkpoint files before it."""

    outcome: Outcome | None
    contents: Mapping[str, Content] = field(default_factory=dict)


class Recoveries:
    """Recovers disks.  ``slow`` says why that takes long, "" if it does not; ``problem`` why some were left out."""

    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        world: World,
        recorder: Recorder,
        ages: Ages,
        invariants: Sequence[Invariant],
        seed: str,
        *,
        controlled: bool = False,
    ) -> None:
        """Take a session; ``controlled``: a recovery of one rank runs under control, too: its steps are observed."""
        self._session, self._scenario, self._recorder, self._ages, self._seed = session, scenario, recorder, ages, seed
        self._reading = wants_contents(after_crash(invariants))
        fresh = scenario.fresh_world(world) if scenario.has_recovery else None
        self._world = fresh or make_world(world, faults=(), ranks=1, nodes=1)
        self._is_needed = fresh is not None or self._reading
        self._is_controlled = controlled
        self._is_single = self._world.ranks == 1 and not storage.make(self._world).per_node and not controlled
        self._loaders: Loaders | None = None
        self._placed: dict[str, Placed] = {}
        self.problem = ""

    @property
    def shares_processes(self) -> bool:
        """Whether a process may load more than one state."""
        return self._is_needed and self._is_single

    @property
    def hung(self) -> int:
        """How many recoveries did not end in time."""
        return self._loaders.hung if self._loaders is not None else 0

    @property
    def slow(self) -> str:
        if not self._is_needed or self._is_single:
            return ""
        if self._is_controlled and self._world.ranks == 1:
            return ""
        has = f"{self._world.ranks} ranks" if self._world.ranks > 1 else "a disk for each node"
        return f"the recovery has {has}: each state needs a world of its own (ranks=1 is faster)"

    def recover(self, disks: Iterable[Disks], *, alone: bool = False) -> Iterator[tuple[Disks, Recovered]]:
        """Have the recovery load each of these, in any order, except those that are too large.

        ``alone``: in a process of its own.  Raises `CannotRun` or `UsageError` if that cannot be.
        """
        if not self._is_needed:
            yield from ((each, Recovered(None)) for each in disks)
        elif self._is_single:
            yield from self._load(disks, alone=alone)
        else:
            yield from self._run(disks)

    def _load(self, disks: Iterable[Disks], *, alone: bool) -> Iterator[tuple[Disks, Recovered]]:
        if self._loaders is None:
            self._loaders = Loaders(
                self._session, self._scenario.reference, self._world, self._recorder.spool, seed=self._seed,
                reading=self._reading,
            )  # fmt: skip
        given: list[Disks] = []
        for number, loaded in self._loaders.load(self._items(disks, given), alone=alone):
            yield given[number], Recovered(self._outcome(loaded), loaded.contents)

    def _items(self, disks: Iterable[Disks], given: list[Disks]) -> Iterator[list[DiskItem]]:
        for each in disks:
            try:
                found = items(each[0][1], self._recorder, self._ages)
            except TooLarge as error:
                self.problem = str(error)
                continue
            given.append(each)
            yield found

    def _outcome(self, loaded: Loaded) -> Outcome | None:
        if not self._scenario.has_recovery:
            return None
        coverage = Coverage(notes={_UNCONTROLLED: 1})
        return Outcome(self._world, (), (), (loaded.result,), weights=loaded.weights, coverage=coverage)

    def _run(self, disks: Iterable[Disks]) -> Iterator[tuple[Disks, Recovered]]:
        """Recover each in a controlled world, on the slot's own disks."""
        roots = self._session.slot.disks(self._world)
        self._session.slot.make_room(self._world)
        for each in disks:
            try:
                for prefix, disk in each:
                    if prefix in roots:
                        self._disk(prefix, roots[prefix]).place(items(disk, self._recorder, self._ages))
            except TooLarge as error:
                self.problem = str(error)
                continue
            except OSError as error:
                where = self._session.slot.path
                raise CannotRun(f"cannot write a crash state to {where}: {error.strerror}") from None
            contents = self._session.contents(self._world) if self._reading else {}
            yield each, Recovered(self._resumed(), contents)

    def _disk(self, prefix: str, root: Path) -> Placed:
        if prefix not in self._placed:
            self._placed[prefix] = Placed(root, self._recorder.spool, EPOCH - _SECOND, self._session.slot.kept)
        return self._placed[prefix]

    def _resumed(self) -> Outcome | None:
        if not self._scenario.has_recovery:
            return None
        target, names = self._scenario.reference, self._recorder.unstable.copy()
        return Supervisor(
            self._session, target, self._world, _default, seed=self._seed, recovering=True, names=names
        ).run()  # fmt: skip

    def close(self) -> None:
        """End the loaders."""
        if self._loaders is not None:
            self._loaders.close()


def _default(_: Point) -> int:
    return 0
