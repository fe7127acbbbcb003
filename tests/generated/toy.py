"""Generated programs under the engine, in memory: the supervisor's rules for what is a step, and clocks.

In a rank that has, or has had, several threads or processes every stop of a thread is a step; in any other what no
other rank notices is no step, and a collective is left at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from racecheck.model.nouns import Choice, Collective, Event, Fault, Op, Outcome, Point, Result, Returned, World
from racecheck.scheduling.file_times import label
from racecheck.scheduling.happens_before import is_step
from racecheck.scheduling.relation import Relation
from racecheck.supervisor.state import collectives

from .machine import Machine
from .ops import THROUGH_DESCRIPTOR, Ops
from .programs import COLLECTIVES, Program

Clock = dict[str, int]
_YIELDS = frozenset({"sleep", "poll"})
_ISSUES = COLLECTIVES | {"send", "recv"}
_WAKES = frozenset({"join", "reap", "listen", "leave"})
"""What a thread waits for inside of a call: its op comes when that is over."""
_KINDS = {"pair": "send/recv", "reduce": "all_reduce"}
_FAMILIES = {"create": "open"}


@dataclass(slots=True, eq=False)
class Task:
    """A thread that the supervisor knows: ``op`` is the pending op, None where it stands at none."""

    name: str
    clock: Clock = field(default_factory=dict)
    op: Op | None = None
    placed: bool = False
    entered: bool = False

    @property
    def rank(self) -> int:
        return int(self.name.partition(".")[0])

    def tick(self) -> Clock:
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        return dict(self.clock)


def world_of(program: Program) -> World:
    faults = tuple(
        Fault(each.errno, (_FAMILIES.get(each.call, each.call),), each.path, each.rank, nth=each.nth)
        for each in program.failures
    )
    return World(ranks=len(program.ranks), faults=faults)


class Toy:
    """One run."""

    def __init__(self, program: Program, choose: Callable[[Point], int]) -> None:
        self._machine, self._choose = Machine(program), choose
        self._ops, self._world = Ops(self._machine), world_of(program)
        self._relation = Relation(self._world)
        self._tasks: dict[str, Task] = {}
        self._shared: set[int] = set()
        self._parts: dict[tuple[object, ...], dict[int, Clock]] = {}
        self._keys: dict[str, Clock] = {}
        self._trace: list[Event] = []
        self._schedule: list[Choice] = []
        self._cut: list[tuple[int, Op]] = []
        self._looked: set[int] = set()
        self._lookers: set[str] = set()
        self._current: Task | None = None
        self._last: dict[int, Task] = {}
        self._cause: Clock = {}

    def run(self) -> tuple[Outcome, tuple[object, ...]]:
        """What the engine is told of the run, and its outcome."""
        while not self._machine.mismatch:
            self._place()
            if self._settle():
                continue
            options = self._options()
            if not options:
                break
            self._current = self._next(options)
            self._execute(self._current)
        return self._outcome(), self._machine.outcome()

    def _outcome(self) -> Outcome:
        pending = () if self._machine.mismatch else (task for task in self._live() if task.op is not None)
        return Outcome(
            self._world, tuple(self._trace), tuple(self._schedule),
            tuple(Returned(each) for each in self._machine.results()),
            pending=tuple(replace(task.op, clock=task.tick()) for task in pending if task.op is not None),
            cut=tuple(self._cut),
            looked=tuple(self._looked),
            lookers=tuple(self._lookers),
        )  # fmt: skip

    def _live(self) -> list[Task]:
        threads = self._machine.threads
        return [self._tasks[name] for name in sorted(self._tasks) if threads[name].stage != "over"]

    # Where threads have stopped.

    def _place(self) -> None:
        for name in sorted(self._machine.threads):
            if name not in self._tasks:
                rank = int(name.partition(".")[0])
                parent = self._tasks.get(name.rpartition(".")[0])
                self._tasks[name] = Task(name, dict(parent.clock) if parent else {})
                if "." in name:
                    self._shared.add(rank)
        for task in self._live():
            if not task.placed:
                self._stop(task)
            if task.op is not None and task.rank in self._shared and task.op.alone:
                task.op = replace(task.op, alone=False)

    def _stop(self, task: Task) -> None:
        """A thread has stopped since: at an op, unless it is answered without a choice or still waits in its call."""
        what = self._machine.next(task.name)[0]
        shared = task.rank in self._shared
        if what in _WAKES and not (shared and self._machine.able(task.name) and (what != "leave" or task.entered)):
            return
        if what == "exit" and not self._machine.able(task.name):
            return
        task.placed = True
        last = self._last.get(task.rank)
        _join(task.clock, self._cause, *([last.clock] if last is not None and last is not task else []))
        if (what in _ISSUES and not shared) or not self._has_descriptor(task):
            return
        op = self._ops.describe(task.name, alone=not shared)
        if what != "exit" or shared or op.places:
            task.op = op

    def _has_descriptor(self, task: Task) -> bool:
        """Whether the file that a thread is about to use is one that it has open: if not, it is told at once."""
        step, files = self._machine.next(task.name), dict(self._machine.threads[task.name].files)
        return step[0] not in THROUGH_DESCRIPTOR or step[1] in files

    def _settle(self) -> bool:
        """What no choice could change: of each rank one thread goes on."""
        answered: set[int] = set()
        for task in self._live():
            if task.rank not in answered and self._machine.threads[task.name].stage != "over" and self._answer(task):
                self._last[task.rank] = task
                answered.add(task.rank)
        return bool(answered)

    def _answer(self, task: Task) -> bool:
        what = self._machine.next(task.name)[0]
        if what == "leave":
            return not task.entered and self._leave(task)
        if task.op is not None:
            if is_step(task.op, self._relation):
                return False
            self._execute(task)
        elif what in _ISSUES:
            self._issue(task)
        elif task.placed and self._machine.able(task.name):
            self._go(task)
        else:
            return False
        return True

    def _issue(self, task: Task) -> None:
        self._go(task)
        if self._machine.mismatch:
            return
        key = self._machine.threads[task.name].inside
        parts = self._parts.setdefault(key, {})
        parts[task.rank] = task.tick()
        kind, ranks, root = self._machine.kinds[key]
        if set(parts) == set(ranks):
            clock: Clock = {}
            _join(clock, *parts.values())
            self._trace.append(Collective(_KINDS.get(kind, kind), str(ranks), key[2], ranks, root, clock))

    def _leave(self, task: Task) -> bool:
        """Let a thread out of a collective, if those have come for whom it waits."""
        key = self._machine.threads[task.name].inside
        kind, ranks, root = self._machine.kinds[key]
        needs = collectives.before(_KINDS.get(kind, kind), ranks, root, task.rank)
        if not self._machine.able(task.name) or not set(needs) <= self._parts[key].keys():
            return False
        _join(task.clock, *(self._parts[key][each] for each in needs))
        if task.rank in self._shared:
            task.entered = True
        else:
            self._go(task)
        return True

    def _go(self, task: Task) -> None:
        self._machine.step(task.name)
        task.op, task.placed, task.entered = None, False, False

    # What is chosen.

    def _options(self) -> list[Task]:
        able = [task for task in self._live() if task.op is not None and self._machine.able(task.name)]
        going = [task for task in able if task.op is not None and task.op.call not in _YIELDS]
        if self._current in going:
            going.remove(self._current)
            going.insert(0, self._current)
        return going + [task for task in able if task not in going]

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        index = self._choose(Point("next", ops, self._trace))
        self._schedule.append(Choice("next", len(ops), index, ops[index].label))
        return options[index]

    def _execute(self, task: Task) -> None:
        machine, what = self._machine, self._machine.next(task.name)
        op = self._ops.describe(task.name, alone=task.rank not in self._shared)
        self._last[task.rank] = task
        cut = [each for each in self._live() if each.op is not None and each is not task] if what[0] == "exit" else []
        clock = task.tick()
        if op.call == "store":
            self._learn(task, what)
        if what[0] in _ISSUES:
            self._trace.append(replace(op, result=Result(), clock=clock))
            self._issue(task)
        else:
            failures, before = sum(machine.met.values()), machine.threads[task.name]
            seen = machine.step(task.name)
            if what[0] in {"flock", "record"} and machine.threads[task.name] == before:
                self._begin_to_wait(task, op, clock)
                return
            fault = seen.errno if self._has_failed(failures) else ""
            result = Result(errno=seen.errno, digest=seen.text, value=1)
            self._trace.append(replace(op, result=result, clock=clock, fault=fault, time=machine.steps))
            if what[0] == "age":
                self._looked.add(machine.looked.get(task.name, -1))
                self._lookers.add(label(op))
            task.op, task.placed, task.entered = None, False, False
        for each in cut:
            if machine.threads[each.name].stage == "over" and each.op is not None:
                self._cut.append((len(self._trace) - 1, replace(each.op, clock=each.tick())))
        self._cause = clock

    def _begin_to_wait(self, task: Task, op: Op, clock: Clock) -> None:
        """The call is still to be answered."""
        self._trace.append(replace(op, args={**op.args, "waits": 1}, result=Result(), clock=clock))
        task.op = replace(op, args={**op.args, "waits": 2})
        self._cause = clock

    def _has_failed(self, before: int) -> bool:
        met, failures = self._machine.met, self._machine.program.failures
        return sum(met.values()) > before and any(met.get(at) == each.nth for at, each in enumerate(failures))

    def _learn(self, task: Task, what: tuple[object, ...]) -> None:
        """What a thread reads of the store comes after what was written there."""
        known = self._keys.setdefault(str(what[1]), {})
        if what[0] != "set":
            _join(task.clock, known)
        if what[0] not in {"get", "await", "check"}:
            _join(known, task.clock)


def _join(clock: Clock, *others: Mapping[str, int]) -> None:
    for other in others:
        for thread, count in other.items():
            clock[thread] = max(clock.get(thread, 0), count)
