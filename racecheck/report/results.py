"""The result of a search or a replay: as text for people, as JSON data for programs."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from rich.style import Style

from racecheck import faults, invariants
from racecheck.explore.findings import Finding
from racecheck.model.nouns import Outcome, Verdict, Violation, World
from racecheck.report import fault_table, prediction
from racecheck.report.crash import counts_text, crash_text, repairs_text
from racecheck.report.decisive import Decisive, aftermath, decisive, failing
from racecheck.report.interleaving import coverage_text, render, summary
from racecheck.report.prediction import render as render_prediction
from racecheck.report.sentence import passes_if, plain, sentence
from racecheck.report.words import count, escape, replay_command
from racecheck.scheduling.explain import PAIR, SWITCHES, WORLD
from racecheck.scheduling.minimise.critical import Flip, op_at
from racecheck.scheduling.minimise.shrinking import switches

if TYPE_CHECKING:
    from racecheck.explore.predicting import Foreseen
    from racecheck.explore.replaying import Replayed
    from racecheck.explore.reports import Ending, Found, Report
    from racecheck.scheduling.explain import Explanation

_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "bold yellow"}
_INDENT = " " * 6
_LINE = 200
"""The most characters of a claim in its line."""
_MORE = "{} more below"
_REVERSALS = "each race of one passing run, reversed alone: not a proof"
_WAYS = 3
"""How many distinct failures of a crash are shown."""
_GAP, _TIMES = (
    re.compile(r"^.*(?:not tried|not controlled): "),
    re.compile(r"( \(\d+ times\))?( \(in \d+ of \d+ runs\))?$"),
)
_UNSAID = "could not judge the run: LookupError"
_HINTS = {
    "not controlled:": "keep these calls out of the scenario, or out of the watched directory",
    "two runs of the same schedule differ": "make the scenario deterministic: no real time and no addresses",
    "not confirmed:": "make the scenario deterministic: no real time and no addresses",
    "is stopped, by SIGSTOP": "let the scenario stop no process",
    "did not end:": "bound the polling loop, or raise --timeout",
    _UNSAID: "call rank.saved, rank.acked and rank.loaded, or drop the invariant",
    "could not judge the run: ": "fix the invariant",
    "no invariant was given": "add invariants to the scenario",
    "never reached:": "compare the pattern with the ops; with nth=each the first run has no fault: raise --schedules",
}
"""Hints for reasons for UNKNOWN that contain these words; the first that fits."""


@dataclass(frozen=True, slots=True)
class Page:
    """How text is laid out.

    These are its width in cells, whether in colour, whether all ops are shown, whether longer lines are cut, and
    whether a run that passed is shown too.
    """

    width: int = 120
    colour: bool = False
    full: bool = False
    cut: bool = False
    passing: bool = False


def search_text(report: Report, budget: int, page: Page, cut: Path | None = None) -> str:
    """Return the verdict with its grounds.

    ``budget`` is how many schedules were allowed, ``cut`` where the search is kept if it can be continued.
    """
    return f"{verdict_text(report, budget, page)}\n{grounds_text(report, page, cut)}".rstrip("\n")


def verdict_text(report: Report, budget: int, page: Page) -> str:
    """Return the first part of it, which is known before a failure is explained, and does not change."""
    if report.verdict is Verdict.PASS:
        said, more = _capped(_passed(report))
        lines = [_headline(Verdict.PASS, said, "", page), *(_wrapper(page, _INDENT).fill(each) for each in more)]
    elif report.verdict is Verdict.FAIL:
        lines = list(_violations(_announced(report), _where(report, budget), page))
    else:
        lines = [_headline(Verdict.UNKNOWN, f"after {_schedules(report.schedules, budget)}", "", page)]
    lines += _doubts(report.verdict, report.reasons)
    if report.verdict is Verdict.FAIL:
        lines += _findings(_announced(report))
    return "\n".join(lines)


def grounds_text(report: Report, page: Page, cut: Path | None = None) -> str:
    """Return the rest of it, "" if there is nothing more to say."""
    lines = [*_least(report), *_said(report, page)]
    if report.outcome is not None:
        pair = _pair_of(report)
        lines += [] if report.verdict is Verdict.PASS else _run(report.outcome, _bare(report), page, pair)
        lines += [*_crash(report, page), *_pair(report.explanation, page)]
    lines += _passing(report, page) if page.passing else []
    next_ = [*_replay(report), *_resume(report, cut), *_meaning_of(report)]
    is_fail = report.verdict is Verdict.FAIL
    lines += ["", *next_] if is_fail and next_ else []
    lines += [*_crashes(report, page), *_orderings(report.explanation)]
    if table := fault_table.lines(report.struck):
        lines += ["", *table]
    if report.left_out:
        lines += ["", f"Left out of the explanation: {escape(report.left_out)}."]
    if report.outcome is not None or report.coverage.ops:
        lines += ["", coverage_text(report.coverage), *_observed(report)]
    return "\n".join([*lines, *_endings(report), *([] if is_fail else next_)])


def _passing(report: Report, page: Page) -> list[str]:
    """Return the run in the other order of the pair; else the largest run of a PASS, or the first that passed."""
    pair = report.explanation.pair if report.explanation is not None else None
    first = next((each.outcome for each in report.endings if not each.violations), None)
    outcome = pair.neighbour if pair is not None else report.outcome if report.verdict is Verdict.PASS else first
    if outcome is None:
        return ["", "No run passed."]
    return ["", "A run that passed:", *_run(outcome, (), page)[1:]]


def _said(report: Report, page: Page) -> Iterator[str]:
    """Yield the events of the failing run, if the message does not say them already."""
    if report.verdict is not Verdict.FAIL or report.outcome is None:
        return
    violations = _bare(report)
    found = decisive(report.outcome, violations, _pair_of(report))
    text = plain(sentence(report.outcome, violations, found))
    if text.lower() not in {each.message.lower() for each in violations}:
        yield _wrapper(page, _INDENT).fill(f"{text.removesuffix('.')}.")


def _wrapper(page: Page, indent: str = "") -> textwrap.TextWrapper:
    return textwrap.TextWrapper(page.width, indent, indent, break_on_hyphens=False, break_long_words=False)


def _pair_of(report: Report) -> tuple[int, ...]:
    pair = report.explanation.pair if report.explanation is not None else None
    return pair.events if pair is not None else ()


def _resume(report: Report, cut: Path | None) -> Iterator[str]:
    if cut is not None:
        yield f"Resume:  racecheck run {report.target} --resume {shown_path(cut)}  (with the same options)"


def _observed(report: Report) -> Iterator[str]:
    """Yield the saves and loads of a program, in the run with most of them."""
    if report.observed:
        saves, loads = report.observed
        yield f"observed: {count(saves, 'save')}, {count(loads, 'load')}"


def search_data(report: Report, cut: Path | None = None) -> dict[str, Any]:
    """Return the data that ``racecheck run --json`` prints."""
    return {
        "target": report.target,
        "verdict": report.verdict.name,
        "exhaustive": report.exhaustive,
        "schedules": report.schedules,
        "distinct_schedules": report.distinct_schedules,
        "seconds": round(report.seconds, 3),
        "ops": report.ops,
        "claim": str(report.claim),
        "explained": report.is_explained,
        "left_out": report.left_out,
        "observed": dict(zip(("saves", "loads"), report.observed, strict=False)) or None,
        "conditions": list(report.claim.conditions),
        "doubts": list(report.claim.against),
        "explanation": _explanation_data(report.explanation),
        "resume": shown_path(cut) if cut else None,
        "crashes": _crashes_data(report),
        "faults": [dict(zip(fault_table.KEYS, row, strict=True)) for row in fault_table.rows(report.struck)],
        "violations": [_violation_data(each) for each in report.violations],
        "endings": [_ending_data(each) for each in report.endings],
        "reasons": list(report.reasons),
        "seed": report.seed,
        "strategy": report.strategy,
        "world": _world_data(report.world),
        "coverage": asdict(report.coverage),
    }


def prediction_text(found: Foreseen, page: Page) -> str:
    """Return the races of a passing run, the result of their other order, and what its collectives are for."""
    if found.prediction is None:
        return "\n".join([_headline(found.verdict, found.target, "", page), *_doubts(found.verdict, found.reasons)])
    outcome = found.prediction.outcome
    said = f"{_size(outcome.world, outcome)}; {found.seconds:.1f} s; {_REVERSALS}"
    lines = [_headline(found.verdict, said, "", page), "", render_prediction(found.prediction, width=page.width)]
    lines += ["", coverage_text(found.coverage)]
    lines += [_replay_line(path, found.target) for path in dict.fromkeys(found.findings.values())]
    lines += [f"No finding was kept: {escape(found.unkept)}"] * bool(found.unkept)
    broken = [each.invariant for race in found.prediction.confirmed for each in race.violations]
    return "\n".join([*lines, *_meaning(found.verdict, broken, found.reasons)])


def prediction_data(found: Foreseen) -> dict[str, Any]:
    """Return the data that ``racecheck predict --json`` prints."""
    made = prediction.data(found.prediction) if found.prediction is not None else {"races": [], "collectives": []}
    for number, path in found.findings.items():
        made["races"][number]["finding"] = shown_path(path)
    return {
        "target": found.target,
        "verdict": found.verdict.name,
        "seconds": round(found.seconds, 3),
        **made,
        "reasons": list(found.reasons),
        "coverage": asdict(found.coverage),
    }


def replay_text(finding: Finding, done: Replayed, page: Page) -> str:
    """Return how often a finding was reproduced, and where a run left its schedule."""
    said = f"reproduced {done.reproduced} of {done.times}"
    if done.diverged:
        said += f"; {done.diverged} diverged: {escape(done.divergence)}"
    elif done.verdict is Verdict.PASS:
        names = ", ".join(dict.fromkeys(each.invariant for each in finding.judgement.violations))
        said += f": the run is the same, but {names} holds now"
    size = _size(finding.outcome.world, finding.outcome)
    lines = [_headline(done.verdict, said, f"seed {finding.seed}, schedule {finding.run + 1}; {size}", page)]
    lines += [f"{_INDENT}{_line(each)}" for each in done.judgement.violations]
    if done.verdict is Verdict.UNKNOWN:
        lines += _doubts(done.verdict, done.doubts)
    if done.outcome is not None:
        pair = () if done.diverged else finding.pair  # its events are those of the finding's own run
        lines += _run(done.outcome, done.judgement.violations, page, pair)
    return "\n".join([*lines, *_meaning(done.verdict, [each.invariant for each in done.judgement.violations])])


def replay_data(done: Replayed) -> dict[str, Any]:
    """Return the data that ``racecheck replay --json`` prints."""
    return {
        "times": done.times,
        "reproduced": done.reproduced,
        "diverged": done.diverged,
        "verdict": done.verdict.name,
        "divergence": done.divergence,
        "doubts": list(done.doubts),
    }


def _headline(verdict: Verdict, text: str, trailer: str, page: Page) -> str:
    """Return ``FAIL  text``, and the trailer in a line of its own."""
    name = verdict.name
    if page.colour:
        name = Style.parse(_STYLES[verdict]).render(name, color_system=ColorSystem.STANDARD)
    return f"{name}  {text}" + (f"\n{_INDENT}{trailer}" if trailer else "")


def _capped(claim: str) -> tuple[str, list[str]]:
    """Return the part of a claim that goes into its line, which says how much is below, and the rest."""
    parts, room = claim.split("; "), _LINE - len(_MORE.format(99))
    shown = len(parts)
    while len(claim) > _LINE and shown > 1 and len("; ".join(parts[:shown])) > room:
        shown -= 1
    rest = parts[shown:]
    return "; ".join([*parts[:shown], *([_MORE.format(len(rest))] if rest else [])]), rest


def _violations(found: Sequence[Found], trailer: str, page: Page) -> Iterator[str]:
    yield _headline(Verdict.FAIL, _line(found[0].violation), trailer, page)
    for each in found[1:]:
        yield f"{_INDENT}{_line(each.violation)}"


def _line(violation: Violation) -> str:
    return f"{violation.invariant}: {escape(violation.message)}"


def _announced(report: Report) -> list[Found]:
    """Return the violations from before anything was minimised, and those found before the search was cut."""
    first = next((each.violations for each in report.endings if each.violations), None)
    if first is None:
        return [*report.violations]
    return [*first, *(each for each in report.violations if each.outcome is None)]


def _findings(found: Sequence[Found]) -> Iterator[str]:
    for path in dict.fromkeys(each.finding for each in found if each.finding):
        yield f"{_INDENT}Finding: {shown_path(path)}"
    for why in dict.fromkeys(each.unkept for each in found if each.unkept):
        yield f"{_INDENT}No finding was kept: {escape(why)}"


def _passed(report: Report) -> str:
    world, free = report.world, report.strategy == "free"
    size = _size(world, report.outcome)
    conditions = "".join(f"; {each}" for each in report.claim.conditions)
    if report.exhaustive:
        return f"{report.claim.said}; every interleaving of {size}; {report.seconds:.1f} s{conditions}"
    runs = count(report.schedules, "run") + " in free mode" if free else count(report.schedules, "schedule")
    distinct = "" if free else f" ({report.distinct_schedules} distinct)"
    return (
        f"{runs}{distinct} of {_size(world, None if free else report.outcome)}; {report.seconds:.1f} s; "
        f"no violation; {_caveat(report)}{conditions}"
    )


def _caveat(report: Report) -> str:
    """Return why a search without a violation is no proof."""
    if report.strategy == "free":
        return "free mode: not a proof"
    return report.claim.said or f"sampled with {report.strategy}: not a proof"


def _where(report: Report, budget: int) -> str:
    found = _announced(report)[0].outcome
    if found is None:
        return f"seed {report.seed}, found before the search was resumed; {_size(report.world, None)}"
    number = f"{report.schedule_number + 1} of {budget}"
    return f"seed {report.seed}, schedule {number}; {_size(found.world, found)}"


def _least(report: Report) -> Iterator[str]:
    """Return how small the run has become, and how it fails if not just as before."""
    if report.explanation is None:
        return
    yield f"{_INDENT}{_minimised(report.explanation)}"
    now = [each for each in report.violations if each.outcome is not None]
    if [_line(each.violation) for each in now] != [_line(each.violation) for each in _announced(report)[: len(now)]]:
        yield from (f"{_INDENT}{_line(each.violation)}" for each in now)
    known = {each.finding for each in _announced(report)}
    yield from _findings([each for each in now if each.finding not in known])


def _minimised(explanation: Explanation) -> str:
    """Return ``minimised: 69 -> 9 ops, 8 -> 2 ranks, 7 -> 2 switches``; an unchanged number is printed once.

    Fewer switches may come with more ops.  A run of which not all smaller ones were tried is minimised in part.
    """
    before, after = explanation.found, explanation.outcome
    pairs = [(len(before.ops), len(after.ops), "op"), (before.world.ranks, after.world.ranks, "rank")]
    sizes = [f"{one} -> {count(other, what)}" if one != other else count(other, what) for one, other, what in pairs]
    shrunk = zip(before.world.sizes, after.world.sizes, strict=True)
    sizes += [f"{one.name} {one.value} -> {other.value}" for one, other in shrunk if one != other]
    fired = sum(choice.kind == "fault" and choice.index > 0 for choice in after.schedule)
    was, now = switches(before.schedule), switches(after.schedule)
    sizes += [f"{was} -> " * (was != now) + count(now, "switch", "switches")]
    sizes += [count(fired, "fault")] if fired else []
    sizes += [f"without {faults.text(each)}" for each in before.world.faults if each not in after.world.faults]
    is_part = {WORLD, SWITCHES} & {*explanation.left_out}
    return f"{'minimised in part' if is_part else 'minimised'}: {', '.join(sizes)}"


def _pair(explanation: Explanation | None, page: Page) -> Iterator[str]:
    """Yield the pair that decides, or why there is none."""
    if explanation is None:
        return
    pair, wrapper = explanation.pair, _wrapper(page)
    if explanation.agreeing:
        yield f"\nWith clocks that agree, none of {explanation.agreeing} schedules failed like this."
    if pair is not None:
        yield wrapper.fill(plain(passes_if(explanation.outcome, pair.events)))
    elif explanation.is_killed:
        yield "\nNo pair was looked for: a fault killed ranks."
    elif PAIR not in explanation.left_out:
        yield "\n" + wrapper.fill(f"No pair decides: {_in_vain(explanation.others)}.")


_IN_VAIN: dict[Flip, str] = {
    "same": "failed in the same way",
    "another rank": "failed in the same way on another rank",
    "another failure": "failed in another way",
    "other faults": "had other faults",
    "impossible": "could not go that way",
}


def _in_vain(others: Sequence[Flip]) -> str:
    """Return the results of pairs in the other order."""
    if not others:
        return "no two ops that lead to the failure could go the other way"
    tried = Counter(others)
    said = ", ".join(f"{tried[each]} {text}" for each, text in _IN_VAIN.items() if tried[each])
    return f"of {count(len(others), 'pair')} in the other order (one run each) {said}"


def _orderings(explanation: Explanation | None) -> Iterator[str]:
    """Yield the orderings that the failure depends on."""
    orderings = explanation.orderings if explanation is not None else None
    if orderings is None or orderings.why:
        return
    tried = f"{orderings.failed} of {orderings.completions} random schedules failed"
    tried += f"; {orderings.proof}" if orderings.proof else ""
    yield ""
    yield f"With these orderings {tried}:" if orderings.constraints else f"No ordering is needed: {tried}."
    for each in orderings.constraints:
        yield f"{_INDENT}rank {escape(str(each.before))} comes before rank {escape(str(each.after))}"


def _size(world: World, outcome: Outcome | None) -> str:
    parts = [count(world.ranks, "rank"), *(f"{each.name}={each.value}" for each in world.sizes)]
    return ", ".join([*parts, *([count(len(outcome.ops), "op")] if outcome is not None else [])])


def _schedules(done: int, budget: int) -> str:
    return f"{done} of {count(budget, 'schedule')}"


def _crash(report: Report, page: Page) -> Iterator[str]:
    """Yield the first way in which a crash hurts."""
    hurt = next((each for each in report.crashes if each.groups), None)
    if hurt is not None and report.outcome is not None and report.outcome.crash is not None:
        title, _, text = crash_text(hurt.groups[0], hurt, width=page.width, cut=page.cut).partition("\n")
        known = {_line(each.violation) for each in _announced(report)}
        yield f"\n{text}" if _line(hurt.groups[0].violation) in known else f"\n{title}\n{text}"


def _crashes(report: Report, page: Page) -> Iterator[str]:
    """Return the other ways in which crashes hurt, changes that would help, and how many states were judged."""
    hurt = next((each for each in report.crashes if each.groups), None)
    if hurt is not None and report.outcome is not None and report.outcome.crash is not None:
        shown = hurt.groups if page.full else hurt.groups[:_WAYS]
        for group in shown[1:]:
            yield f"\n{crash_text(group, hurt, width=page.width, cut=page.cut)}"
        if len(shown) < len(hurt.groups):
            yield f"\nand {count(len(hurt.groups) - len(shown), 'more distinct failure')} (--full shows all)"
        if report.repaired:
            yield f"\n{repairs_text(report.repaired)}"
    shown_counts = hurt or report.crashes_total
    if shown_counts is not None:
        yield f"\n{counts_text(shown_counts)}"


def _endings(report: Report) -> Iterator[str]:
    """Return each way in which runs ended, as far as invariants distinguish them, if they continued after a failure."""
    failing = [each for each in report.endings if each.violations and each.outcome.crash is None]
    if not failing or (len(failing) == 1 and failing[0] is report.endings[-1]):
        return
    ways = Counter[str]()
    for each in report.endings:
        ways["; ".join(_line(found.violation) for found in each.violations) or "no violation"] += each.runs
    yield f"\nThe runs had {count(len(ways), 'distinct result')}:"
    for broken, runs in ways.items():
        yield f"{runs:>{len(_INDENT) - 1}} {broken}"


def _doubts(verdict: Verdict, reasons: Sequence[str]) -> Iterator[str]:
    """Return reasons, one line each, and then the hints for them.

    That a failed rank declared no save is left out.
    """
    own = [each for each in reasons if verdict is not Verdict.FAIL or _UNSAID not in each]
    for each in own:
        yield f"{_INDENT}{escape(each)}"
    hints = (next((hint for words, hint in _HINTS.items() if words in each), "") for each in own)
    for hint in filter(None, dict.fromkeys(hints)):
        yield f"{_INDENT}-> {hint}"


def _bare(report: Report) -> list[Violation]:
    """Return the violations of the run that is shown: the others' events are of other traces."""
    return [each.violation for each in report.violations if each.outcome is not None]


def _run(outcome: Outcome, violations: Sequence[Violation], page: Page, pair: Sequence[int] = ()) -> list[str]:
    """Return the interleaving, that of a recovery that failed, and how each rank ended.

    Where the run itself went well, only its recovery is shown, unless all ops are asked for.  After a crash it is not
    said how ranks ended: the crash has ended them.
    """
    found, after = decisive(outcome, violations, pair), aftermath(outcome)
    lines = []
    if after is None or found.roles or page.full:
        lines += ["", _drawn(outcome, violations, page, found)]
    if after is not None:
        lines += ["", "The recovery:", _drawn(after, (), page, failing(after))]
    return lines if outcome.crash is not None else [*lines, "", summary(outcome, width=page.width)]


def _drawn(outcome: Outcome, violations: Sequence[Violation], page: Page, found: Decisive) -> str:
    return render(
        outcome, violations, width=page.width, colour=page.colour, full=page.full, cut=page.cut, found=found
    )  # fmt: skip


def _meaning_of(report: Report) -> Iterator[str]:
    """Yield the one ``racecheck explain`` that fits: for the failure, the reason of UNKNOWN, or a gap."""
    broken = [each.violation.invariant for each in report.violations]
    return _meaning(report.verdict, broken, report.reasons, report.claim.doubts)


def _meaning(
    verdict: Verdict, broken: Iterable[str], reasons: Sequence[str] = (), doubts: Sequence[str] = ()
) -> Iterator[str]:
    name = ""
    if verdict is Verdict.FAIL:
        known = {invariants.name_of(each) for each in invariants.ALL}
        name = next((each for each in broken if each in known), "")
    elif verdict is Verdict.UNKNOWN:
        keys = (key for each in reasons for key in _HINTS if key in each)
        name = next((_GAP.sub("", each) for each in reasons if _GAP.match(each)), next(keys, "").rstrip(": "))
    elif doubts:
        name = _GAP.sub("", doubts[0])
    if name:
        yield f"Explain: racecheck explain {shlex.quote(_TIMES.sub('', name))}"


def _replay(report: Report) -> Iterator[str]:
    for path in dict.fromkeys(each.finding for each in report.violations if each.finding):
        yield _replay_line(path, report.target)
        yield f"Picture: racecheck report {shown_path(path)}"


def _replay_line(path: Path, target: str) -> str:
    return f"Replay:  {replay_command(shown_path(path), target)}"


def _world_data(world: World) -> dict[str, Any]:
    return {**asdict(world), "sizes": _sizes_data(world)}


def _sizes_data(world: World) -> dict[str, int]:
    return {each.name: each.value for each in world.sizes}


def _violation_data(found: Found) -> dict[str, Any]:
    return {
        "invariant": found.violation.invariant,
        "message": found.violation.message,
        "ranks": list(found.violation.ranks),
        "finding": shown_path(found.finding) if found.finding else None,
        **({"unkept": found.unkept} if found.unkept else {}),
    }


def _explanation_data(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    pair, orderings = explanation.pair, explanation.orderings
    return {
        "runs": explanation.runs,
        "cut": bool(explanation.left_out),
        "switches": switches(explanation.outcome.schedule),
        "found": _found_data(explanation.found),
        "pair": [op_at(explanation.outcome, each).label for each in pair.events] if pair is not None else None,
        "pairs_in_vain": dict(Counter(explanation.others)),
        "constraints": [str(each) for each in orderings.constraints] if orderings is not None else None,
        "fails_with_them": [orderings.failed, orderings.completions] if orderings is not None else None,
        "proof": orderings.proof if orderings is not None else "",
    }


def _found_data(outcome: Outcome) -> dict[str, Any]:
    """Return how large the run was before it was minimised."""
    return {
        "ranks": outcome.world.ranks,
        "ops": len(outcome.ops),
        "sizes": _sizes_data(outcome.world),
        "faults": [faults.text(each) for each in outcome.world.faults],
    }


def _crashes_data(report: Report) -> dict[str, Any] | None:
    """Return how many crash states were judged, by model, and how many bad ones are left under each repair."""
    if not report.crashes:
        return None
    models = {
        model: {
            name: sum(getattr(each.counts[model], name) for each in report.crashes if model in each.counts)
            for name in _COUNTS
        }
        for model in dict.fromkeys(model for each in report.crashes for model in each.counts)
    }
    repaired = {
        name: {model: count.bad for model, count in each.counts.items()} for name, each in report.repaired.items()
    }
    truncated = [each.truncated for each in report.crashes if each.truncated]
    return {"states": models, "bad_when_repaired": repaired, "truncated": truncated}


_COUNTS = ("states", "judged", "bad", "cuts")


def _ending_data(ending: Ending) -> dict[str, Any]:
    return {
        "runs": ending.runs,
        "first": ending.number,
        "results": summary(ending.outcome).splitlines(),
        "violations": [_violation_data(each) for each in ending.violations],
    }


def shown_path(path: Path) -> str:
    """Return a path as people read it: relative to the current directory where it is below that."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)
