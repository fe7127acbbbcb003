"""The run as a whole on the page: facts, orderings, repairs, and omissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from racecheck import invariants
from racecheck.explore.evidence import Evidence
from racecheck.explore.findings import Finding
from racecheck.invariants.events import has_own_disks
from racecheck.report import guide, words
from racecheck.report.crash import NAMES
from racecheck.report.decisive import Decisive
from racecheck.report.picture.worlds import PageData


def facts(finding: Finding) -> list[tuple[str, str]]:
    """Return facts of the run and its search, by name; "" for one that is not known."""
    outcome, evidence, made = finding.outcome, finding.evidence, finding.versions
    world_, coverage = outcome.world, outcome.coverage
    before = evidence.before if evidence is not None else None
    size = [words.count(world_.ranks, "rank"), words.count(world_.nodes, "node"), f"{world_.storage} storage"]
    holes = ", ".join(coverage.holes) or "nothing"
    minimised = f"from {words.count(before.ops, 'op')} on {words.count(before.ranks, 'rank')}" if before else ""
    run = (f"seed {finding.seed}", f"schedule {finding.run + 1}", finding.strategy, words.count(len(outcome.ops), "op"))
    seen = (f"{words.count(coverage.ops, 'op')} controlled", f"{words.count(coverage.passed, 'call')} outside the")
    using = (f"racecheck {made.racecheck}", f"Python {made.python}", f"torch {made.torch or 'none'}")
    return [
        ("Scenario" if finding.launch is None else "Command", finding.subject),
        ("Found", evidence.made.replace("T", " ").replace("+00:00", " UTC") if evidence is not None else ""),
        ("World", ", ".join([*size, world_.backend])),
        ("Run", ", ".join(run)),
        ("Minimised", minimised),
        ("Claim", evidence.claim if evidence is not None else ""),
        ("Coverage", f"{', '.join(seen)} watched directory; not controlled: {holes}"),
        ("Asked", ", ".join(finding.invariants)),
        ("Versions", f"{', '.join(using)}, Linux {made.kernel}"),
    ]


def orderings(finding: Finding, evidence: Evidence | None) -> PageData | None:
    """Return the orderings with which the runs that were tried failed, and how many of those failed."""
    if not finding.constraints or evidence is None or not evidence.failed:
        return None
    lines = [f"rank {each.before} before rank {each.after}" for each in finding.constraints]
    return {"lines": [*map(words.escape, lines)], "failed": evidence.failed, "of": evidence.completions}


def repairs(evidence: Evidence | None) -> PageData | None:
    """Return the table of repairs: those that leave no bad crash state first."""
    if evidence is None or len(evidence.repairs) < 2:
        return None
    models = list(dict.fromkeys(model for each in evidence.repairs for model in each.bad))
    rows = sorted(evidence.repairs, key=lambda each: sum(each.bad.values()))
    return {
        "models": [words.escape(NAMES.get(model, model)) for model in models],
        "judged": [evidence.judged.get(model, 0) for model in models],
        "rows": [
            [words.escape(each.name), int(each.is_whole), *(each.bad.get(model, -1) for model in models)]
            for each in rows
        ],
    }


def advice(finding: Finding, found: Decisive) -> list[str] | None:
    """Return the name of the first invariant that the guide says how to repair, and that.

    It says it of races, and of disks that nodes do not share: of another op that failed alone nothing is said.
    """
    if found.first("victim") is not None and not found.arrow and not has_own_disks(finding.outcome):
        return None
    known = {invariants.name_of(each) for each in invariants.ALL}
    for each in finding.judgement.violations:
        text = guide.repair(each.invariant, finding.outcome.world.storage) if each.invariant in known else ""
        if text:
            return [words.escape(each.invariant), words.escape(text)]
    return None


def gaps(finding: Finding, worlds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the omissions of this page, and its derivations."""
    outcome, evidence = finding.outcome, finding.evidence
    found = []
    if outcome.trace:
        said = "the trees between the ops are derived from the ops"
        found.append(said if worlds[0]["agrees"] else f"{said}; the last one differs from the recorded disk")
    else:
        found.append("the finding has no trace: its run was in free mode, or made no call in the watched directory")
    if finding.strategy == "free" and outcome.trace:
        found.append("a run in free mode: its ops were not ordered, so another run may have another order")
    if evidence is None:
        found.append("an earlier racecheck made this finding: it has no source lines, claim, repairs and passing order")
    elif evidence.passing is None and outcome.crash is None:
        found.append(f"no run in another order is known to pass: {_why(finding)}")
    if outcome.recovery is not None and not outcome.recovery.trace:
        found.append("the ops of the recovery are not recorded, only how it ended")
    if outcome.pending:
        found.append(f"{words.count(len(outcome.pending), 'op')} still waited when the run ended")
    return found


def _why(finding: Finding) -> str:
    if finding.evidence is None or finding.evidence.before is None:
        return "the failure was not explained"
    return "the explanation found none" if not finding.pair else "in the other order something fails too"
