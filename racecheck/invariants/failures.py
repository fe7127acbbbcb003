"""How ranks failed, by rank and in words."""

from __future__ import annotations

from racecheck.model.nouns import Died, Op, Outcome, Raised, Returned, Stopped
from racecheck.model.ops.launcher_ops import is_of_launcher

RankFailure = Raised | Died | Stopped

_FATAL, _WHAT = "Fatal Python error:", "what():"


def failures(outcome: Outcome) -> list[tuple[int, RankFailure]]:
    """Return how ranks failed, by rank.  Echoes are left out, unless nothing else explains them."""
    failed = [(rank, each) for rank, each in enumerate(outcome.results) if not isinstance(each, Returned)]
    causes = [(rank, each) for rank, each in failed if not is_echo(outcome, rank)]
    explained = causes or outcome.mismatch is not None
    return causes if explained else failed


def is_echo(outcome: Outcome, rank: int) -> bool:
    """Return whether a rank failed only because another one had; the launcher may have told it to end."""
    result = outcome.results[rank]
    if isinstance(result, Raised):
        return result.echo
    if isinstance(result, Died):
        return any(isinstance(each, Op) and each.rank == rank and is_of_launcher(each) for each in outcome.trace)
    return isinstance(result, Stopped) and result.kind == "echo"


def source(outcome: Outcome, rank: int, failure: Raised) -> tuple[int, ...]:
    """Return the trace index of the rank's last op with the failure's errno, if it has one.

    One about the failure's path goes first: clean-up code often meets the same errno elsewhere.
    """
    found = [
        (failure.path in [place.path for place in event.places], index)
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Op) and event.rank == rank
        if event.result is not None and failure.errno and event.result.errno == failure.errno
    ]
    return (max(found)[1],) if found else ()


def first_line(text: str) -> str:
    """Return the first line of a message, "" if it is empty."""
    return next(iter(text.strip().splitlines()), "")


def describe(rank: int, failure: RankFailure) -> str:
    """Say how a rank failed, in one line."""
    if isinstance(failure, Raised):
        where = f"in a thread of rank {rank}" if failure.thread else f"on rank {rank}"
        return f"{failure.type} {where}: {first_line(failure.message)}".removesuffix(": ")
    if isinstance(failure, Stopped):
        return f"rank {rank} did not end: {failure.why}"
    how = f"was killed by {failure.signal}" if failure.signal else f"exited with status {failure.status}"
    said = [f"rank {rank} {how} before it returned", last_words(failure.output)]
    return ": ".join(filter(None, said))


def last_words(output: str) -> str:
    """Return the line that best explains why a process has died: the one before Python's own message and the stacks."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = next((index for index, line in enumerate(lines) if line.startswith(_FATAL)), len(lines))
    thrown = [line for line in lines[:fatal] if line.startswith(_WHAT)]
    said = thrown or lines[:fatal] or lines[fatal : fatal + 1] or [""]
    return said[-1].removeprefix(_WHAT).strip()
