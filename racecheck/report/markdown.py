"""A finding as Markdown for an issue or a pull request.

Names and messages come from outside.  They stand in code spans, or are escaped, so that they neither become markup nor
mention people; in a Mermaid diagram all but plain characters are written as entity codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from racecheck.explore.findings import Finding
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Collective, Event, Op, Outcome
from racecheck.report import words
from racecheck.report.decisive import Decisive, aftermath, decisive, failing
from racecheck.report.files import short
from racecheck.report.folding import unfolded
from racecheck.report.sentence import Phrase, passes_if, plain, sentence

_LANES, _STEPS, _CHARACTERS = 8, 60, 40_000
"""A larger interleaving is a table: GitHub draws no diagram of more than 50,000 characters."""
_ROWS = 40
_MESSAGE = 300
_MOST = 4
_PATH, _LABEL = 60, 140
_COLOUR = "rgba(240, 147, 90, 0.25)"


@dataclass(frozen=True, slots=True)
class _Stretch:
    """An event that is shown (``last`` is its own index), or a stretch of events that are left out."""

    first: int
    last: int
    event: Event | None


def markdown(finding: Finding, replay: str) -> str:
    """Return a finding as Markdown; ``replay`` is the command that runs it again."""
    outcome, violations = finding.outcome, finding.judgement.violations
    found = decisive(outcome, violations, finding.pair)
    after = aftermath(outcome) if not found.roles else None
    shown, found_there = (after, failing(after)) if after is not None else (outcome, found)
    said = sentence(outcome, violations, found)
    blocks = [
        f"**{finding.judgement.verdict.name}** {code(finding.subject)}",
        "".join(map(_part, said)).removesuffix(".") + ".",
        "\n".join(f"* {code(each.invariant)}: {code(each.message[:_MESSAGE])}" for each in violations),
        "The recovery:" if after is not None else "",
        _interleaving(shown, found_there, words.fit(f"{plain(said).removesuffix('.')}.", _MESSAGE)),
        _where(finding, shown, found_there),
        _pair(finding),
        _about(finding, replay),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def code(text: str) -> str:
    """Return a text as a code span, whatever it holds."""
    text = words.escape(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _part(part: Phrase) -> str:
    return code(part.text) if part.is_code else _escaped(part.text)


def _escaped(text: str) -> str:
    """Return a text without markup; an empty comment keeps GitHub from reading a mention or a reference."""
    text = re.sub(r"([\\`*_{}\[\]<>|~$&!])", r"\\\1", text)
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", text)


def _interleaving(outcome: Outcome, found: Decisive, said: str) -> str:
    """Return a Mermaid sequence diagram, or a table where that would be too large."""
    if not outcome.trace:
        return ""
    steps = [*_steps(outcome.trace, found)]
    ranks = outcome.world.ranks
    if ranks <= _LANES and len(steps) <= _STEPS:
        drawn = _diagram(outcome, steps, found, said)
        if len(drawn) <= _CHARACTERS:
            return drawn
    return _table(steps, found)


def _steps(trace: Sequence[Event], found: Decisive) -> Iterator[_Stretch]:
    kept = unfolded(trace, found.roles)
    for is_kept, stretch in groupby(range(len(trace)), key=lambda index: index in kept):
        indices = [*stretch]
        if is_kept or len(indices) < 3:
            yield from (_Stretch(index, index, trace[index]) for index in indices)
        else:
            yield _Stretch(indices[0], indices[-1], None)


# Mermaid.


def _diagram(outcome: Outcome, steps: Sequence[_Stretch], found: Decisive, said: str) -> str:
    """Return a diagram; ``said`` is its alternative text."""
    ranks = range(outcome.world.ranks)
    lines = [
        "sequenceDiagram",
        f"  accDescr: {_plain(said)}",
        *(f"  participant R{rank} as rank {rank}" for rank in ranks),
        "  participant D as directory",
    ]
    everyone = f"R0,R{ranks[-1]}" if len(ranks) > 1 else "R0"
    for step in steps:
        line = _line(step, everyone)
        if step.event is not None and step.first in found.roles:
            lines += [f"  rect {_COLOUR}", f"  {line}", "  end"]
        else:
            lines.append(line)
    return "\n".join(["```mermaid", *lines, "```"])


def _line(step: _Stretch, everyone: str) -> str:
    event = step.event
    if event is None:
        return f"  Note over {everyone}: {words.count(step.last - step.first + 1, 'more event')}"
    if isinstance(event, Collective):
        names = [f"R{rank}" for rank in (min(event.ranks), max(event.ranks))]
        over = ",".join(dict.fromkeys(names))
        return f"  Note over {over}: {_plain(f'{step.first + 1} {words.collective(event, group=False)}')}"
    failed = event.call == "kill" or (event.result is not None and bool(event.result.errno))
    arrow = "-x" if failed else "->>"
    thread = "" if event.thread == str(event.rank) else f"[{event.thread}] "
    text = f"{step.first + 1} {thread}{words.call_name(event)} {_subject(event)} {words.result(event)}".strip()
    return f"  R{event.rank}{arrow}D: {_plain(words.fit(text, _LABEL))}"


def _subject(op: Op) -> str:
    """Return the subject of an op, with each path cut in its middle."""
    return " to ".join(_cut(each) for each in words.subject(op).split(" -> "))


def _cut(path: str) -> str:
    return path if len(path) <= _PATH else f"{path[: _PATH // 3]}...{path[-(2 * _PATH // 3 - 3) :]}"


def _plain(text: str) -> str:
    """Return a text for a diagram: entity codes for all that could have a meaning there, also for the word "end"."""
    text = "".join(each if each.isalnum() or each in " ._/-,()=" else f"#{ord(each)};" for each in text)
    return re.sub(r"\bend\b", lambda found: f"#{ord(found[0][0])};{found[0][1:]}", text, flags=re.IGNORECASE)


# The table.


def _table(steps: Sequence[_Stretch], found: Decisive) -> str:
    shown = (
        [each for each in steps if each.event is not None and each.first in found.roles]
        if len(steps) > _ROWS
        else steps
    )
    rows = ["| step | rank | op | result | line |", "|---:|---:|---|---|---|"]
    before = -1
    for step in shown:
        if step.event is None or step.first > before + 1:
            first = step.first if step.event is None else before + 1
            last = step.last if step.event is None else step.first - 1
            rows.append(f"| | | {words.count(last - first + 1, 'more event')} | | |")
        if step.event is not None:
            rows.append(_row(step.first, step.event, is_decisive=step.first in found.roles))
        before = step.last
    return "\n".join(rows)


def _row(index: int, event: Event, *, is_decisive: bool) -> str:
    step = f"**{index + 1}**" if is_decisive else str(index + 1)
    if isinstance(event, Collective):
        return f"| {step} | all | {_cell(words.collective(event, group=True))} | | |"
    op = f"{words.call_name(event)} {_subject(event)}".strip()
    result = words.result(event)
    frames = user_frames(event.stack or ())
    line = f"{short(frames[0].file)}:{frames[0].line}" if frames else ""
    cells = [step, _cell(event.thread), _cell(op), _cell(result) if result else "", _cell(line) if line else ""]
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return code(text).replace("|", "\\|")


# The lines of code, the pair, and how to run it again.


def _where(finding: Finding, outcome: Outcome, found: Decisive) -> str:
    """Return the lines of the user's code that made the decisive ops."""
    sources = finding.evidence.sources if finding.evidence is not None else {}
    lines = []
    for index in found.roles:
        event = outcome.trace[index]
        frames = user_frames(event.stack or ()) if isinstance(event, Op) else []
        if isinstance(event, Op) and frames:
            file, line = frames[0].file, frames[0].line
            text = sources[file].lines.get(line, "").strip() if file in sources else ""
            said = f"{index + 1}, rank {code(event.thread)}: {code(f'{short(file)}:{line}')}"
            lines.append(f"* {said} {code(text)}" if text else f"* {said}")
    return "\n".join(lines[-_MOST:])


def _pair(finding: Finding) -> str:
    evidence, trace = finding.evidence, finding.outcome.trace
    if evidence is None or evidence.passing is None or not all(0 <= index < len(trace) for index in finding.pair):
        return ""
    ops = [each for index in finding.pair if isinstance(each := trace[index], Op)]
    if len(ops) != 2:
        return ""
    return "".join(map(_part, passes_if(finding.outcome, finding.pair)))


def _about(finding: Finding, replay: str) -> str:
    made, world = finding.versions, finding.outcome.world
    versions = f"racecheck {made.racecheck}, Python {made.python}, torch {made.torch or 'none'}, Linux {made.kernel}"
    lines = [
        f"Replay: {code(replay)}",
        f"World: {words.count(world.ranks, 'rank')}, {words.count(world.nodes, 'node')}, {code(world.storage)} storage",
        f"Run: seed {code(str(finding.seed))}, schedule {finding.run + 1}",
        f"Versions: {code(versions)}",
    ]
    return "\n".join(f"* {line}" for line in lines)
