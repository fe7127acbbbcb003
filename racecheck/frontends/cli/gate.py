"""``racecheck gate``."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from racecheck.frontends import launching
from racecheck.frontends.cli.jobs import CLUSTER, JOBS, workers_of
from racecheck.frontends.cli.options import (
    COLLECTIVES_,
    JSON,
    OUTPUT,
    SEARCH,
    SEED,
    WHAT,
    F,
    check_output,
    option,
    output_file,
)
from racecheck.frontends.cli.output import EXIT, INTERRUPTED
from racecheck.frontends.cli.program import FROM, WATCH, RunCommand
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.gate import baseline, junit, layouts, pages, parts, plan, shards
from racecheck.gate.baseline import Baseline
from racecheck.gate.commands import CommandGate
from racecheck.gate.effort import DEFAULT, EFFORTS
from racecheck.gate.parts import Part
from racecheck.gate.plan import CommandCheck
from racecheck.gate.result import GateResult, data
from racecheck.gate.running import Asked, Gate
from racecheck.gate.tasks import Terms
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict, World
from racecheck.report.picture.document import write
from racecheck.report.picture.lists import href
from racecheck.report.words import escape
from racecheck.sessions.launchers import capture
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, NAMES, Check
from racecheck.targets.suite.checks import SHARED

_SHORTEST, _LONGEST = 1, 1_000_000
_STDOUT = Path("-")
_NAMED = 5
"""The most names of checkpointers in an error."""
_FILE = click.Path(path_type=Path)

_KNOWN = "Known findings"


def _listed(title: str, checks: Mapping[str, Check | CommandCheck]) -> str:
    return "\n".join(["\b", title, *(f"  {name:<32} {check.about}" for name, check in checks.items())])


_CHECKS = "\n\n".join(
    [_listed("The checks of a checkpointer:", CHECKS), _listed("The checks of a launch command:", plan.PLAN)]
)


def of_result(command: F) -> F:
    """Add the options of a gate's result: the known findings, and the files to write."""
    known = option(
        "--baseline",
        "known",
        group=_KNOWN,
        type=_FILE,
        metavar="FILE",
        help="Findings that do not fail the gate (default: none).",
    )
    update = option(
        "--update-baseline", "update", group=_KNOWN, is_flag=True, help="Write the findings to the baseline file."
    )
    junit_ = output_file("--junit", "junit_", does="Write JUnit XML.")
    markdown = output_file("--markdown", does="Write Markdown; - for standard output.")
    html = output_file("--html", "html_", does="Write one HTML file.")
    full = option("--full", group=OUTPUT, is_flag=True, help="Show whole exception texts.")
    for each in (JSON, full, html, markdown, junit_, update, known):
        command = each(command)
    return command


@click.command(
    "gate",
    cls=RunCommand,
    epilog=_CHECKS,
    examples=(
        "racecheck gate mypkg.saver:Mine --effort quick --junit gate.xml",
        "racecheck gate mine.py::Mine --check kill --check power-loss",
        "racecheck gate --all --html matrix.html",
        "racecheck gate --watch out --effort quick -- torchrun --nproc-per-node=2 train.py",
    ),
)
@click.argument("target", nargs=-1, metavar="CHECKPOINTER | COMMAND")
@WATCH
@FROM
@option(
    "--resume-with",
    group=WHAT,
    metavar="COMMAND",
    help="The launch command that resumes the job (default: the same command).",
)
@option("--all", "every", group=WHAT, is_flag=True, help=f"Every known checkpointer: {', '.join(NAMES)}.")
@option("--check", "checks", group=WHAT, multiple=True, metavar="NAME", help="Only this check; repeatable.")
@option(
    "--storage",
    "storages",
    group=WHAT,
    multiple=True,
    metavar="NAME",
    help="Only checks on this storage model; repeatable. Of a launch command: run all checks on it, on two nodes.",
)
@option(
    "--ranks",
    group=WHAT,
    type=click.IntRange(1),
    metavar="N",
    help="Number of ranks (default: 2, unless a check sets its own).",
)
@option(
    "--effort",
    group=SEARCH,
    type=click.Choice([*EFFORTS]),
    default=DEFAULT,
    show_default=True,
    help="How much is tried; the same on every machine.",
)
@option(
    "--seconds",
    group=SEARCH,
    type=float,
    metavar="SECONDS",
    help="Time limit for each checkpointer; checks cut off by it are UNKNOWN (default: none).",
)
@SEED
@JOBS
@CLUSTER
@option(
    "--shard",
    group=SEARCH,
    metavar="I/N",
    help="Make part I of N of the checks, and write one file; racecheck merge joins the files.",
)
@option("--fresh", group=SEARCH, is_flag=True, help="Ignore the cached results of an earlier gate.")
@COLLECTIVES_
@of_result
def gate(**given: Any) -> int:
    """Run the conformance suite on a CHECKPOINTER, or everything that may go wrong on a launch COMMAND.

    A CHECKPOINTER is package.module:Class, path/to/file.py::Class or a known name.
    """
    options = GateOptions(**given)
    options.check()
    findings = config.read().findings
    options.check_files(findings)
    if options.is_command:
        return options.told(options.of_command(findings))
    return options.of_checkpointers(findings)


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The arguments of the command, as people gave them."""

    target: tuple[str, ...]
    watch: Path | None
    from_: Path | None
    resume_with: str | None
    every: bool
    checks: tuple[str, ...]
    storages: tuple[str, ...]
    ranks: int | None
    collectives: str | None
    effort: str
    seconds: float | None
    seed: str
    known: Path | None
    update: bool
    fresh: bool
    jobs: int
    cluster: str | None
    shard: str | None
    junit_: Path | None
    markdown: Path | None
    html_: Path | None
    full: bool
    as_json: bool

    @property
    def is_command(self) -> bool:
        return bool(self.target) and (self.watch is not None or capture.is_launcher(self.target[0]))

    @property
    def storage(self) -> str:
        """The storage of a launch command."""
        return self.storages[0] if self.storages else SHARED

    @property
    def part(self) -> Part | None:
        return parts.part(self.shard) if self.shard is not None else None

    def check(self) -> None:
        """Raise `UsageError` for errors that need no look at a checkpointer."""
        self._check_target()
        if self.seconds is not None and not _SHORTEST <= self.seconds <= _LONGEST:
            raise UsageError(f"--seconds must be from {_SHORTEST} to {_LONGEST}, not {self.seconds}")
        if self.update and self.known is None:
            raise UsageError("--update-baseline needs --baseline FILE")
        if self.as_json and self.markdown == _STDOUT:
            raise UsageError("--json and --markdown - both write to standard output: give --markdown a file")
        make_world(World(), collectives=self.collectives)
        if self.part is not None and (self.known or self.junit_ or self.markdown or self.html_ or self.as_json):
            raise UsageError("--shard: give --baseline, --json and the files to write to racecheck merge")

    def _check_target(self) -> None:
        if self.is_command:
            if self.every or self.ranks is not None or self.shard is not None or self.fresh:
                raise UsageError("--all, --ranks, --shard and --fresh are for checkpointers: leave them out")
            if len(self.storages) > 1:
                raise UsageError("a launch command is judged on one storage at a time: give --storage once")
            make_world(World(), storage=self.storage)
            return
        if len(self.target) > 1:
            raise UsageError(
                f"{shlex.join(self.target)} is neither one checkpointer nor a launch command (torchrun ...)"
            )
        if self.watch is not None or self.from_ is not None or self.resume_with is not None:
            raise UsageError("--watch, --from and --resume-with need a launch command: -- torchrun ... train.py")
        if self.every == bool(self.target):
            some = ", ".join([*NAMES][:_NAMED])
            raise UsageError(f"name one checkpointer (package.module:Class, or {some}, ...) or use --all, not both")

    def check_files(self, findings: Path) -> None:
        """Raise `UsageError` for a file that cannot be written."""
        own = shards.file_of(self.part) if self.part is not None else None
        known = self.known if self.update else None
        check_outputs(known, self.junit_, self.markdown, self.html_, findings / "gate.json", own)

    def _terms(self, findings: Path) -> Terms:
        return Terms(
            self.ranks, self.seed, self.effort, self.seconds or 0.0, findings, self.collectives or "gloo"
        )  # fmt: skip

    def of_checkpointers(self, findings: Path) -> int:
        """Judge checkpointers; returns the exit status."""
        names = [*NAMES] if self.every else [*self.target]
        before = before_of(self.known, names, update=self.update)
        asked = Asked(names, self.checks, self.storages, goes_on=self.every, fresh=self.fresh)
        with workers_of(self.jobs, self.cluster) as workers, display("starting") as show:
            one = Gate(asked, self._terms(findings), _tell, show, workers, self.part)
            if self.part is not None:
                return _part(one)
            result = one.run(before)
        if not result.cells and not result.interrupted and not result.wrong:
            raise UsageError("no check matches both --check and --storage: leave one out")
        return self.told(self._updated(result, before))

    def of_command(self, findings: Path) -> GateResult:
        """Judge a launch command; returns the result, compared with the findings that are known."""
        begun, terms = time.perf_counter(), self._terms(findings)
        checks = [replace(each, storage=self.storage) for each in plan.chosen(self.checks, self.effort)]
        with ExitStack() as stack:
            workers = stack.enter_context(workers_of(self.jobs, self.cluster))
            again = self.resume_with or ""
            program, starting = launching.launched(
                stack, config.read(), workers, self.target, self.watch, self.from_, again
            )
            world = checks[0].world(program.world)
            before = before_of(self.known, [program.name], update=self.update)
            stack.enter_context(starting)
            launching.check(program, world, free=False)
            with redirect_stdout(sys.stderr), display("starting; importing torch") as show, starting.lent() as session:
                gate_ = CommandGate(program, terms, show, _tell, workers)
                cells = gate_.cells(session, checks)
        seconds = time.perf_counter() - begun
        result = GateResult(
            tuple(cells), baseline.compare(cells, before), terms, seconds, interrupted=gate_.is_interrupted,
            launch=self._launch(world),
        )  # fmt: skip
        return self._updated(result, before)

    def _launch(self, world: World) -> str:
        """Return the options and the command, for ``racecheck run``."""
        where = ["--storage", self.storage, "--nodes", str(world.nodes)] if self.storages else []
        watch = [] if self.watch is None else ["--watch", str(self.watch)]
        start = [] if self.from_ is None else ["--from", str(self.from_)]
        again = [] if self.resume_with is None else ["--resume-with", self.resume_with]
        return shlex.join([*where, *watch, *start, *again, "--", *self.target])

    def _updated(self, result: GateResult, before: Baseline) -> GateResult:
        if self.update and self.known is not None and not result.interrupted:
            return updated(result, before, self.known)
        return result

    def told(self, result: GateResult) -> int:
        """Print a result, and write it to the files that are asked for; returns the exit status."""
        return told(result, self.junit_, self.markdown, self.html_, full=self.full, as_json=self.as_json)


def told(
    result: GateResult, junit_: Path | None, markdown: Path | None, html_: Path | None, *, full: bool, as_json: bool
) -> int:
    """Print a result, and write it to the files that are asked for; returns the exit status."""
    if markdown != _STDOUT:
        say(json.dumps(data(result)) if as_json else layouts.text(pages.blocks(result, full=full)))
    _write(result, junit_, markdown, html_, full=full)
    return INTERRUPTED if result.interrupted else EXIT[result.verdict]


def check_outputs(*files: Path | None) -> None:
    """Raise `UsageError` for a file that cannot be written; None and - are none."""
    for file in files:
        if file is not None and file != _STDOUT:
            check_output(file)


def _part(gate_: Gate) -> int:
    """Make a shard and write its file; returns the exit status, which is 0 even if checks fail."""
    made = gate_.shard()
    if made is None:
        return INTERRUPTED
    file, total = shards.save(made), sum(len(each.checks) for each in made.work.checkpointers.values())
    say(
        f"shard {made.part.number} of {made.part.count}: {len(made.cells)} of {total} checks are in {file}\n"
        f"Verdict: racecheck merge racecheck-shard-*-of-{made.part.count}.json"
    )
    return 0


def before_of(known: Path | None, names: Sequence[str], *, update: bool) -> Baseline:
    """Return the baseline, and say so if it is about other checkpointers; one to be written need not be there yet."""
    if known is None or (update and not known.exists()):
        return Baseline()
    before = baseline.load(known)
    if others := baseline.others(before, names):
        _tell(f"racecheck: {known} has no line about {names[0]}; its lines are about {', '.join(others)}")
    return before


def updated(result: GateResult, before: Baseline, known: Path) -> GateResult:
    """Write the baseline and return the result compared with it; a gate that is UNKNOWN otherwise writes none."""
    after = baseline.updated(before, result.comparison)
    compared = baseline.compare(result.cells, after)
    if baseline.verdict(result.cells, compared) is Verdict.UNKNOWN:
        _tell(f"racecheck: {known} was not written: this gate is UNKNOWN but for its findings; see the reasons below")
        return result
    baseline.save(after, known)
    return replace(result, comparison=compared)


def _write(
    result: GateResult, junit_: Path | None, markdown: Path | None, html_: Path | None, *, full: bool = False
) -> None:
    blocks = [*pages.blocks(result, full=full)]
    files: Sequence[tuple[Path | None, Callable[[], str]]] = (
        (junit_, lambda: junit.xml(result.cells, result.comparison)),
        (markdown, lambda: layouts.markdown(blocks)),
        (html_, lambda: layouts.page(blocks, partial(_picture, start=(html_ or _STDOUT).parent))),
    )
    for path, text in files:
        if path == _STDOUT:
            say(text().rstrip())
        elif path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text(), encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _picture(finding: str, start: Path) -> str:
    """Draw a finding and return the address of its page; "" if it is gone or cannot be drawn."""
    with suppress(UsageError):
        return href(write(Path(finding)), start)
    return ""


def _tell(line: str) -> None:
    """Print lines to standard error, above the live line."""
    click.echo(escape(" ".join(line.split())), err=True)
