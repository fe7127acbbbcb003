"""The real launcher and racecheck's: one run by each, in the same order, compared op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from random import Random

from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import run, warm_up
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Died, Op, Outcome, RankResult, Returned, Stopped, Verdict
from racecheck.model.ops import op_kinds
from racecheck.model.ops.file_ops import is_on_file
from racecheck.model.ops.unstable_names import Names, learn
from racecheck.scheduling.strategies.following.observed import Observed
from racecheck.sessions.session import Session
from racecheck.supervisor.free import observed_launch
from racecheck.supervisor.free.observed_launch import RealRun
from racecheck.targets.programs import Program

_LOCKS = op_kinds.LOCKS
_BY_SIGNAL = "ended by a signal"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two runs differ: ``real`` and ``emulated`` are the events there, "" for nothing."""

    rank: int
    real: str
    emulated: str


@dataclass(frozen=True, slots=True)
class LauncherCheck:
    """The ``ops`` in the watched directory of a launcher's ``ranks`` ranks, and where racecheck's run differs.

    ``killed`` are ranks that a signal ended in the launcher's first run and not in its second, the one compared.
    """

    launcher: str
    ranks: int
    ops: int
    differences: tuple[Difference, ...]
    killed: tuple[int, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAIL if self.differences else Verdict.PASS


def check_launcher(session: Session, program: Program, *, seed: str) -> LauncherCheck:
    """Run a program by its real launcher, and then as racecheck runs it, with the ops in the same order.

    Compared are the ops of each rank on watched files, with errno and number of bytes, and the exit statuses.
    If a signal ended ranks in the real run alone, a second real run is compared: some processes with a gloo group abort
    at their exit (``terminate called without an active exception``), by luck.
    Raises `CannotRun` if one of the runs was impossible.
    """
    session.load(program.reference)
    warm_up(session, RunRequest.of(program, program.world, Observed(()), seed=seed))

    def emulate(seed: str, order: Sequence[int]) -> Outcome:
        strategy = Observed(order)
        strategy.begin(Random(0))
        return run(session, RunRequest.of(program, program.world, strategy, seed=seed))

    command, directory = program.launch.command, program.launch.directory

    def compare() -> LauncherCheck:
        real = observed_launch.run(session, program.reference, command, directory, program.world)
        order = [op.rank for op in real.ops]
        emulated = emulate(seed, order)
        found = differences(real, emulated)
        if found:
            found = without_luck(real, emulated, emulate(f"{seed} again", order))
        return LauncherCheck(Path(command[0]).name, program.launch.ranks, len(real.ops), tuple(found))

    check_followed(emulate(seed, ()))
    return without_lucky_ends(compare(), compare)


def without_lucky_ends(first: LauncherCheck, compare: Callable[[], LauncherCheck]) -> LauncherCheck:
    """Return a comparison, or a second one if the first differs only in that a signal ended ranks: the ``killed``."""
    if not first.differences or any(each.real != _BY_SIGNAL for each in first.differences):
        return first
    second = compare()
    ends = {each.rank for each in second.differences if each.real == _BY_SIGNAL}
    return replace(second, killed=tuple(each.rank for each in first.differences if each.rank not in ends))


def without_luck(real: RealRun, emulated: Outcome, other: Outcome) -> list[Difference]:
    """Return the differences, but for those that a run with another seed shows as well: random names, and results."""
    patterns = learn([emulated, other])
    by_luck = {(each.rank, each.emulated) for each in _of_ops(other.ops, emulated, patterns) if each.real}
    found = differences(real, emulated, patterns)
    return [each for each in found if not each.real or (each.rank, each.emulated) not in by_luck]


def check_followed(run: Outcome) -> None:
    """Raise `CannotRun` for a program with deeds in which a real run cannot be followed: the check would make it up."""
    ops = [op for op in run.ops if is_on_file(op)]
    for is_there, what in (
        (any(op.call in _LOCKS for op in ops), "locks files"),
        (any(op.thread != str(op.rank) for op in ops), "uses files in several threads or processes of a rank"),
    ):
        if is_there:
            raise CannotRun(f"the program {what}: --check-launcher follows ranks with one thread and no locks")


def differences(real: RealRun, emulated: Outcome, patterns: Sequence[str] = ()) -> list[Difference]:
    """Return where the runs differ; ``patterns`` are of names that differ from run to run."""
    found = [*_of_ops(real.ops, emulated, patterns)]
    for rank, result in enumerate(emulated.results):
        found += _between_ends(rank, real.statuses.get(rank), result)
    return found


def _of_ops(ops: Sequence[Op], emulated: Outcome, patterns: Sequence[str]) -> Iterator[Difference]:
    for rank in range(len(emulated.results)):
        own = [_named([op for op in each if is_on_file(op) and op.rank == rank], patterns)
               for each in (ops, emulated.ops)]  # fmt: skip
        yield from _between(rank, *own)


def _named(ops: Sequence[Op], patterns: Sequence[str]) -> list[Op]:
    """Return ops with names that fit a pattern as they are shown."""
    names = Names(patterns)
    for op in ops:
        for place in op.places:
            names.meet(str(op.rank), place.path)
    return [replace(op, places=names.cover(op.places)) for op in ops]


def _between(rank: int, real: Sequence[Op], emulated: Sequence[Op]) -> Iterator[Difference]:
    """Yield where the ops of a rank differ."""
    ours, theirs = [*map(_name, emulated)], [*map(_name, real)]
    for kind, start, stop, begin, end in SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        if kind == "equal":
            for one, other in zip(real[start:stop], emulated[begin:end], strict=True):
                if _result(one) and _result(other) and _result(one) != _result(other):
                    yield Difference(rank, _said(one), _said(other))
        else:
            yield from (Difference(rank, _said(op), "") for op in real[start:stop])
            yield from (Difference(rank, "", _said(op)) for op in emulated[begin:end])


def _between_ends(rank: int, status: int | None, result: RankResult) -> Iterator[Difference]:
    real = f"exit status {status}" if status is not None else _BY_SIGNAL
    ours = f"exit status {result.status if isinstance(result, Died) else int(not isinstance(result, Returned))}"
    if isinstance(result, Stopped) or (isinstance(result, Died) and result.signal):
        ours = _BY_SIGNAL
    if real != ours:
        yield Difference(rank, real, ours)


def _name(op: Op) -> str:
    flags = " ".join(op.flags)
    return f"{op.call} {' -> '.join(place.path for place in op.places)} {flags}".rstrip()


def _result(op: Op) -> str:
    """Return the errno, or how many bytes moved; "" if the kernel had the call."""
    if op.result is None or not op.result.known:
        return ""
    return op.result.errno or f"ok, {op.result.size}"


def _said(op: Op) -> str:
    return f"{_name(op)}: {_result(op)}".removesuffix(": ")
