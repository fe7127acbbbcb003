"""Dynamic partial order reduction: one run of each set of equivalent interleavings, and no more.

Source sets with sleep sets (Abdulla, Aronis, Jonsson, Sagonas: "Source Sets: A Foundation for Optimal Dynamic Partial
Order Reduction", JACM 2017).  Each run is looked at for races that could have gone the other way; where one could, a
thread is entered at the point before it, to go first there in a later run.  A thread that has gone first at a point
*sleeps* in the runs that follow, until something is done that depends on what it did there: as long as it sleeps, to
let it go would only repeat a run that has been.

A wakeup tree would spare the runs in which at last everybody sleeps; they are few, and counted as redundant.  Such a
run continues to its end all the same: a thread that waits there in vain for a key or a lock may show a new race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from racecheck.model.errors import InternalError
from racecheck.model.nouns import Event, Op, Outcome, Point
from racecheck.model.ops.footprint import Dependence, Footprint, depends
from racecheck.scheduling.claims import Claim, of_run
from racecheck.scheduling.fairness import TURN
from racecheck.scheduling.file_times import Timed
from racecheck.scheduling.happens_before import Order, Step, is_step, yields
from racecheck.scheduling.strategies.protocol import Answered, Diverged, Prefix, Strategy

_POLLS = "a thread polls; what it does when it gives up was not tried"
_SLEEPS = "a sleep ends at most 5 s before runnable ops"
_TIMES = "no two changes set the same file time"
_ASKS = {
    "test": "a rank polled Work.is_completed(); the other answer was not tried",
}


@dataclass(slots=True)
class Node:
    """A point of a run."""

    step: int
    """The number of the run's step that follows."""
    options: dict[str, str]
    """The labels of the pending ops, by thread."""
    asleep: dict[str, Footprint]
    """Threads that would repeat a run if they went first here."""
    chosen: str
    back: list[str]
    """The threads that have to go first here in some run, in the order of their turn."""
    done: dict[str, Footprint] = field(default_factory=dict)
    """The threads that have gone first here, with the footprints of their steps."""

    @property
    def left(self) -> list[str]:
        """Return the threads that are to go first here in runs to come."""
        return [each for each in self.back if each not in self.done and each not in self.asleep]

    def enter(self, able: Sequence[str]) -> None:
        """Have the first of these threads go first in a run to come, if none of them does or sleeps."""
        if able and not any(each in self.back or each in self.asleep for each in able):
            self.back.append(able[0])


@dataclass(slots=True)
class DporProgress:
    """How far a search is: all that is needed to continue it.

    ``nodes`` are the points of the last run at which something is left to try, and of those before it; ``known`` has
    each step of that run, with its result.  ``bounds`` and ``doubts`` are the limits of the claim, and the reasons
    why it is no proof.  ``timed`` are the ops whose order a program has learned from times of files.
    ``cheap``: the threads of a rank are taken to share only what is controlled; ``shared``: a rank has had threads;
    ``first`` is the result of the cheap proof before it (`racecheck.scheduling.strategies.staged`).
    """

    traces: int = 0
    redundant: int = 0
    steps: int = 0
    nodes: list[Node] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    bounds: set[str] = field(default_factory=set)
    doubts: set[str] = field(default_factory=set)
    timed: set[str] = field(default_factory=set)
    cheap: bool = False
    shared: bool = False
    first: Claim | None = None

    @property
    def left(self) -> int:
        """Return how many threads are known that have to go first at some point in runs to come."""
        return sum(len(node.left) for node in self.nodes)

    @property
    def covered(self) -> float:
        """Return the completed part, from 0 to 1: an estimate, as if nothing more were found, in equal branches."""
        share, done = 1.0, 0.0
        for node in self.nodes:
            share /= max(1, len({*node.back, *node.done}))
            done += share * (len(node.done) - 1)
        return min(1.0, done + share)


class DPOR(Strategy):
    """Ends by itself; its claim then says whether everything has been covered.

    ``progress`` may be that of an earlier search, to continue.
    """

    def __init__(self, relation: Dependence, progress: DporProgress | None = None) -> None:
        self.progress = progress or DporProgress()
        self._of_world = relation
        self._relation = Timed(relation, self.progress.timed)
        self._order = Order(self._relation)
        self._going = False

    def begin(self, rng: Random) -> bool:
        del rng
        nodes = self.progress.nodes
        if self.progress.traces or self.progress.redundant:
            while nodes and not nodes[-1].left:
                nodes.pop()
            if not nodes:
                return False
            nodes[-1].chosen = nodes[-1].left[0]
        self._kept, self._going, self._doubts_before = len(nodes), True, {*self.progress.doubts}
        self._order = Order(self._relation)
        self._seen, self._depth, self._first_new = 0, 0, nodes[-1].step if nodes else 0
        self._at: Node | None = None
        self._asleep: dict[str, Footprint] = {}
        self._repeats_from = -1
        return True

    def choose(self, point: Point) -> int:
        self._follow(point.trace)
        options, nodes = {op.thread: op for op in point.options}, self.progress.nodes
        if self._depth == len(nodes):
            if self._is_told(options):
                self._repeat(len(self._order.steps))
            if self._repeats:
                return [*options].index(self._prefer(options))
            nodes.append(self._enter(options))
        self._at = node = nodes[self._depth]
        self._depth += 1
        if _labels(options) != node.options:
            before, now = (", ".join(each.values()) for each in (node.options, _labels(options)))
            raise Diverged(_difference(node.step, before, now))
        return [*options].index(node.chosen)

    def end(self, outcome: Outcome) -> None:
        if self._relation.learn(outcome):
            self._start_again()
            return
        self._follow(outcome.trace)
        self.progress.doubts |= {*of_run(outcome).doubts}
        self._look_back(self._cut_short(outcome.pending) if self._repeats else outcome.pending)
        for index, op in outcome.cut:
            order = Order(self._relation)
            order.extend(outcome.trace[: index + 1])
            if len(order.steps) <= len(self._order.steps):
                self._reverse_all(order, order.imagine(op))

    def _start_again(self) -> None:
        """Return whether more ops depend on each other than the runs so far took into account."""
        old = self.progress
        self.progress = replace(
            old, traces=0, redundant=0, nodes=[], known=[], bounds={*old.bounds, _TIMES},
        )  # fmt: skip
        self._going = False

    def abandon(self) -> None:
        """Forget the run under way: its races have not been examined, so a search that continues repeats it."""
        nodes = self.progress.nodes
        if not self._going:
            return
        del nodes[self._kept :]
        if nodes:
            nodes[-1].done.pop(nodes[-1].chosen, None)
        self.progress.doubts &= self._doubts_before
        self._going = False

    # Subtrees that others may try first.

    @property
    def prefix(self) -> Prefix:
        return tuple((node.step, node.chosen) for node in self.progress.nodes)

    def subtrees(self) -> Iterator[tuple[Prefix, Strategy]]:
        nodes = self.progress.nodes
        for depth in reversed(range(len(nodes))):
            node, before = nodes[depth], self.prefix[:depth]
            done = {**node.done}
            for thread in node.left:
                yield (*before, (node.step, thread)), self._subtree(depth, thread, done)
                touched = self._next_touched(node.step, thread)
                if touched is None:
                    break
                done[thread] = touched

    def may_come(self, prefix: Prefix) -> bool:
        nodes = self.progress.nodes
        for node, (step, thread) in zip(nodes, prefix, strict=False):
            if (node.step, node.chosen) != (step, thread):
                return node.step == step and thread not in node.done and thread not in node.asleep
        return len(prefix) > len(nodes)

    def _subtree(self, depth: int, thread: str, done: dict[str, Footprint]) -> DPOR:
        """Return a search that begins with ``thread`` at a node, once the threads of ``done`` have gone first there."""
        nodes = [replace(each, back=[*each.back], done={**each.done}) for each in self.progress.nodes[:depth]]
        root = replace(self.progress.nodes[depth], back=[thread], done={**done})
        return DPOR(self._of_world, DporProgress(
            traces=1, nodes=[*nodes, root], known=self.progress.known[: root.step], timed={*self.progress.timed},
        ))  # fmt: skip

    def _next_touched(self, step: int, thread: str) -> Footprint | None:
        """Return the footprint of a thread's op that was pending before a step of the last run, if it went at all."""
        return next((each.footprint for each in self._order.steps[step:] if each.op.thread == thread), None)

    def takes(self, points: Sequence[Answered]) -> bool:
        try:
            if all(self.choose(point) == index for point, index in points):
                return True
        except Diverged:
            pass  # the run that is made in its place says so
        self.abandon()
        self.begin(Random(0))
        return False

    def claim(self) -> Claim:
        progress = self.progress
        return Claim(
            True, progress.traces, progress.redundant, self._left(),
            conditions=tuple(sorted(progress.bounds)), doubts=tuple(sorted(progress.doubts)),
        )  # fmt: skip

    def _left(self) -> str:
        """Say how much is yet to be tried."""
        left = self.progress.left
        if not self.progress.traces and not self.progress.redundant:
            return "no schedule was run" + " since the search began again" * bool(self.progress.bounds)
        about = f"about {self.progress.covered:.0%} done"
        return f"{left} branch{'es' * (left != 1)} left to try, {about}" if left else ""

    # One run.

    def _follow(self, trace: Sequence[Event]) -> None:
        """Take in what has happened since the last point."""
        for event in trace[self._seen :]:
            if isinstance(event, Op):
                self.progress.doubts |= {_ASKS[each] for each in (event.call, event.syscall) if each in _ASKS}
                if is_step(event, self._relation):
                    self._take(self._order.add(event))
        self._seen = len(trace)

    def _take(self, step: Step) -> None:
        self._compare(step)
        thread, node = step.op.thread, self._at
        if node is not None:
            self._asleep = {**node.asleep, **node.done}
            self._asleep.pop(thread, None)
            node.done[thread], self._at = step.footprint, None
        elif thread in self._asleep:
            self._repeat(len(self._order.steps) - 1)
        self._asleep = {each: touched for each, touched in self._asleep.items() if not depends(touched, step.footprint)}

    @property
    def _repeats(self) -> bool:
        return self._repeats_from >= 0

    def _repeat(self, step: int) -> None:
        """Return the step up to which this run repeats an earlier one."""
        if not self._repeats:
            self._repeats_from, self._asleep_then = step, {*self._asleep}

    def _compare(self, step: Step) -> None:
        """Check that this run equals the last one until it is new; raises `Diverged`."""
        op, index = step.op, len(self._order.steps) - 1
        ended = (op.result.errno or f"ok {op.result.value} {op.result.digest}") if op.result else ""
        known, now = self.progress.known, f"{op.label} ({op.syscall}): {ended}".rstrip()
        if index >= self._first_new:
            known[index:] = [now]
        elif now != known[index]:
            raise Diverged(_difference(index, known[index], now))

    def _is_told(self, options: dict[str, Op]) -> bool:
        """Return whether all threads that could continue sleep, except for those that poll for one of them."""
        awake = [op for thread, op in options.items() if thread not in self._asleep]
        is_told = len(awake) < len(options) and all(self._order.is_vain(op) for op in awake)
        if is_told and awake:
            self.progress.doubts.add(_POLLS)
        return is_told

    def _enter(self, options: dict[str, Op]) -> Node:
        """Make a new point: a thread that does not sleep continues."""
        chosen = self._prefer({thread: op for thread, op in options.items() if thread not in self._asleep})
        return Node(len(self._order.steps), _labels(options), dict(self._asleep), chosen, [chosen])

    def _prefer(self, options: dict[str, Op]) -> str:
        """Return the thread that continues: the one that went last, unless it only waits."""
        busy = [thread for thread, op in options.items() if not yields(op) and not self._order.is_vain(op)]
        return (busy or [*options])[-1 if self._streak() >= TURN else 0]

    def _streak(self) -> int:
        """Return for how many steps the thread that went last has continued, up to `TURN`."""
        last = [step.op.thread for step in self._order.steps[-TURN:]]
        return next((count for count, thread in enumerate(reversed(last)) if thread != last[-1]), len(last))

    def _look_back(self, pending: Iterable[Op]) -> None:
        """Note which thread has to go first where, for each race that this run was the first to have."""
        progress, self._going = self.progress, False
        steps = [*self._order.steps[self._first_new :], *(self._order.imagine(op) for op in pending)]
        for step in steps:
            self._reverse_all(self._order, step)
        progress.doubts |= {_POLLS} if self._order.has_polls else set()
        self._reverse_hidden()
        progress.traces += not self._repeats
        progress.redundant += self._repeats
        progress.steps = max(progress.steps, len(self._order.steps))

    def _cut_short(self, pending: Iterable[Op]) -> list[Op]:
        """Forget earlier runs; returns the ops that waited in vain when no other thread was left."""
        whole, self._order = self._order, Order(self._relation)
        for step in whole.steps[: self._repeats_from]:
            self._order.add(step.op)
        next_ones = {
            op.thread: op for op in (*pending, *(step.op for step in whole.steps[: self._repeats_from - 1 : -1]))
        }
        return [
            op
            for thread, op in next_ones.items()
            if thread not in self._asleep_then and all(each < self._repeats_from for each in whole.last_before(op))
        ]

    def _reverse_all(self, order: Order, step: Step) -> None:
        at = {node.step: node for node in self.progress.nodes}
        for index in step.races:
            self._reverse(order, at.get(index), index, step)

    def _reverse(self, order: Order, node: Node | None, index: int, step: Step) -> None:
        """Have the race of a step with an earlier one go the other way in a run to come, if none has had it so."""
        initials = order.initials(index, step)
        able = [each for each in initials if node is not None and each in node.options]
        if node is None or not able:
            if not any(self._sleeps(each, index, step.op) for each in initials):
                first = self._order.steps[index].op.label
                raise InternalError(f"{step.op.label} was in a race with {first}, but can never come first")
            self.progress.bounds.add(_SLEEPS)
        else:
            node.enter(sorted(able, key=lambda each: each != step.op.thread))

    def _reverse_hidden(self) -> None:
        """Have the ops on which a failed op would have depended come before it in a run to come.

        An op that fails touches less than it would if the op that made it fail came later: then it depends on others,
        too, and these may come first.
        """
        at, order = {node.step: node for node in self.progress.nodes}, self._order
        for number, step in enumerate(order.steps):
            most = self._relation.footprint(replace(step.op, result=None))
            if most == step.footprint:
                continue
            for first, node in ((each, at[each]) for each in step.races if each in at):
                for begin in order.hidden(first, number, most):
                    node.enter([each for each in begin if each in node.options])

    def _sleeps(self, thread: str, index: int, last: Op) -> bool:
        """Return whether an op of a thread from there on, up to the ``last``, is one that lets others go first."""
        ops = [*(step.op for step in self._order.steps[index:]), last]
        return any(yields(op) for op in ops if op.thread == thread)


def _labels(options: dict[str, Op]) -> dict[str, str]:
    return {thread: op.label for thread, op in options.items()}


def _difference(step: int, before: str, now: str) -> str:
    return f"step {step}: {before}, now {now}"
