"""Mutants are what they say, and the suite notices those that can lose data."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest

from racecheck.model.errors import UsageError
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.suite import controls, protocol
from tests.gate import mutants, mutation
from tests.gate.mutants import Mutant


class Log:
    """Takes down what is called on it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append(" ".join([name, *map(str, given)]))


class Base:
    def inherited(self, log: Any) -> None:
        log.barrier()


class Toy(Base):
    """Its method is mutated here."""

    def run(self, log: Any, rank: int) -> None:
        temporary, final = "a.tmp", "a"
        log.open(temporary)
        log.flush()
        log._sync(temporary)
        log.replace(temporary, final)
        if rank == 0:
            log.unlink("old")
        for name in ("x", "y"):
            log.fsync(name)
        log.barrier()

    def told(self, log: Any, *, fails: bool) -> None:
        done = False
        try:
            if fails:
                raise OSError("disk")
            done = True
        finally:
            log.broadcast(done)
        if not done:
            raise RuntimeError("it failed elsewhere")

    def caught(self, log: Any) -> None:
        try:
            raise OSError("disk")
        except OSError:
            log.all_reduce()


WHOLE = ["open a.tmp", "flush", "_sync a.tmp", "replace a.tmp a", "fsync x", "fsync y", "barrier"]


def line(text: str, method: Any = Toy.run) -> int:
    """The number of the line of a method that has this text."""
    lines, first = inspect.getsourcelines(method)
    return next(first + number for number, each in enumerate(lines) if text in each)


def made(verb: str, text: str, method: Any = Toy.run) -> Any:
    """The one mutant of a line of a method."""
    (found,) = [each for each in mutants.of(Toy).values() if (each.verb, each.line) == (verb, line(text, method))]
    return found.made()


def ran(toy: Any, rank: int = 1) -> list[str]:
    log = Log()
    toy.run(log, rank)
    return log.calls


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("log.flush", {"flush"}),
        ("log._sync", {"_sync a.tmp"}),
        ("log.fsync", {"fsync x", "fsync y"}),
        ("log.barrier", {"barrier"}),
    ],
)
def test_a_safeguard_is_left_out(text: str, gone: set[str]) -> None:
    assert ran(made("without", text)) == [each for each in WHOLE if each not in gone]
    assert ran(Toy()) == WHOLE, "the checkpointer itself stays as it is"


def test_what_one_rank_does_all_do() -> None:
    assert "unlink old" in ran(made("unguarded", "if rank == 0"), rank=1)
    assert "unlink old" not in ran(Toy(), rank=1)


def test_a_file_is_written_under_its_final_name() -> None:
    assert ran(made("in_place", "log.replace"))[:3] == ["open a", "flush", "_sync a"]
    assert "replace" not in " ".join(ran(made("in_place", "log.replace")))


def test_neighbours_change_places() -> None:
    assert ran(made("swapped", "log.flush"))[1:3] == ["_sync a.tmp", "flush"]
    assert ran(made("swapped", "for name"))[-3:] == ["barrier", "fsync x", "fsync y"]


def test_not_where_one_makes_what_the_other_uses() -> None:
    swapped = [each.line for each in mutants.of(Toy).values() if each.verb == "swapped"]
    assert line("temporary, final") not in swapped
    assert line("done = False", Toy.told) not in swapped


def test_other_reports_have_no_hint() -> None:
    log = Log()
    with pytest.raises(OSError, match="disk"):
        Toy().told(log, fails=True)
    with pytest.raises(OSError, match="disk"):
        made("without", "try:", Toy.told).told(log, fails=True)
    assert log.calls == ["broadcast False"]
    with pytest.raises(OSError, match="disk"):
        made("without", "try:", Toy.caught).caught(log)
    assert log.calls == ["broadcast False"]


def test_no_rank_raises() -> None:
    (found,) = [each for each in mutants.of(Toy).values() if each.what == "raise" and "not done" in each.source]
    assert found.name == f"Toy_without_raise_{line('if not done', Toy.told)}"
    assert "not done" not in inspect.getsource(Toy.run)


def test_methods_of_bases_are_mutated_too() -> None:
    log = Log()
    made("without", "log.barrier", Base.inherited).inherited(log)
    assert not log.calls


def test_stacks_name_the_lines_of_the_source() -> None:
    try:
        made("swapped", "log.flush").run(object(), 0)
    except AttributeError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
    assert (where.filename, where.lineno) == (__file__, line("log.open"))


@pytest.mark.parametrize("kind", mutants.CONTROLS)
def test_mutants_of_the_controls_can_be_named(kind: type) -> None:
    source = Path(controls.__file__).read_text().splitlines()
    found = mutants.of(kind)
    assert found
    for name, mutant in found.items():
        assert mutant.source.startswith(source[mutant.line - 1].strip())
        named = resolve.checkpointer(f"tests.gate.mutants:{name}")
        assert named is mutants.of(kind)[name].made, "all who name it get the same class"
        assert issubclass(named, kind)
        assert (named.__module__, named.__name__) == (mutants.__name__, name)
        assert protocol.layout_of(named) == protocol.layout_of(kind)
    scenario = resolve.load(f"tests.gate.mutants:{name}[kill]")
    assert resolve.load(scenario.reference).name == scenario.name, "as a finding names it"


def test_there_are_no_others() -> None:
    with pytest.raises(UsageError, match="no class 'Recipe_without_sense_1'"):
        resolve.checkpointer("tests.gate.mutants:Recipe_without_sense_1")


def test_no_reason_is_out_of_date() -> None:
    for kind in mutants.CONTROLS:
        keys = {each.key for each in mutants.of(kind).values()}
        assert mutants.HARMLESS[kind.__name__].keys() <= keys


TELLING = ("save", "load-behind", "power-loss")


def recipe(key: str) -> Mutant:
    (found,) = [each for each in mutants.of(controls.Recipe).values() if each.key == key]
    return found


@pytest.mark.parametrize(
    ("key", "check", "invariant"),
    [
        ("unguarded: if dist.get_rank() == 0:", "save", "no-file-errors"),
        ("without: self._sync(root)", "power-loss", "durable-after-ack"),
        ("in_place: os.replace(temporary, path)", "kill", "recovers"),
        ("without: if not told[1]:", "error", "error-honesty"),
        ("without: try:", "carry-on", "no-deadlock"),
    ],
)
def test_the_suite_notices(session: Session, key: str, check: str, invariant: str) -> None:
    fate = mutation.judge(session, recipe(key))
    assert (fate.check, invariant in fate.broken) == (check, True), fate.text


EVERY = [mutant for kind in mutants.CONTROLS for mutant in mutants.of(kind).values()]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_the_fate_of_every_mutant_is_known(session: Session, mutant: Mutant) -> None:
    """Those that do no harm are asked what loses data most easily; ``python -m tests.gate.mutation``: all."""
    fate = mutation.judge(session, mutant, TELLING if mutant.harmless else ())
    assert fate.is_explained, fate.text
