"""A crash as text: the lost ops, the disk that is left, and how the recovery ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from racecheck import faults
from racecheck.explore.recovery.groups import Group, Witness
from racecheck.explore.recovery.judge import Count, Crashes
from racecheck.model.nouns import Crash, Event, Op, Outcome
from racecheck.report import words
from racecheck.report.layout import NARROWEST
from racecheck.report.summary import summary

NAMES: Mapping[str, str] = {
    "kill": "killed processes",
    "ext4": "ext4",
    "xfs": "XFS",
    "btrfs": "btrfs",
    "posix-min": "POSIX minimum",
    "ordered": "ordered (data=journal)",
    "nfs": "NFS clients",
    "nfs-server": "NFS server (async)",
    "object": "object storage",
    "flip": "a bit flipped",
    "cut": "tail missing",
    "zero": "page zeroed",
    "empty": "file empty",
    "missing": "file missing",
    "older": "file of an older save",
}
"""The names of models and of kinds of damage, for people."""

_INDENT, _LABEL = "  ", 12
_SHOWN = 12


def crash_text(group: Group, crashes: Crashes, *, width: int = 120, cut: bool = True, root: Path | None = None) -> str:
    """Return one way in which a crash hurts, by its least witness, as lines of ``width`` cells (longer if not ``cut``).

    What breaks; where the crash comes; the ops that are lost or torn, each with its line; what is on the disk then;
    what the recovery says; under which models it shows.  Files are shown relative to ``root``.
    """
    width, root = max(width, NARROWEST), root or words.here()
    witness, run = group.witnesses[0], crashes.run
    lines = [words.escape(f"{group.violation.invariant}: {_first(group.violation.message)}")]
    crash = witness.state.crash
    lines += (
        _labelled("damage", [words.escape(crash.damage)]) if crash.damage else _labelled("crash", _moment(crash, run))
    )
    room = width - _LABEL - len(_INDENT) if cut else 0
    lines += _labelled("lost", _ops(witness.state.crash.lost, run, root, room))
    lines += _labelled("torn", _ops(witness.state.crash.torn, run, root, room))
    lines += _labelled("on disk", _disk(witness))
    if witness.outcome.recovery is not None:
        lines += _labelled(
            "recovery", summary(witness.outcome.recovery, width=width - _LABEL - 2, root=root).splitlines()
        )
    models = _models(group, crashes.counts)
    line = "; ".join(models).replace(" states;", ";")
    lines += _labelled("shows on", [line] if len(line) <= width - _LABEL - len(_INDENT) else models)
    return "\n".join(words.fit(line.rstrip(), width) if cut else line.rstrip() for line in lines)


def counts_text(crashes: Crashes) -> str:
    """Yield how many states were judged, a line for each model; the omissions, and the reasons against a PASS."""
    lines = [
        f"{NAMES.get(model, model)}: {_judged(model, count)}, {count.bad or 'none'} violate an invariant"
        + (f"; incomplete: {words.escape(count.truncated)}" if count.truncated else "")
        for model, count in crashes.counts.items()
    ]
    lines.append(f"{words.count(crashes.disks, 'disk state')} loaded in {crashes.seconds:.1f} s")
    lines += [words.escape(note) for note in (*crashes.reasons, *crashes.notes)]
    return "\n".join(lines)


def _judged(model: str, count: Count) -> str:
    if model in faults.DAMAGES:
        return words.count(count.judged, "damaged disk")
    return f"{words.count(count.judged, 'crash state')} at {words.count(count.cuts, 'cut')} of the run"


def repairs_text(repaired: Mapping[str, Crashes]) -> str:
    """Return the repair table: for each repair, by name, how many states are still bad, and in how many ways.

    A line for each repair, a column for each model; those that leave nothing first.  Where none does a line says so.
    """
    if len(repaired) == 1:
        return "No candidate fix changes this run."
    models = list(dict.fromkeys(model for crashes in repaired.values() for model in crashes.counts))
    rows = sorted(repaired.items(), key=lambda row: row[1].bad)
    cells = [[name, *(_cell(crashes, model) for model in models)] for name, crashes in rows]
    table = _table([["violating states / distinct failures", *(NAMES.get(model, model) for model in models)], *cells])
    return table if not rows[0][1].bad else f"{table}\nNo candidate fix makes every state pass."


def _cell(crashes: Crashes, model: str) -> str:
    ways = sum(model in group.models for group in crashes.groups)
    count = crashes.counts[model]
    return f"{count.bad} / {ways}" + (" (not all)" if count.truncated else "")


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(words.pad(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _labelled(label: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield _INDENT + words.pad("" if number else label, _LABEL) + line


def _first(message: str) -> str:
    return next(iter(message.strip().splitlines()), "")


def _moment(crash: Crash, run: Outcome) -> list[str]:
    """Say after which op of each rank the crash came, and before which."""
    happened = frozenset(crash.happened)
    found = []
    for rank in range(run.world.ranks):
        own = [index for index, event in enumerate(run.trace) if isinstance(event, Op) and event.rank == rank]
        if not own:
            continue
        done = [index for index in own if index in happened]
        ahead = [index for index in own if index not in happened]
        after = f"after {_short(run.trace[done[-1]])}" if done else "at its start"
        before = f"before {_short(run.trace[ahead[0]])}" if ahead else "at its end"
        found.append(words.escape(f"rank {rank} {after}, {before}"))
    return found or ["before any op"]


def _short(event: Event) -> str:
    return f"{words.call(event)} {words.subject(event)}".strip() if isinstance(event, Op) else event.kind


def _ops(events: Sequence[int], run: Outcome, root: Path, room: int) -> list[str]:
    found = [_op(run.trace[index], index, root, room) for index in events[:_SHOWN]]
    rest = len(events) - _SHOWN
    return [*found, *([f"and {words.count(rest, 'more op')}"] if rest > 0 else [])]


def _op(event: Event, index: int, root: Path, room: int) -> str:
    """Return an op with the line that made it, and the user's line that led there; in ``room`` cells (0: any)."""
    if not isinstance(event, Op):
        return event.kind
    there = words.frame_line(event.stack[0], root) if event.stack else ""
    user = words.where(event, root)
    text = f"{index + 1:>4}  rank {event.rank} {_short(event)} {words.result(event)}".rstrip()
    line = there if user in {"", there} else f"{there}, from {user}"
    if room and len(text) + len(line) + 2 > room:
        line = words.fit_line(user or there, max(0, room - len(text) - 2))
    return f"{text}  {line}" if line else text


def _disk(witness: Witness) -> list[str]:
    found = []
    for path, entry in sorted(witness.outcome.disk.items()):
        what = {"directory": "directory", "symlink": f"-> {entry.target}"}.get(
            entry.kind, words.count(entry.size, "byte")
        )
        found.append(words.escape(f"{path}  {what}"))
    rest = len(found) - _SHOWN
    return [*(found[:_SHOWN] or ["nothing"]), *([f"and {words.count(rest, 'more path')}"] if rest > 0 else [])]


def _models(group: Group, counts: Mapping[str, Count]) -> list[str]:
    """Return in how many states of each model a failure shows; kinds of damage in which it does not are left out."""
    is_damage = any(name in faults.DAMAGES for name in group.models)
    counts = {
        name: each for name, each in counts.items() if name in group.models or not (is_damage or name in faults.DAMAGES)
    }
    return [
        f"{NAMES.get(model, model)}: {group.models[model]} of {words.count(count.judged, 'state')}"
        if model in group.models
        else f"{NAMES.get(model, model)}: never"
        for model, count in counts.items()
    ]
