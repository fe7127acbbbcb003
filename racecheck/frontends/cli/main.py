"""The command line.

Exit status: 0 PASS, 1 FAIL (of a replay: reproduced), 2 wrong usage or input, 3 UNKNOWN, 130 interrupted.
The verdict goes to standard output, with ``--json`` as one object; everything else goes to standard error.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from racecheck import faults, invariants, storage
from racecheck.crash.certify import selftest
from racecheck.explore import findings, runner, search
from racecheck.explore import resume as resume_
from racecheck.explore.findings import Finding
from racecheck.explore.search import Foreseen, Report, Search
from racecheck.frontends import launching
from racecheck.frontends.cli import program, streams
from racecheck.frontends.cli import trust as trusting
from racecheck.frontends.cli.explain import explain as explain_
from racecheck.frontends.cli.gate import gate
from racecheck.frontends.cli.guide import guide
from racecheck.frontends.cli.options import (
    COLLECTIVES_,
    GOES_WRONG,
    JSON,
    OUTPUT,
    RANKS,
    SEARCH,
    SEED,
    WHAT,
    Command,
    check_output,
    option,
    output_file,
)
from racecheck.frontends.cli.report import report as report_
from racecheck.frontends.cli.report import trace
from racecheck.model import config
from racecheck.model.config import Config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Invariant, Verdict, World
from racecheck.model.package import VERSION
from racecheck.processes.doctor import examination
from racecheck.processes.session import Slot
from racecheck.report import results
from racecheck.report.files import load
from racecheck.report.picture.document import write
from racecheck.report.progress import Counter, Interrupted, Teller, as_interrupt, display, printable, say, with_session
from racecheck.report.results import EXIT, Page
from racecheck.report.words import escape
from racecheck.scheduling import strategies
from racecheck.targets import listing, resolve
from racecheck.targets.resolve import Place
from racecheck.targets.scenarios import LONGEST, Scenario, checked_seed, make_world

if TYPE_CHECKING:
    from racecheck.explore.resume import Cut
    from racecheck.explore.runner import Progress, Replayed
    from racecheck.processes.session import Session

WRONG, INTERRUPTED = 2, 130


def entry() -> int:
    """Run the command of this process and return the exit status, whatever state its standard streams are in."""
    streams.secure()
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.  SIGTERM ends it as Ctrl-C does, so that it leaves nothing behind.

    Nothing that goes wrong with racecheck itself may look like a FAIL, which is status 1.
    """
    try:
        with as_interrupt(signal.SIGTERM):
            return int(commands.main(arguments, prog_name="racecheck", standalone_mode=False) or 0)
    except (UsageError, click.ClickException) as error:
        return _complain(_message(error), WRONG)
    except CannotRun as error:
        data = {"verdict": Verdict.UNKNOWN.name, "reasons": [str(error)]}
        return _unknown(data, as_json="--json" in (sys.argv[1:] if arguments is None else arguments))
    except Interrupted as far:
        return _complain(str(far), INTERRUPTED)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        click.echo(printable(traceback.format_exc()), err=True)
        return _complain(str(InternalError(f"{type(error).__name__}: {error}")), EXIT[Verdict.UNKNOWN])


def _message(error: UsageError | click.ClickException) -> str:
    if isinstance(error, UsageError):
        return str(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "racecheck"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


def _complain(text: str, status: int) -> int:
    """Print one line to standard error."""
    click.echo(f"racecheck: {escape(' '.join(text.split()))}", err=True)
    return status


_START = """\
racecheck finds, explains and replays race conditions in distributed checkpoint code.

  racecheck doctor       Can this machine run it?
  racecheck list         Which scenarios are below ./scenarios?
  racecheck run TARGET   Explore a scenario; TARGET is path/to/file.py::name.
  racecheck run --watch DIR -- torchrun ...
                         Explore what your launch command does in DIR.
  racecheck guide        How do I write my own?
  racecheck --help       All commands."""


@click.group(invoke_without_command=True)
@click.version_option(VERSION)
@click.pass_context
def commands(context: click.Context) -> int:
    """Find, explain and replay race conditions in distributed checkpoint code."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists: change to another one") from None
    if context.invoked_subcommand is None:
        say(_START)
    return 0


commands.add_command(explain_)
commands.add_command(gate)
commands.add_command(guide)
commands.add_command(report_)
commands.add_command(trace)


@commands.command(
    cls=Command,
    examples=('eval "$(racecheck completion bash)"', "racecheck completion fish > FILE  # in ~/.config/fish"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script of a SHELL: bash, zsh or fish."""
    found = get_completion_class(shell)
    assert found is not None
    say(found(commands, {}, "racecheck", "_RACECHECK_COMPLETE").source())
    return 0


@commands.command("doctor", cls=Command, examples=("racecheck doctor",))
@JSON
def doctor_(as_json: bool) -> int:
    """Check whether this machine can run controlled worlds, and how to fix what is missing."""
    with display("checking this machine"):
        checks = examination.check()
    verdict = Verdict.PASS if all(each.ok or not each.required for each in checks) else Verdict.UNKNOWN
    data = {"verdict": verdict.name, "checks": [asdict(each) for each in checks]}
    say(json.dumps(data) if as_json else examination.text(checks))
    return EXIT[verdict]


@commands.command("selftest", cls=Command, examples=("racecheck selftest --real-fs --programs 20 --fs ext4",))
@option("--real-fs", is_flag=True, required=True, help="Check the crash models against real file systems (required).")
@option(
    "--programs",
    type=click.IntRange(1),
    metavar="N",
    default=100,
    show_default=True,
    help="Random programs per file system.",
)
@option(
    "--fs",
    "names",
    multiple=True,
    type=click.Choice(selftest.FILE_SYSTEMS),
    help="Only this file system (default: all); repeatable.",
)
@option("--seed", type=int, default=0, show_default=True, help="Random seed of the programs.")
@JSON
def selftest_(*, real_fs: bool, programs: int, names: tuple[str, ...], seed: int, as_json: bool) -> int:
    """Check the crash models against real file systems by crashing random programs. Needs root."""
    del real_fs
    with display("crashing file systems") as show:
        done = selftest.selftest(
            names, programs, seed, lambda fs, number: show(f"{fs}: {number} of {programs} programs")
        )
    data = {"verdict": done.verdict.name, "certificates": [asdict(each) for each in done.certificates]}
    say(json.dumps(data) if as_json else done.text)
    return EXIT[done.verdict]


@commands.command("list", cls=Command, examples=("racecheck list", "racecheck list scenarios/test_readme.py"))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@JSON
def list_(paths: tuple[str, ...], as_json: bool) -> int:
    """List the scenarios in files and directories (default: ./scenarios)."""
    with display("importing scenarios"):
        found = listing.scenarios(paths or ("scenarios",))
    if as_json:
        say(json.dumps(found))
    elif found["scenarios"]:
        say(_table(["target", "expected", "invariant", "report"], found["scenarios"]))
    else:
        _complain(f"no scenarios in {', '.join(paths) or 'scenarios'}", 0)
    for each in () if as_json else found["broken"]:
        say(f"{each['file']}  not listed: {each['reason']}")
    return 0


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    cells = [list(columns), *([str(row[column]) for column in columns] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    padded = (zip(row, widths, strict=True) for row in cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in padded)


@commands.command(
    cls=Command,
    examples=(
        "racecheck run scenarios/test_readme.py::overwrite",
        "racecheck run mine.py::saves --ranks 4 --fault 'ENOSPC on write nth=each'",
        "racecheck run 'mypkg.saver:Mine[power-loss]' --seconds 60",
        "racecheck run --watch checkpoints/my_run -- torchrun --nproc-per-node=4 train.py --overwrite",
    ),
)
@click.argument("target", nargs=-1, required=True, metavar="TARGET")
@option(
    "--watch",
    group=WHAT,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run a launch command (torchrun, python train.py) unchanged; control its ranks in DIR. No real file changes.",
)
@option(
    "--from",
    "from_",
    group=WHAT,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="What the watched directory holds at the start of a run (default: what it holds now).",
)
@option(
    "--resume-with",
    group=WHAT,
    metavar="COMMAND",
    help="Launch this on what each run, kill and crash leaves: the recovery (default with --fault: the same command).",
)
@option(
    "--check-launcher",
    "compares",
    group=WHAT,
    is_flag=True,
    help="Explore nothing: compare one run by the real launcher with one by racecheck, op by op.",
)
@RANKS
@option("--nodes", group=WHAT, type=int, help="Number of nodes that share the ranks (default: the scenario's).")
@option(
    "--size",
    "sizes",
    group=WHAT,
    multiple=True,
    metavar="NAME=NUMBER",
    help="Set one of the scenario's sizes; repeatable.",
)
@option(
    "--storage",
    "storage_",
    group=WHAT,
    metavar="NAME",
    help=f"Storage model: {', '.join(storage.NAMES)}, optionally with (OPTIONS) (default: the scenario's).",
)
@option(
    "--mode",
    group=WHAT,
    type=click.Choice(["controlled", "free"]),
    default="controlled",
    show_default=True,
    help="controlled: racecheck orders every op; free: full speed, only faults are injected.",
)
@option(
    "--timeout",
    group=WHAT,
    type=float,
    metavar="SECONDS",
    help="Stop a run after this time without a next op, or of real-time waits in total (default: the scenario's).",
)
@option(
    "--strategy",
    group=SEARCH,
    metavar="NAME",
    help=f"Strategy: {', '.join(strategies.NAMES)} (default: auto). pct:N sets the depth.",
)
@option(
    "--schedules",
    group=SEARCH,
    type=click.IntRange(1),
    metavar="N",
    default=100,
    show_default=True,
    help="Maximum number of schedules.",
)
@option(
    "--seconds",
    group=SEARCH,
    type=float,
    metavar="SECONDS",
    help="Time budget: start no schedule after this time (default: none).",
)
@option(
    "--explain",
    group=SEARCH,
    type=float,
    default=search.EXPLAIN,
    show_default=True,
    metavar="SECONDS",
    help="Time budget of the explanation of a failure, within --seconds; 0 turns it off.",
)
@option(
    "--keep-going",
    group=SEARCH,
    is_flag=True,
    help="Do not stop at a violation; list the distinct results of the runs. Explains none.",
)
@option(
    "--resume",
    group=SEARCH,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Continue a saved search (auto and dpor only).",
)
@SEED
@option(
    "--fault",
    "faults_",
    group=GOES_WRONG,
    multiple=True,
    metavar="SPEC",
    help=f"Inject a fault, such as 'EIO on fsync nth=each'; repeatable. Grammar: {faults.GRAMMAR}",
)
@option("--skew", group=GOES_WRONG, multiple=True, metavar="RANK=SECONDS", help="Set a rank's clock ahead; repeatable.")
@COLLECTIVES_
@option("--full", group=OUTPUT, is_flag=True, help="Do not shorten the interleaving.")
@option("--show-passing", group=OUTPUT, is_flag=True, help="Show the interleaving of a run that passed, too.")
@output_file("--html", "html_", does="If it fails, draw the finding as one HTML file.")
@JSON
def run(
    *,
    target: tuple[str, ...],
    watch: Path | None,
    from_: Path | None,
    resume_with: str | None,
    compares: bool,
    ranks: int | None,
    nodes: int | None,
    skew: tuple[str, ...],
    collectives: str | None,
    sizes: tuple[str, ...],
    strategy: str | None,
    schedules: int,
    seconds: float | None,
    explain: float,
    keep_going: bool,
    resume: Path | None,
    seed: str,
    mode: str,
    storage_: str | None,
    faults_: tuple[str, ...],
    timeout: float | None,
    full: bool,
    show_passing: bool,
    html_: Path | None,
    as_json: bool,
) -> int:
    """Explore the scenario TARGET (path/to/file.py::name, package.module:name or CHECKPOINTER[check]), or a COMMAND."""
    free, chooses = mode == "free", strategy or strategies.DEFAULT
    _check_options(strategy if free else None, timeout=timeout, seconds=seconds)
    if not 0 <= explain <= LONGEST:
        raise UsageError(f"--explain must be at least 0 and at most {LONGEST} seconds, not {explain}")
    settings = config.read()
    scenario: Scenario
    slot: Slot | None
    if watch is not None:
        again = "" if resume_with is None and faults_ and not compares else resume_with
        scenario, slot = launching.prepare(target, watch, from_, again, settings)
    else:
        scenario, slot = launching.started(_load(program.only_target(target, from_, resume_with)), settings, faults_)
    if compares:
        return program.compare(scenario, slot, settings, seed=seed, as_json=as_json)
    world = make_world(
        scenario.world, ranks=ranks, nodes=nodes, storage=storage_, timeout=timeout, collectives=collectives,
        **({"skew": _skews(skew)} if skew else {}), **({"sizes": _numbers(sizes)} if sizes else {}),
        **({"faults": faults_} if faults_ else {}),
    )  # fmt: skip
    launching.check(scenario, world, free=free)
    earlier = _earlier(resume, scenario, world, seed)
    strategies.make(chooses, world, earlier.progress if earlier is not None else None)
    _check_writable(settings.findings)
    if html_ is not None:
        check_output(html_)
    asked = Search(
        scenario, world, scenario.invariants, chooses, schedules, seed, free=free, seconds=seconds or 0.0,
        keep_going=keep_going, earlier=earlier, explain=0.0 if keep_going else explain,
        findings=settings.findings,
    )  # fmt: skip
    return _search(asked, settings, _page(full=full, passing=show_passing), slot, html_, as_json=as_json)


def _search(
    asked: Search, settings: Config, page: Page, slot: Slot | None, drawing: Path | None, *, as_json: bool
) -> int:
    """Make a search and print its result: a FAIL at once, and the explanation when it is there.

    Returns the exit status.
    """
    counter = Counter("schedule", "distinct", asked.schedules, limit=asked.seconds)
    budget = asked.schedules + (asked.earlier.past.runs if asked.earlier is not None else 0)
    announced = []

    def work(session: Session, tell: Teller) -> Report:
        def announce(report: Report) -> None:
            if not as_json:
                announced.append(report)
                tell.say(results.verdict_text(report, budget, page))

        return search.explore(session, asked, tell, announce)

    try:
        report = with_session(settings.runs, work, counter, slot)
    except CannotRun as error:
        report = search.unrun(asked, (counter.done, counter.counted, counter.seconds), error)
        if report.verdict is Verdict.UNKNOWN:
            return _unknown(results.search_data(report), as_json=as_json)
    cut = _keep_cut(report, settings.findings)
    text = results.grounds_text(report, page, cut) if announced else results.search_text(report, budget, page, cut)
    say(json.dumps(results.search_data(report, cut)) if as_json else text)
    _draw(report, drawing)
    return INTERRUPTED if report.interrupted else EXIT[report.verdict]


def _draw(report: Report, file: Path | None) -> None:
    """Draw the first finding of a search, if one is asked for; what goes wrong does not change the verdict."""
    if file is None:
        return
    if report.finding is None:
        _complain(f"no finding to draw: {file} is not written", 0)
        return
    try:
        write(report.finding, file)
    except UsageError as error:
        _complain(str(error), 0)


def _check_options(useless: str | None, **limits: float | None) -> None:
    """Raise `UsageError` for nan, which `float` accepts as a limit."""
    if useless:
        raise UsageError("--strategy has no effect in free mode: leave it out")
    for name, limit in limits.items():
        if limit is not None and not 0 < limit <= LONGEST:
            raise UsageError(f"--{name} must be more than 0 and at most {LONGEST} seconds, not {limit}")


def _earlier(path: Path | None, scenario: Scenario, world: World, seed: str) -> Cut | None:
    """Return the search to continue; raises `UsageError`."""
    if path is None:
        return None
    return resume_.load(path, findings.reference(scenario), world, seed)


def _keep_cut(report: Report, directory: Path) -> Path | None:
    """Keep a search that has more to try."""
    if report.cut is None:
        return None
    with suppress(UsageError):
        return resume_.save(report.cut, directory)
    return None


def _skews(given: Sequence[str]) -> tuple[float, ...]:
    """Return seconds by rank; raises `UsageError` for text that is no RANK=SECONDS."""
    found: dict[int, float] = {}
    for each in given:
        match = re.fullmatch(r"(\d{1,6})=([+-]?[\d.]+)", each)
        try:
            rank, seconds = (int(match[1]), float(match[2])) if match else (-1, 0.0)
        except ValueError:
            rank = -1
        if rank < 0:
            raise UsageError(f"--skew takes RANK=SECONDS, such as 1=0.5, not {each!r}")
        if rank in found:
            raise UsageError(f"--skew is given twice for rank {rank}: leave one out")
        found[rank] = seconds
    return tuple(found.get(rank, 0.0) for rank in range(max(found) + 1))


def _numbers(given: Sequence[str]) -> dict[str, int]:
    """Return sizes by name; raises `UsageError` for text that is no NAME=NUMBER."""
    found: dict[str, int] = {}
    for each in given:
        match = re.fullmatch(r"(\w+)=(\d{1,9})", each, re.ASCII)
        if match is None:
            raise UsageError(f"--size takes NAME=NUMBER, such as steps=3, not {each!r}")
        if match[1] in found:
            raise UsageError(f"--size is given twice for {match[1]}: leave one out")
        found[match[1]] = int(match[2])
    return found


def _unknown(data: dict[str, Any], *, as_json: bool) -> int:
    """Report that a run was impossible; returns the exit status."""
    say(json.dumps(data) if as_json else f"UNKNOWN  {data['reasons'][0]}")
    return EXIT[Verdict.UNKNOWN]


def _page(*, full: bool = False, passing: bool = False) -> Page:
    console = Console()
    if not console.is_terminal:
        return Page(full=full, passing=passing)
    colour = not console.no_color and console.color_system is not None
    return Page(console.width, colour=colour, full=full, cut=True, passing=passing)


def _load(target: str) -> Scenario:
    """Return the scenario; raises `UsageError`.  What its file prints goes to standard error."""
    if "::" not in target and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with listing.importing(target), redirect_stdout(sys.stderr):
        return resolve.load(target)


def _imported(at: Place) -> Scenario:
    with listing.importing(at.target), redirect_stdout(sys.stderr):
        return resolve.find(at)


def _check_writable(directory: Path) -> None:
    """Raise `UsageError` before a search is spent on a finding that cannot be kept."""
    directory = directory.absolute()
    nearest = next(each for each in (directory, *directory.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write findings to {directory}: set RACECHECK_FINDINGS")


@commands.command(cls=Command, examples=("racecheck predict scenarios/test_makedirs_without_barrier.py::racy",))
@click.argument("target")
@RANKS
@SEED
@COLLECTIVES_
@JSON
def predict(target: str, ranks: int | None, collectives: str | None, seed: str, as_json: bool) -> int:
    """Find the races of one passing run of TARGET, and what each collective orders."""
    settings = config.read()
    scenario, slot = launching.started(_load(target), settings)
    world = make_world(scenario.world, ranks=ranks, collectives=collectives)
    storage.make(world)
    _check_writable(settings.findings)
    counter = Counter("race", "tried", 0)

    def work(session: Session, progress: Progress) -> Foreseen:
        asked = Search(scenario, world, scenario.invariants, seed=seed, findings=settings.findings)
        return search.foresee(session, asked, progress)

    try:
        found = with_session(settings.runs, work, counter, slot)
    except CannotRun as error:
        return _unknown({"target": scenario.target, "verdict": "UNKNOWN", "reasons": [str(error)]}, as_json=as_json)
    say(json.dumps(results.prediction_data(found)) if as_json else results.prediction_text(found, _page()))
    return EXIT[found.verdict]


@commands.command(
    cls=Command,
    examples=(
        "racecheck replay .racecheck/overwrite-8e53/b0e3dc349a.json",
        "racecheck replay .racecheck/overwrite-8e53/b0e3dc349a.json --constraints --trust",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path))
@option("--times", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="Number of runs.")
@option(
    "--constraints",
    is_flag=True,
    help="Replay only the finding's orderings, with random schedules: works after the code has changed.",
)
@option("--trust", is_flag=True, help="Run code that has changed, or that is not below the current directory.")
@JSON
def replay(finding: Path, times: int, constraints: bool, trust: bool, as_json: bool) -> int:
    """Run the schedule of FINDING again and count how often it reproduces."""
    found = load(finding)
    if constraints and not found.constraints:
        again = f"racecheck run {found.scenario.target}"
        raise UsageError(f"{finding} has no constraints: create a new finding with {again}")
    settings = config.read()
    scenario = _scenario_of(found, settings, changed=constraints, trust=trust)
    slot = launching.slot_of(scenario, settings) or Slot(settings.runs, found.slot)

    def work(session: Session, progress: Progress) -> Replayed:
        again = runner.replay_constraints if constraints else runner.replay
        return again(session, scenario, found, times, progress)

    counter = Counter("time", "reproduced", times)
    try:
        done = with_session(settings.runs, work, counter, slot)
    except CannotRun as error:
        data = {"times": times, "reproduced": counter.counted, "diverged": 0, "verdict": "UNKNOWN"}
        return _unknown({**data, "divergence": "", "reasons": [str(error)]}, as_json=as_json)
    if done.diverged and found.launch is None and slot.number != found.slot:
        _complain(f"the path of the finding has the number {found.slot:04d}, which was in use: try again later", 0)
    text = results.replay_text(found, done, _page())
    say(json.dumps(results.replay_data(done)) if as_json else text)
    return EXIT[done.verdict]


def _scenario_of(finding: Finding, settings: Config, *, changed: bool, trust: bool) -> Scenario:
    """Return the scenario of a finding, as it was or as it is now (``changed``), once it may be run.

    Raises `UsageError` if it is gone.
    """
    make_world(finding.outcome.world)
    checked_seed(finding.seed)
    if finding.launch is not None:
        made: Scenario = trusting.program_of(finding, finding.launch, settings.findings, changed=changed, trust=trust)
    else:
        made = _imported(trusting.place_of(finding, changed=changed, trust=trust))
    scenario = copy.copy(made)
    scenario.invariants = _asked(finding, scenario)
    return scenario


def _asked(finding: Finding, scenario: Scenario) -> tuple[Invariant, ...]:
    """Return the invariants that the finding was judged by: the scenario's, its module's, or racecheck's own.

    Of the module only functions of one argument that it defines itself count: a finding calls nothing else.
    """
    own = [each for each in vars(sys.modules[scenario.module]).values() if _could_judge(each, scenario.module)]
    known = {invariants.name_of(each): each for each in (*invariants.ALL, *own, *scenario.invariants)}
    missing = [name for name in finding.invariants if name not in known]
    if missing:
        names = ", ".join(missing)
        raise UsageError(f"the finding was judged by {names}, not found now: define the function in {scenario.file}")
    return tuple(known[name] for name in finding.invariants)


def _could_judge(each: object, module: str) -> bool:
    return inspect.isfunction(each) and each.__module__ == module and len(inspect.signature(each).parameters) == 1
