"""Property tests of checkpointers: hypothesis draws schedules, worlds and sequences of phases, and shrinks failures.

    @settings(deadline=None)
    @given(schedule=racecheck.schedules(), world=racecheck.worlds(ranks=(2, 4)))
    def test_overwrite(racecheck, schedule, world):
        racecheck.check(overwrite, schedule=schedule, world=world)

The same works without the fixture.  How long a run takes is not the property: hence no deadline.  A run is carried
out once (`racecheck.explore.trials`), so that what hypothesis asks for again comes out the same; where it does not,
that is UNKNOWN, and the test ends there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache, partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, currently_in_test_context, note, settings, stateful
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck
from hypothesis.strategies import SearchStrategy

from racecheck.explore import findings as record
from racecheck.explore.current_session import HERE
from racecheck.explore.evidence import gather
from racecheck.explore.reports import Found, Report
from racecheck.explore.trials import Trial, Trials, What
from racecheck.invariants import judge, name_of, wants_contents
from racecheck.model import config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Fault, Invariant, Judgement, Outcome, Verdict, World
from racecheck.report.picture.document import write
from racecheck.report.results import Page, search_text
from racecheck.scheduling.strategies import Strategy
from racecheck.scheduling.strategies.following.switches import Switches
from racecheck.targets.launched import Launched
from racecheck.targets.scenarios import Scenario, make_world

if TYPE_CHECKING:
    from _pytest.outcomes import Failed
else:
    Failed = pytest.fail.Exception

_TRIALS = Trials(HERE)
_MOST_RANKS, _MOST_SWITCHES, _SHORTEST = 16, 64, 8
_PLACES = 20
"""The last op that a drawn fault may hit."""
_PHASES = settings(deadline=None, max_examples=100, stateful_step_count=8, suppress_health_check=[*HealthCheck])


class _Text(Failed):
    """pytest shows only the text, so the notes of hypothesis have to be in it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, pytrace=False)

    def __str__(self) -> str:
        return "\n".join([*self.args, *getattr(self, "__notes__", ())])


class Violated(_Text, AssertionError):
    """A run has broken invariants; the text shows it."""


class Undecided(_Text, FailedHealthCheck, CannotRun):
    """UNKNOWN: a failed health check ends a test of hypothesis at once."""


class Misused(_Text, FailedHealthCheck, UsageError):
    """Wrong usage, which no other example would fix."""


@cache
def _violated(broken: tuple[str, ...]) -> type[Violated]:
    """Return a class for each set of broken invariants: hypothesis tells failures apart by class, and shrinks each."""
    del broken
    return type("Violated", (Violated,), {})


def schedules(ops: int = 64) -> SearchStrategy[Switches]:
    """Return schedules: the default one with some switches within the first ``ops`` ops of each rank.

    The switches are close together or far apart, and shrink towards fewer and earlier ones.  Raises `UsageError` for no
    ops.
    """
    if ops < 1:
        raise UsageError(f"schedules(ops={ops}): ops must be at least 1")
    spans = [*takewhile(lambda span: span < ops, (_SHORTEST << power for power in count())), ops]

    @st.composite
    def drawn(draw: st.DrawFn) -> Switches:
        span = draw(st.sampled_from(spans))
        fewest = min(draw(st.sampled_from((0, span // 4, span // 2, span))), _MOST_SWITCHES)
        switch = st.tuples(st.integers(0, _MOST_RANKS - 1), st.integers(0, span - 1))
        return Switches(draw(st.lists(switch, min_size=fewest, unique=True)))

    return drawn()


def worlds(
    like: Scenario | World | None = None,
    *,
    ranks: Sequence[int] = (2, 4),
    nodes: Sequence[int] = (1,),
    skew: float = 0.0,
    sizes: Mapping[str, int] | None = None,
    faults: Sequence[str | Fault] = (),
) -> SearchStrategy[World]:
    """Return worlds that are like one (default: a scenario's default world), but for their numbers of ranks and nodes.

    These are any of the numbers that go together, the first ones being the simplest.  Clocks run ahead by up to
    ``skew`` seconds.  Of the scenario's sizes those in ``sizes`` are 1 at least, and at most the given number.  One of
    the ``faults`` happens, or none does; one that is to hit "each" op (``nth=each``) hits one that is drawn.

    Raises `UsageError` for impossible worlds.
    """
    base = like.world if isinstance(like, Scenario) else like or World()
    shapes = [(each, on) for on in nodes for each in ranks if on > 0 and each % on == 0]
    if not shapes:
        raise UsageError(f"no number of ranks in {[*ranks]} divides evenly among {[*nodes]} nodes")
    shaped = [make_world(base, ranks=each, nodes=on, skew=(skew,), sizes=sizes) for each, on in shapes]
    most = {each.name: each.value for each in shaped[0].sizes if each.name in (sizes or {})}
    ahead = st.integers(0, round(skew * 1000))
    wrong = [each for given in faults for each in make_world(shaped[0], faults=[given]).faults]

    @st.composite
    def drawn(draw: st.DrawFn) -> World:
        world = draw(st.sampled_from(shaped))
        seconds = tuple(draw(ahead) / 1000 for _ in range(world.ranks)) if skew else ()
        world = replace(world, skew=seconds if any(seconds) else ())
        world = make_world(world, sizes={name: draw(st.integers(1, value)) for name, value in most.items()})
        return draw(_shown(replace(world, faults=draw(plans)) if wrong else world))

    plans = st.just(()) | st.sampled_from(wrong).flatmap(_placed) if wrong else st.just(())
    return drawn()


def _placed(fault: Fault) -> SearchStrategy[tuple[Fault, ...]]:
    """Return a fault at one op."""
    given: dict[str, SearchStrategy[Any]] = {name: st.just(value) for name, value in _special(fault, Fault("")).items()}
    if not fault.nth:
        given["nth"] = st.integers(1, _PLACES)
    return st.tuples(st.builds(Fault, **given))


def _shown(world: World) -> SearchStrategy[World]:
    """Return a class of worlds that hypothesis shows by their differences from the default."""
    return st.builds(World, **{name: st.just(value) for name, value in _special(world, World()).items()})


def _special(value: World | Fault, usual: World | Fault) -> dict[str, Any]:
    """Return the fields of a value that differ from the default one."""
    names = (each.name for each in fields(value))
    return {name: mine for name in names if (mine := getattr(value, name)) != getattr(usual, name)}


def run(
    scenario: Scenario,
    *,
    schedule: Strategy | None = None,
    world: World | None = None,
    seed: int | str = "0",
    contents: bool = False,
) -> Outcome:
    """Run a scenario once and return its outcome; without a schedule the default one.

    ``contents``: the outcome has the contents of checkpoint files.  Raises `UsageError`, and `CannotRun` for what is
    UNKNOWN.
    """
    with _told():
        _check_deadline()
        return _try(scenario, schedule, world, seed, contents=contents).outcome


def check(
    scenario: Scenario,
    *,
    schedule: Strategy | None = None,
    world: World | None = None,
    invariants: Sequence[Invariant] | None = None,
    seed: int | str = "0",
    findings: Path | None = None,
    html: Path | None = None,
) -> Report:
    """Run a scenario once, and raise `AssertionError` with the interleaving if an invariant is violated.

    Takes the arguments of `run`, and ``invariants`` (default: the scenario's).  The finding goes below ``findings``
    (default: the directory of all findings), and its picture to the file ``html``, if one is named.
    """
    with _told():
        _check_deadline()
        asked = _asked(scenario, invariants)
        trial = _try(scenario, schedule, world, seed, contents=wants_contents(asked))
        return _judge(trial, asked, findings or config.read().findings, html)


class Phases(stateful.RuleBasedStateMachine):
    """A state machine whose rules run scenarios one after the other on one disk: save, load, rotate, resume, ...

        class Saver(racecheck.Phases):
            @rule(schedule=racecheck.schedules())
            def save(self, schedule):
                self.check(saves, schedule=schedule)

            @rule(schedule=racecheck.schedules())
            def resume(self, schedule):
                self.check(loads, schedule=schedule)

        TestSaver = Saver.TestCase

    The first phase finds what its scenario's setup has left, every other one what the phase before has, and an hour
    later.  What ranks loaded is compared with what they saved in all phases before.  Unless ``TestCase.settings`` says
    otherwise, there are 100 examples of 8 phases at most, and no deadline.
    """

    seed: int | str = "0"

    def __init__(self) -> None:
        super().__init__()
        self._last: Trial | None = None

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls.TestCase.settings = _PHASES

    def run(self, scenario: Scenario, *, schedule: Strategy | None = None, world: World | None = None) -> Outcome:
        """Like `racecheck.run`, on the disk that the last phase has left."""
        with _told():
            self._last = _try(scenario, schedule, world, self.seed, before=self._last)
            return self._last.outcome

    def check(
        self,
        scenario: Scenario,
        *,
        schedule: Strategy | None = None,
        world: World | None = None,
        invariants: Sequence[Invariant] | None = None,
    ) -> Report:
        """Like `racecheck.check`, on the disk that the last phase has left."""
        with _told():
            asked = _asked(scenario, invariants)
            contents = wants_contents(asked)
            self._last = _try(scenario, schedule, world, self.seed, contents=contents, before=self._last)
            return _judge(self._last, asked, None)


@contextmanager
def _told() -> Iterator[None]:
    """Turn an error into one line, and end the test."""
    try:
        yield
    except (_Text, KeyboardInterrupt):
        raise
    except UsageError as error:
        wrong: Callable[[], _Text] = partial(Misused, f"racecheck: {error}")
    except (CannotRun, InternalError) as error:
        wrong = partial(Undecided, f"UNKNOWN  {error}")
    else:
        return
    raise wrong() from None


def _check_deadline() -> None:
    """Within a test, its settings are the default ones."""
    now = settings.default if currently_in_test_context() else None
    if now is not None and (limit := now.deadline) is not None:
        allowed = f"{limit.total_seconds() * 1000:.0f} ms"
        raise UsageError(f"a run may exceed this test's deadline of {allowed}: add @settings(deadline=None)")


def _asked(scenario: Scenario, invariants: Sequence[Invariant] | None) -> tuple[Invariant, ...]:
    if not isinstance(scenario, Scenario):
        raise UsageError(f"{scenario!r} is not a scenario: decorate the function with @racecheck.scenario()")
    if isinstance(scenario, Launched):
        raise UsageError("a launch command runs in a process of its own: ask the fixture, racecheck.check(launched)")
    return scenario.invariants if invariants is None else tuple(invariants)


def _try(
    scenario: Scenario,
    schedule: Strategy | None,
    world: World | None,
    seed: int | str,
    *,
    contents: bool = False,
    before: Trial | None = None,
) -> Trial:
    _asked(scenario, None)
    if world is not None and not isinstance(world, World):
        raise UsageError(f"{world!r} is not a world: draw one from racecheck.worlds()")
    if schedule is not None and not hasattr(schedule, "choose"):
        raise UsageError(f"{schedule!r} is not a schedule: draw one from racecheck.schedules()")
    what = What(scenario, scenario.fitted(scenario.world if world is None else world), str(seed), contents)
    trial = _TRIALS.run(what, Switches() if schedule is None else schedule, before)
    if currently_in_test_context():
        note(f"{scenario.name}: {_choices(trial.outcome)}")
    return trial


def _choices(outcome: Outcome) -> str:
    """Return the settings that are not the default."""
    taken = [f"{number} is {each.label}" for number, each in enumerate(outcome.schedule, 1) if each.index]
    return (
        f"{len(taken)} of {len(outcome.schedule)} choices are not the default" + ": " * bool(taken) + ", ".join(taken)
    )


def _judge(trial: Trial, invariants: Sequence[Invariant], findings: Path | None, html: Path | None = None) -> Report:
    """Return the outcome of a run; raises the error that stands for its verdict, unless it is a PASS."""
    judgement = judge(_with_saved(trial), invariants)
    path, why = None, ""
    if judgement.violations and findings and (trial.is_asked_again or not currently_in_test_context()):
        try:
            path = record.save(_finding(trial, invariants, judgement), findings)
        except UsageError as error:  # a FAIL must not get lost because its finding cannot be stored
            why = str(error)
    if path is not None and html is not None:
        write(path, html)
    report = _report(trial, [Found(each, trial.outcome, path, why) for each in judgement.violations], judgement)
    if report.verdict is Verdict.PASS:
        return report
    text = search_text(report, 1, Page(shutil.get_terminal_size((120, 24)).columns))
    if report.verdict is Verdict.FAIL:
        raise _violated(tuple(sorted({each.invariant for each in judgement.violations})))(text)
    raise Undecided(text)


def _with_saved(trial: Trial) -> Outcome:
    """Return the outcome as if the saves of earlier phases had been made at its beginning.

    In a world of another size no rank is the one that saved it.
    """
    outcome = trial.outcome
    saved = [
        replace(said, event=0, rank=said.rank if each.outcome.world.ranks == outcome.world.ranks else -1)
        for each in trial.line[:-1]
        for said in each.outcome.weights
        if said.kind == "saved"
    ]
    return replace(outcome, weights=(*saved, *outcome.weights))


def _report(trial: Trial, found: Sequence[Found], judgement: Judgement) -> Report:
    outcome, what = trial.outcome, trial.what
    return Report(
        target=what.scenario.target, verdict=judgement.verdict, world=what.world, seed=what.seed, strategy="given",
        schedules=1, distinct_schedules=1, seconds=outcome.seconds, ops=outcome.coverage.ops,
        violations=found, reasons=judgement.reasons, coverage=outcome.coverage, outcome=outcome,
    )  # fmt: skip


def _finding(trial: Trial, invariants: Sequence[Invariant], judgement: Judgement) -> record.Finding:
    scenario = trial.what.scenario
    return record.Finding(
        scenario=record.reference(scenario),
        seed=trial.what.seed,
        run=0,
        strategy="given",
        invariants=tuple(name_of(each) for each in invariants),
        outcome=trial.outcome,
        judgement=judgement,
        versions=record.versions(),
        slot=trial.slot,
        evidence=gather(trial.outcome, 1),
    )
