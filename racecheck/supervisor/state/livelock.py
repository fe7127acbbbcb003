"""A livelock: each rank that could continue only repeats its questions, gets the same answers, and sleeps.

Nothing that is pending can change an answer then.  But a loop may count its turns, or look at a clock, and give up.  So
when the same questions have been asked for long enough, ranks tell of each look at a clock, and of the values that
their functions hold whenever they sleep (`racecheck.agent.loop_state`).  If no clock is looked at, and the
values stay the same, the loops have no end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from racecheck.model.nouns import Event, Op
from racecheck.scheduling.fairness import asks
from racecheck.supervisor.state.tasks import Task
from racecheck.supervisor.state.virtual_time import VirtualTime

_LONG = 50
"""After this many sleeps without news, threads are watched closely."""
_SAME = 3
"""If each state of a thread has come this often, its loop counts nothing."""


class Livelock:
    """Knows the ops of a run, and the looks at clocks and states that ranks tell of while they are asked to."""

    def __init__(self, time: VirtualTime) -> None:
        self._time, self._noted = time, 0
        self._sleeps: Counter[str] = Counter()
        self._answers: dict[tuple[str, ...], tuple[object, ...]] = {}
        self._last: dict[int, str] = {}
        self._states: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def _note(self, event: Event) -> None:
        if not isinstance(event, Op) or event.result is None or not (event.call == "sleep" or asks(event)):
            self.reset()
            return
        if event.call == "sleep":
            self._sleeps[event.thread] += 1
            return
        question = event.thread, event.label, event.syscall
        answer = event.result.errno, event.result.value, event.result.digest
        if self._answers.setdefault(question, answer) != answer:
            self.reset()
        self._last[event.rank] = f"{event.call} {event.path} ({event.result.errno or 'always the same'})"

    def reset(self) -> None:
        """Begin again: something has changed, or a program has looked at a clock."""
        self._sleeps.clear()
        self._answers.clear()
        self._last.clear()
        self._states.clear()
        self._time.watch_closely(is_on=False)

    def look(self, thread: str, state: str) -> None:
        """Take the state with which a thread goes to sleep."""
        self._states[thread][state] += 1

    def is_certain(self, going: Sequence[Task], trace: Sequence[Event]) -> bool:
        """Return whether all threads that could continue are in a loop without an end, after the events of a trace."""
        for event in trace[self._noted :]:
            self._note(event)
        self._noted = len(trace)
        threads = {task.name for task in going}
        if not threads or not all(self._sleeps[thread] >= _LONG for thread in threads):
            return False
        self._time.watch_closely(is_on=True)
        states = [self._states[thread].values() for thread in threads]
        return all(min(each, default=0) >= _SAME for each in states)

    def said(self, rank: int) -> str:
        """Return the last question of a rank, "" if it has only slept."""
        return self._last.get(rank, "")
