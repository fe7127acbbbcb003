"""A prediction as text, and as data for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from racecheck.model.nouns import Collective, Op
from racecheck.model.ops.op_names import paths
from racecheck.report import words
from racecheck.scheduling.predict import Need, Pair, Prediction, Race

_SHOWN = 4
"""The most entries of a list that are shown; the rest is counted."""
_OP = 48
"""The column where the file begins, if no op is longer."""
_BELOW = 19
"""The column where the file begins in the line below, if it has no room."""
_MEANING = {
    "confirmed": "the other order violates {}",
    "changes": "the other order violates no invariant, but",
    "untried": "the other order was not run",
    "infeasible": "the other order could not be produced",
    "harmless": "same results and same disk in the other order",
}
"""The kinds in the order in which they are shown."""


def render(prediction: Prediction, *, width: int = 100, root: Path | None = None) -> str:
    """Lines of at most ``width`` cells; files are shown relative to ``root`` (default: the current directory)."""
    shown = _Shown(prediction, root or words.here(), width)
    lines = [_total(prediction.races)]
    for verdict in _MEANING:
        for race in prediction.races:
            if race.verdict == verdict:
                lines += ["", *shown.race(race)]
    if prediction.needs:
        lines += ["", *shown.needs(prediction.needs)]
    return "\n".join(each for line in lines for each in _wrap(line, width))


def data(prediction: Prediction, *, root: Path | None = None) -> dict[str, Any]:
    """JSON data; an ``event`` is an index in the trace of the passing run."""
    shown = _Shown(prediction, root or words.here())
    return {
        "races": [
            {
                "verdict": race.verdict,
                **shown.pair_data(race.pair),
                "violations": [{"invariant": each.invariant, "message": each.message} for each in race.violations],
                "differences": list(race.differences),
                "why": race.why,
            }
            for race in prediction.races
        ],
        "collectives": [
            {
                "collective": shown.name(need.collective),
                "needed": need.is_needed,
                "keeps": [shown.pair_data(pair) for pair in need.pairs],
                "stand_ins": [shown.name(each) for each in need.stand_ins],
                "where": words.where(need.collective, shown.root),
            }
            for need in prediction.needs
        ],
    }


def _total(races: Sequence[Race]) -> str:
    if not races:
        return "no races: every pair of dependent ops is ordered"
    counts: Counter[str] = Counter(race.verdict for race in races)
    verdicts = ", ".join(f"{counts[each]} {each}" for each in _MEANING if counts[each])
    return f"{words.count(len(races), 'race')}: {verdicts}"


class _Shown:
    """The parts of a prediction; files relative to ``root``, collectives with their group where there are several."""

    def __init__(self, prediction: Prediction, root: Path, width: int = 100) -> None:
        self.root, self._width = root, width
        self._groups = len({need.collective.group for need in prediction.needs}) > 1

    def race(self, race: Race) -> Iterator[str]:
        broken = ", ".join(dict.fromkeys(each.invariant for each in race.violations))
        yield f"{race.verdict}: {_MEANING[race.verdict].format(broken)}"
        yield from self._pair(race.pair, "then")
        found = [f"{each.invariant}: {each.message}" for each in race.violations]
        yield from _few(f"    => {words.escape(each)}" for each in (*found, *race.differences, race.why) if each)

    def needs(self, needs: Sequence[Need]) -> Iterator[str]:
        needed = sum(need.is_needed for need in needs)
        yield f"{words.count(len(needs), 'collective')}, {needed} needed to order file ops"
        shown: set[tuple[str, ...]] = set()
        for need in needs:
            if need.pairs or need.stand_ins:
                fresh = [pair for pair in need.pairs if need.is_needed or _key(pair) not in shown]
                shown.update(map(_key, fresh))
                yield from self._need(need, fresh)
        idle = [need.collective for need in needs if not need.pairs and not need.stand_ins]
        if idle:
            yield f"orders no file ops: {self._names(idle)}"

    def _need(self, need: Need, fresh: Sequence[Pair]) -> Iterator[str]:
        one = f"{self.name(need.collective)}{self._line(need.collective)}"
        if need.is_needed:
            yield f"{one} is needed: nothing else orders"
        else:
            others = self._names(need.stand_ins) if len(need.stand_ins) <= _SHOWN else "the others"
            be = "is" if len(need.stand_ins) == 1 else "are"
            end = "; it also orders" if fresh else ""
            yield f"{one} is redundant as long as {others} {be} there{end}"
        for pair in fresh[:_SHOWN]:
            yield from self._pair(pair, "before")
        yield from _rest(len(fresh), "pair")

    def name(self, collective: Collective) -> str:
        """Return the name without its root."""
        name = words.collective(collective, group=self._groups)
        return name if collective.kind == "send/recv" else name.partition(",")[0]

    def pair_data(self, pair: Pair) -> dict[str, Any]:
        ops = zip((pair.first, pair.second), pair.events, strict=True)
        first, second = (self._op_data(op, event) for op, event in ops)
        return {"first": first, "second": second, "ranks": [list(each) for each in pair.ranks]}

    def _op_data(self, op: Op, event: int) -> dict[str, Any]:
        return {
            "event": event,
            "rank": op.rank,
            "thread": op.thread,
            "call": op.call,
            "paths": [place.path for place in op.places],
            "errno": op.result.errno if op.result is not None else "",
            "where": words.where(op, self.root),
        }

    def _pair(self, pair: Pair, between: str) -> Iterator[str]:
        texts = [_op(pair.first, ""), _op(pair.second, between)]
        column = max(_OP, *(cell_len(text) + 2 for text in texts))
        lines = [words.where(op, self.root) for op in (pair.first, pair.second)]
        room = self._width - column
        for text, line in zip(texts, lines, strict=True):
            if room < max(cell_len(_shortened(each, room)) for each in lines):
                yield from (text, f"{'':{_BELOW}}{line}".rstrip())
            else:
                yield f"{words.pad(text, column)}{_shortened(line, room)}".rstrip()
        if len(pair.ranks) > 1:
            ranks = list(dict.fromkeys(pair.ranks[1:]))
            shown = ", ".join(f"{first} and {second}" for first, second in ranks[:_SHOWN])
            more = ", ..." if len(ranks) > _SHOWN else ""
            yield f"           and {len(pair.ranks) - 1} like it, of ranks {shown}{more}"

    def _line(self, collective: Collective) -> str:
        line = words.where(collective, self.root)
        return f" ({line})" if line else ""

    def _names(self, collectives: Iterable[Collective]) -> str:
        """Return ``barrier #0, all_reduce #1 to #4``."""
        runs: list[list[Collective]] = []
        for each in collectives:
            last = runs[-1][-1] if runs else None
            if last is not None and (each.kind, each.group, each.number) == (last.kind, last.group, last.number + 1):
                runs[-1].append(each)
            else:
                runs.append([each])
        return ", ".join(self.name(run[0]) + (f" to #{run[-1].number}" if run[1:] else "") for run in runs)


def _few(lines: Iterable[str]) -> Iterator[str]:
    every = list(lines)
    yield from every[:_SHOWN]
    yield from _rest(len(every), "difference")


def _rest(number: int, what: str) -> Iterator[str]:
    if number > _SHOWN:
        yield f"    and {words.count(number - _SHOWN, f'more {what}')}"


def _wrap(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=" " * 8, break_on_hyphens=False) or [""]


def _op(op: Op, before: str) -> str:
    return f"    {before:>6} rank {op.rank}  {words.call(op)} {words.subject(op)}  {words.result(op)}".rstrip()


def _key(pair: Pair) -> tuple[str, ...]:
    return pair.first.call, paths(pair.first), pair.second.call, paths(pair.second)


def _shortened(line: str, width: int) -> str:
    """Return a line of code in ``width`` cells: if necessary without the file's directory, then the function."""
    short = line.rpartition("/")[2]
    return next((each for each in (line, short) if cell_len(each) <= width), short.partition(" ")[0])
