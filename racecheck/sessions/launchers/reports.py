"""The processes that a launcher starts report in a directory: wait for as many as there are ranks."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import accelerate, identity, scripts, wrapping
from racecheck.targets.programs import IDENTITY

_SECONDS = 120
_IN_SCRIPT = 60
"""Seconds for a script to start its launcher, which may come after other work."""
_AFTER = 5.0
"""How many seconds a script is watched for another launcher after its job has been taken down."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process that the launcher started, as it was when it had not run anything yet.

    A script that is its own launcher ``starts`` that many, and ``forks`` them.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    interpreter: str
    starts: int | None = None
    forks: bool = False

    @property
    def rank(self) -> int | None:
        """Return which rank it is, None if it is none."""
        return identity.rank(self.environment)


def is_started_by_itself(one: Started) -> bool:
    """Return whether a process runs the script that has started it, as another rank."""
    return one.starts is None and (one.rank is not None or "LOCAL_RANK" in one.environment)


def launcher_words(place: Path) -> Sequence[str]:
    """Return the command of the launcher that has begun, () if none has."""
    try:
        return wrapping.words_of(json.loads((place / "launcher").read_text()))
    except (FileNotFoundError, ValueError):
        return ()


class Reports:
    """Waits for the processes that a ``command`` starts, which report in a directory.

    ``see`` is called when all ranks have reported and none has ended: nothing that comes after them has begun.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], place: Path, command: Sequence[str], see: Callable[[], None]
    ) -> None:
        self._place, self._command, self._inner, self._see = place, command, wrapping.inner(command), see
        self._process, self._poll, self._seen = process, select.poll(), -1
        self._said = " ".join(command)
        self._is_script = scripts.is_it(self._inner)
        self._has_more = self._is_script or wrapping.is_it(command)

    def listen(self) -> list[Started]:
        """Return the processes when as many have reported as the first one says there are, or none will."""
        news, self._seen = (os.open(self._place / name, os.O_RDWR | os.O_NONBLOCK) for name in ("news", "seen"))
        over = os.pidfd_open(self._process.pid)
        try:
            for each in (news, over):
                self._poll.register(each, select.POLLIN)
            return self._script(news, over) if self._is_script else self._ranks(news, over)
        finally:
            for each in (news, self._seen, over):
                os.close(each)

    def _until(self, news: int, over: int, end: float) -> Iterator[tuple[bool, list[Started]]]:
        """Yield now, and at each report, whether the command has ended, and the processes that have reported so far."""
        yield False, [_read(each) for each in self._place.glob("*.json")]
        while (left := end - time.monotonic()) > 0:
            ready = {each for each, _ in self._poll.poll(left * 1000)}
            if news in ready:
                os.read(news, 4096)
            yield over in ready, [_read(each) for each in self._place.glob("*.json")]

    def _script(self, news: int, over: int) -> list[Started]:
        for is_over, found in self._until(news, over, time.monotonic() + _SECONDS):
            others = [each for each in found if is_started_by_itself(each)]
            if launcher_words(self._place) or any(map(self._is_other_program, others)):
                return self._ranks(news, over)
            if others:
                return self._started_by_itself(others, news, over)
            if is_over:
                return found
        raise UsageError(f"{self._said} started no rank and had not ended after {_SECONDS} s")

    def _is_other_program(self, one: Started) -> bool:
        """Return whether a process runs another program than the script does that has started it."""
        ours, its = (Path("".join(scripts.program(each)[:2])).name for each in (self._inner[1:], one.arguments))
        return ours != its

    def _started_by_itself(self, others: list[Started], news: int, over: int) -> list[Started]:
        """Return the processes that a script started again to be its other ranks, when all have reported."""
        due = int(others[0].environment.get("WORLD_SIZE", 0)) - 1
        if len(others) == due:
            return others
        for _, found in self._until(news, over, time.monotonic() + _AFTER):
            others = [each for each in found if is_started_by_itself(each)]
            if len(others) == due:
                break
        return others

    def _ranks(self, news: int, over: int) -> list[Started]:
        for is_over, found in self._until(news, over, time.monotonic() + (_SECONDS if self._inner else _IN_SCRIPT)):
            if self._has_more:
                wrapping.check_options(launcher_words(self._place))
            ranks = [each for each in found if each.rank is not None]
            strange = next((each for each in found if each.rank is None and each.starts is None), None)
            if strange is not None and accelerate.is_it(launcher_words(self._place) or self._inner):
                ranks = _in_place_of(strange, accelerate.processes(launcher_words(self._place) or self._inner))
            elif strange is not None and not self._has_more:
                raise UsageError(f"the launcher started something that is no rank: {shown(*strange.arguments)}")
            if is_over or (ranks and len(ranks) >= size_of(ranks[0])):
                self._see()
                os.write(self._seen, b".")  # which nobody reads: it wakes every rank
                if ranks and not is_over and (self._is_script or not self._inner):
                    self._look_for_another_job(news, over)
                return sorted(ranks, key=lambda each: each.rank or 0)
        if self._has_more:
            raise UsageError(
                f"{self._said} started no rank in {_IN_SCRIPT} s: name its launcher here, such as torchrun"
            )
        raise UsageError(
            f"the launcher has not started its ranks after {_SECONDS} s; racecheck runs one machine's ranks"
        )

    def _two_jobs(self, which: str) -> UsageError:
        return UsageError(f"{self._said} starts two jobs: {which}; name one of them as the command")

    def _look_for_another_job(self, news: int, over: int) -> None:
        """Raise `UsageError` if a script goes on with a second launcher."""
        first = " ".join(launcher_words(self._place))
        for is_over, found in self._until(news, over, time.monotonic() + _AFTER):
            others = [["python", *each.arguments] for each in found if each.rank is None and each.starts is None]
            other = next((words for each in others if wrapping.begins_with(words := wrapping.words_of(each))), None)
            if other is not None:
                raise self._two_jobs(f"{first}, and then {' '.join(other)}")
            ranks = [each for each in found if each.rank is not None]
            if ranks and len(ranks) > size_of(ranks[0]):
                raise self._two_jobs(f"more than the {size_of(ranks[0])} ranks of the first one were started")
            if is_over:
                return


def _read(report: Path) -> Started:
    data = json.loads(report.read_text())
    return Started(**{**data, "arguments": tuple(data["arguments"])})


def size_of(rank: Started) -> int:
    """Return how many ranks there are, as one of them was told; raises `UsageError` if it was not."""
    if (size := identity.size(rank.environment)) is None:
        raise UsageError(f"a process has RANK and no WORLD_SIZE: {shown(*rank.arguments)}")
    return size


def _in_place_of(one: Started, count: int) -> list[Started]:
    """Return the ranks that a launcher would have started, had it started more than one."""
    size = {name: str(count) for name in IDENTITY if name.endswith("WORLD_SIZE")}
    return [replace(one, environment={**one.environment, **size, "RANK": str(rank)}) for rank in range(count)]


def shown(*words: object) -> str:
    """Return words as a message can show them."""
    return " ".join(repr(each) if isinstance(each, str) else str(each) for each in words)[:200]
