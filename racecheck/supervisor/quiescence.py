"""Wait until the world is quiet.

After an op only its own rank may run, and it is known to be quiet when it stops again.  The kernel is asked
(`Sleepers`) only when a rank has not stopped after a while, and then about every thread of the world, since
the event that wakes a sleeper may be on its way.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Iterable
from dataclasses import replace

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.sleepers import Sleep, Sleepers
from racecheck.model.errors import CannotRun, OutOfTime
from racecheck.model.nouns import Died
from racecheck.sessions import disk
from racecheck.sessions.session import Session
from racecheck.supervisor.arrive.receive import Receiver
from racecheck.supervisor.calls import real_waits
from racecheck.supervisor.files.paths import check_ours
from racecheck.supervisor.run.ending import hear
from racecheck.supervisor.run.state import Over, RunState
from racecheck.supervisor.state.rank_parts import Phase
from racecheck.supervisor.state.tasks import Process, Rank, Task
from racecheck.supervisor.wait.gil import COMPUTES, Gil
from racecheck.supervisor.wait.memory_waits import MemoryWaits
from racecheck.supervisor.wait.outside_services import OutsideServices

_LOOK_AFTER, _LOOK_AGAIN = 1, 8
"""Milliseconds without news after which the kernel is asked, and the longest pause between two looks.  Looking all the
time would take the processor away from the threads that are looked at.
"""
_ON_ITS_WAY = 2 * 10**9
_FUTEX = syscalls.number("futex", libc.MACHINE)
_EPOLL_WAIT, _TICK = syscalls.number("epoll_wait", libc.MACHINE), 100
_COMPUTES = 1
"""Seconds that a thread may compute before those that wait for it, or for the GIL, continue."""
_LOOPS = 0.3
"""Seconds in which gloo's loop looks around by itself, also where the kernel is busy."""
_UNEXPLAINED = "unexplained waits (in-memory locks, sockets, or collectives that no hook sees)"


class Quiescence:
    """Waits for events."""

    def __init__(
        self, session: Session, state: RunState, receiver: Receiver, gil: Gil, memory_waits: MemoryWaits
    ) -> None:
        self._session, self._state, self._receiver = session, state, receiver
        self._poll = select.poll()
        self._poll.register(session.socket, select.POLLIN)
        self._ranks = {rank.wire.listener.descriptor: rank for rank in state.ranks if rank.wire.listener is not None}
        for descriptor in self._ranks:
            self._poll.register(descriptor, select.POLLIN)
        self._sleepers, self._gil, self._memory_waits = Sleepers(), gil, memory_waits
        self._children: dict[int, list[int]] = {}
        self._timed, self._now, self._events = 0, 0, -1
        self._killed_for_memory = proc.killed_for_memory()
        self._outside = OutsideServices(state.ranks, state.world.timeout)
        self._sound: dict[int, bytes] = {}
        self._since: dict[int, tuple[bytes, dict[int, bytes]]] = {}

    def wait(self) -> None:
        """Wait until nothing runs.  Threads whose wait for memory or a free GIL is over then continue one by one.

        Raises `Over` when a rank neither stops nor sleeps for as long as the world's timeout, and `OutOfTime`.
        """
        self._wait()
        while self._pass_on(self._state.ranks):
            self._wait()
        for rank in self._state.ranks:
            is_explained = any(task.inside is not None or task.is_held for task in rank.tasks.values())
            if rank.phase.is_asleep and not rank.gone and not rank.gil and not is_explained:
                self._state.ledger.note(_UNEXPLAINED)
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._session.until:
            raise OutOfTime

    def _wait(self) -> None:
        ranks, timeout = self._state.ranks, self._state.world.timeout
        for rank in ranks:
            if rank.phase is Phase.SLEEPS and not rank.gone:
                rank.stir()
        last, patience = time.monotonic(), self._patience()
        asked, computes = self._receiver.triage.asked, _COMPUTES
        while any(rank.phase.is_awaited for rank in ranks):
            if self._pump(patience):
                self._pass_on([rank for rank in ranks if rank.phase.is_awaited and self._is_waiting(rank)])
                patience = self._patience()
                if self._receiver.triage.asked == asked:  # a thread that keeps asking for the time makes no progress
                    last, computes = time.monotonic(), _COMPUTES
                asked = self._receiver.triage.asked
            elif not self._look():
                patience = min(2 * patience, _LOOK_AGAIN) or _LOOK_AFTER
            if time.monotonic() - last > computes:
                computes += _COMPUTES
                self._check_stopped()
                passed = [self._memory_waits.pass_on(rank) for rank in ranks]
                if self._gil.ask() or any(passed):
                    self._state.ledger.note(COMPUTES)
            self._check_time()
            if time.monotonic() - last > timeout:
                raise Over(f"no progress for {timeout:g} s: no op, no exit")

    def _pass_on(self, ranks: Iterable[Rank]) -> bool:
        """Let one thread of each rank continue that waits for a free GIL, or for memory that has changed.

        Returns whether there was one.
        """
        passed = [self._gil.pass_on(rank) or self._memory_waits.pass_on(rank) for rank in ranks]
        return any(passed)

    def _is_waiting(self, rank: Rank) -> bool:
        """Return whether all threads of a rank are known to have stopped, and none of them can wait for gloo's."""
        return rank.has_only_waiting and not self._state.collectives.is_open(rank.number)

    def _check_stopped(self) -> None:
        """Raise `Over` for a process that only a signal can continue: nobody could send that before it stops."""
        for rank in self._state.ranks:
            if rank.phase.is_awaited and any(map(proc.is_stopped, rank.processes)):
                raise Over(f"a process of rank {rank.number} is stopped, by SIGSTOP or a tracer: not controlled")

    def close(self) -> None:
        self._sleepers.close()

    def _patience(self) -> int:
        """Return no time if all threads that will stop have stopped, as far as known, or sleep as they did before."""
        going = any(rank.phase is Phase.RUNS and not rank.is_still for rank in self._state.ranks)
        return _LOOK_AFTER if going else 0

    def wait_for_timers(self) -> bool:
        """Wait for a sleeper whose wait has a limit in real time; returns whether one existed and something happened.

        (Or one has woken since all were asleep.)  Raises `Over` when such waits have taken as long as the world's
        timeout: a thread that asks forever follows virtual time in all else, and would continue for weeks.
        """
        ranks = [rank for rank in self._state.ranks if not rank.gone]
        tasks = [task for rank in ranks for task in rank.tasks.values()]
        met = {task.tid for task in tasks if task.started}
        children = [pid for rank in ranks for pid in self._children.get(rank.pid, ()) if pid not in met]
        timed = any(map(_is_timed, tasks)) or any(_sleeps_for_a_time(pid, pid) for pid in children)
        self._let_pass()
        if not timed and not any(rank.past.alarmed for rank in ranks):
            return any(map(_is_awake, tasks)) or self._looks_again(ranks)
        self._state.ledger.hole("a wait with a real-time limit")
        news = False
        while not news:
            news = self._pump(10)
            self._let_pass()
        return True

    def _looks_again(self, ranks: list[Rank]) -> bool:
        """Return whether something happens yet, although all sleep.

        Gloo's loop runs every 10 ms; the word that a thread waits for in memory may change only then.
        """
        waits = any(rank.phase.is_asleep or rank.waiting_for_memory or rank.gil for rank in ranks)
        end = time.monotonic() + (_LOOPS if waits else 0.0)
        while not (self._pass_on(ranks) or self._pump(10 if waits else 0)):
            if time.monotonic() >= end:
                return False
        return True

    def _let_pass(self) -> None:
        """Count the real time since the last call, if only waiting happened since."""
        timeout, events, now = self._state.world.timeout, len(self._state.trace), time.monotonic_ns()
        passed = now - self._now if events == self._events else 0
        self._events, self._now = events, now
        self._state.time.tick(self._state.time.elapsed + passed)
        self._timed += passed
        if self._timed > timeout * 1e9:
            raise Over(f"real-time waits took more than {timeout:g} s in total")

    def _pump(self, milliseconds: int) -> bool:
        """Take in events; returns whether there was one in this world."""
        news = False
        for descriptor, event in self._poll.poll(milliseconds):
            rank = self._ranks.get(descriptor)
            if rank is not None:
                news = True
                if event & select.POLLIN:
                    self._receiver.take(rank)
                else:
                    self._poll.unregister(descriptor)
            else:
                news |= self._hear_of_ends()
        return news

    def _hear_of_ends(self) -> bool:
        ended = self._session.gone(self._state.crew.number)
        for message in ended:
            self._gone(self._state.ranks[message["gone"]], message["status"])
        return bool(ended)

    def _gone(self, rank: Rank, status: int) -> None:
        if status == -signal.SIGKILL and proc.killed_for_memory() > self._killed_for_memory:
            raise CannotRun(f"the kernel killed rank {rank.number}, or another process, for want of memory")
        hear(rank)
        rank.end_with(status)
        rank.end.clock = rank.main.clock
        if rank.pid in rank.processes:
            self._release(rank.processes[rank.pid])
        self._state.end(task for task in rank.tasks.values() if task.process.is_main)
        rank.tasks = {tid: task for tid, task in rank.tasks.items() if not task.process.is_main}
        if isinstance(rank.end.result, Died):
            rank.end.result = replace(rank.end.result, output=disk.tail(self._state.crew.output / str(rank.number)))

    def _look(self) -> bool:
        """Ask the kernel whether all that may run sleeps; if so, everything is quiet.

        Where a rank sleeps and nothing explains it, any other may be about to wake it; else each matters for itself.
        """
        ranks = self._state.ranks
        if self._is_leaving():
            return False
        waiting = any(rank.phase.is_asleep or not rank.has_stopped for rank in ranks if not rank.gone)
        stopped = frozenset(task.tid for task in [*self._state.stopped_tasks(), *self._state.held_tasks()])
        stopped = stopped.union(*(rank.gil for rank in ranks), *(rank.waiting_for_memory for rank in ranks))
        if not waiting:
            stopped = stopped.union(*(rank.background for rank in ranks))
        sleep = self._asleep([rank for rank in ranks if waiting or rank.phase.is_awaited], stopped)
        if sleep is None or self._is_killing() or not self._is_sound(dict(sleep)):
            return False
        asleep = {tid for tid, _ in sleep}
        for rank in self._state.ranks:
            for task in rank.tasks.values():
                task.sleeps = task.tid in asleep
            if rank.phase.is_awaited:
                rank.phase = Phase.STILL if any(task.stands for task in rank.tasks.values()) else Phase.SLEEPS
            if not rank.single and not rank.gone:
                self._forget_ended(rank)
            if not rank.gone:
                self._note_deadlines(rank)
        return True

    def _note_deadlines(self, rank: Rank) -> None:
        """Return when the waits of a rank's threads for descriptors end by themselves."""
        for task in rank.tasks.values():
            if task.started and not task.is_held:
                known = [each for each in (task.deadline, real_waits.deadline(task)) if each]
                if known and task.inside is None:
                    self._state.ledger.untried("an earlier timeout of a wait for a descriptor")
                task.deadline = min(known, default=0)

    def _is_leaving(self) -> bool:
        """Return whether a thread is on its way out of a collective that all ranks have reached and none has left.

        What it waits for is on its way, be it in the kernel, unless a thread on either side waits for the GIL: that one
        continues when the holder does.  It is asked for `_ON_ITS_WAY` seconds at most: a program may break gloo's
        connections by means of its own.
        """
        leaving = [task for rank in self._state.ranks if not rank.gone for task in rank.tasks.values() if task.leaves]
        for task in leaving:
            instance = task.inside
            if instance is None or instance.missing or any(self._state.ranks[each].gone for each in instance.ranks):
                continue
            if time.monotonic_ns() < task.released + _ON_ITS_WAY and not any(
                self._state.ranks[each].gil for each in instance.ranks
            ):
                return True
        return False

    def _is_killing(self) -> bool:
        """Return whether a process that has just got a signal is about to end, or has ended and is still to be buried.

        The signal is on its way as long as its sender has not stopped: so this is asked once all else sleeps.  A thread
        that is stopped, and dies, first has SIGKILL pending (whatever ended its process) and then waits for no answer.
        """
        killing = [rank for rank in self._state.ranks if rank.past.kills and (rank.past.forked or not rank.gone)]
        for rank in killing:
            for pid in rank.processes:
                if (pid != rank.pid or not rank.gone) and (proc.has_ended(pid) or proc.is_dying(pid)):
                    return True
            if rank.wire.listener is not None and not all(map(rank.wire.listener.is_waiting, rank.unanswered)):
                return True
        for rank in killing:
            rank.past.kills = False
        return False

    def _asleep(self, ranks: list[Rank], stopped: frozenset[int]) -> Sleep | None:
        """Return how these ranks' threads sleep that are not known to have ``stopped``; None if one does not sleep.

        Processes are listed twice: one that was started behind the first list, by a thread that sleeps since, would not
        be looked at.
        """
        pids = self._processes(ranks)
        awaited = frozenset(rank.pid for rank in self._state.ranks)
        try:
            first = self._sleepers.look(pids, stopped, awaited)
        except OSError as error:
            check_ours(error.errno or 0)
            raise
        if first is None or self._poll.poll(0) or self._processes(ranks) != pids:
            return None
        if self._outside.is_awaited(first):
            return None
        return first if self._sleepers.look(pids, stopped, awaited) == first else None

    def _is_sound(self, sleep: dict[int, bytes]) -> bool:
        """Return whether no rank sleeps only until a library's thread (gloo's loop) next looks around by itself.

        Each of those has done so since the rank fell asleep, and since the others have left the collective that it is
        in: their messages may be on the way while nothing runs, where the kernel is busy.
        """
        for rank in self._state.ranks:
            stamp = self._stamp(rank, sleep)
            if rank.gone or not stamp or self._sound.get(rank.pid) == stamp:
                continue
            if rank.pid not in self._since or self._since[rank.pid][0] != stamp:
                self._since[rank.pid] = stamp, {tid: sleep[tid] for tid in self._looking(rank, sleep)}
            if any(sleep.get(tid) == before for tid, before in self._since[rank.pid][1].items()):
                return False
            self._sound[rank.pid] = stamp
        return True

    def _stamp(self, rank: Rank, sleep: dict[int, bytes]) -> bytes:
        """Return how the threads of a rank sleep, or are held, that something else can wake; empty if there is none."""
        own = [rank.pid, *self._children.get(rank.pid, ()), *(tid for tid, task in rank.tasks.items() if task.started)]
        asleep = [sleep[tid] for tid in sorted(set(own)) if tid in sleep]
        waits = [task.request for task in rank.tasks.values() if task.waits]
        waits += [task.wait for task in rank.tasks.values()]
        held = [str(each.id).encode() for each in waits if each is not None]
        held += [str(task.memory_wait.id).encode() for task in rank.tasks.values() if task.memory_wait is not None]
        return b" ".join([*asleep, *held]) + self._arriving(rank)

    def _looking(self, rank: Rank, sleep: dict[int, bytes]) -> list[int]:
        """Return the threads of libraries, in all processes of a rank, that look around by themselves."""
        pids = [rank.pid, *self._children.get(rank.pid, ())]
        hidden = [(pid, tid) for pid in pids for tid in proc.threads(pid) if tid in sleep]
        known = {tid for tid, task in rank.tasks.items() if task.started}
        return [tid for pid, tid in hidden if tid not in known and _ticks(pid, tid)]

    def _arriving(self, rank: Rank) -> bytes:
        """Return the collectives that threads of a rank are in, and the threads that may still be in them."""
        inside = [task.inside for task in rank.tasks.values() if task.inside is not None]
        tasks = [task for each in self._state.ranks for task in each.tasks.values()]
        return "".join(f"{each} {[task.name for task in tasks if task.inside is each]}" for each in inside).encode()

    def _forget_ended(self, rank: Rank) -> None:
        """Note threads of the rank that are gone; it may have a single one again."""
        threads = frozenset(proc.threads(rank.pid)) - rank.background
        rank.tasks = {tid: each for tid, each in rank.tasks.items() if tid in threads or not each.process.is_main}
        rank.single = rank.unborn is None and threads == {rank.pid} and not self._children.get(rank.pid)

    def _processes(self, ranks: list[Rank]) -> list[int]:
        found = []
        for rank in ranks:
            if not rank.gone:
                found.append(rank.pid)
            if rank.past.forked:
                self._bury(rank)
                children = self._children[rank.pid] = self._descendants(rank)
                found += children
        return found

    def _descendants(self, rank: Rank) -> list[int]:
        """Return the processes of a rank, and those among them whose parent has ended."""
        found = dict.fromkeys(proc.descendants(rank.pid))
        for pid in {**rank.processes, **dict.fromkeys(self._children.get(rank.pid, ()))}:
            if pid != rank.pid and pid not in found and not proc.has_ended(pid):
                found.update(dict.fromkeys([pid, *proc.descendants(pid)]))
        return [*found]

    def _bury(self, rank: Rank) -> None:
        """Note child processes that have ended: their descriptors and locks are released."""
        for pid, process in list(rank.processes.items()):
            if pid != rank.pid and proc.has_ended(pid):
                self._release(process)
                del rank.processes[pid]
                ended = [task for task in rank.tasks.values() if task.process is process]
                self._state.end(ended)
                rank.drop(ended)

    def _release(self, process: Process) -> None:
        locks = self._state.locks
        locks.release(process)
        for file in process.descriptors.drop_all():
            locks.release(file)


def _is_timed(task: Task) -> bool:
    """Return whether a thread of the program sleeps in a call with a time limit, other than a collective's, a futex."""
    call = proc.stopped_call(task.process.pid, task.tid) if task.started and not task.is_held else None
    return call is not None and real_waits.has_timeout(*call) and (task.inside is None or call[0] != _FUTEX)


def _is_awake(task: Task) -> bool:
    """Return whether one of the program's threads runs."""
    is_free = task.started and not task.is_held and task.tid in proc.threads(task.process.pid)
    return is_free and proc.stopped_call(task.process.pid, task.tid) is None


def _sleeps_for_a_time(pid: int, tid: int) -> bool:
    call = proc.stopped_call(pid, tid)
    return call is not None and real_waits.has_timeout(*call)


def _ticks(pid: int, tid: int) -> bool:
    """Return whether a thread looks around several times a second, as gloo's loop does, or does so at this moment."""
    call = proc.stopped_call(pid, tid)
    return call is None or (call[0] == _EPOLL_WAIT and 0 < call[1][3] <= _TICK)
