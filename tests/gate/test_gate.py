"""The gate: what it makes of cells, and of real checkpointers."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from racecheck.gate import baseline, junit, layouts, matrix, pages, subjects, trial
from racecheck.gate.baseline import Baseline, Comparison
from racecheck.gate.cells import Broken, Cell
from racecheck.gate.defects import defect, place_and_sentence
from racecheck.gate.effort import EFFORTS, extent
from racecheck.gate.grouping import grouped, headline
from racecheck.gate.judging import Terms
from racecheck.gate.result import GateResult, data
from racecheck.gate.store import CellStore, kept
from racecheck.gate.subjects import Subject
from racecheck.invariants import name_of
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Frame, Outcome, Raised, Returned, Stopped, Tried, Verdict, Violation, Weights, World
from racecheck.scheduling.claims import Claim
from racecheck.targets import resolve, suite
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, controls
from tests.programs import gated
from tests.support.builders import op

PASS, UNKNOWN, FAIL = Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL
ALL = Claim(proves=True, traces=3)


def cell(check: str = "save", verdict: Verdict = PASS, *broken: str, **more: Any) -> Cell:
    finding = more.pop("finding", "f.json")
    return Cell(
        "mine", check, more.pop("storage", "shared"), more.pop("versions", {"torch": "2.13.0"}), verdict,
        **{"asked": ("recovers", "old-survives"), "schedules": 3,
           "broken": tuple(Broken(each, f"{each} is broken", finding) for each in broken), **more},
    )  # fmt: skip


def result(*cells: Cell, known: Baseline | None = None) -> GateResult:
    return GateResult(cells, baseline.compare(cells, known or Baseline()), Terms(), 1.0)


class TestCells:
    @pytest.mark.parametrize(
        ("more", "extent", "is_part"),
        [
            ({}, "3 schedules", False),
            ({"claim": ALL}, "all, in 3 schedules", False),
            ({"tried": (Tried("fault", 41, 41),), "schedules": 55}, "all 41 faults, 55 schedules", False),
            ({"tried": (Tried("fault", 1, 41),)}, "1 of 41 faults, 3 schedules", True),
            (
                {"tried": (Tried("stale read", 1, 1), Tried("crash state", 5, 0)), "schedules": 1},
                "all 1 stale read, 5 crash states, not all, 1 schedule",
                True,
            ),
            ({"tried": (Tried("crash state", 0, 0),)}, "0 crash states, not all, 3 schedules", True),
            ({"schedules": 0}, "nothing", False),
        ],
    )
    def test_how_much_was_tried(self, more: dict[str, Any], extent: str, is_part: bool) -> None:
        assert (cell(**more).extent, cell(**more).is_part) == (extent, is_part)

    def test_what_the_time_limit_cut_off_says_how_much_more_it_takes(self) -> None:
        cut = cell(verdict=UNKNOWN, reasons=("cut off by --seconds 60",), needs=140.0)
        assert cut.is_cut
        assert cut.why == "cut off by --seconds 60; about 2 min more would settle it"

    def test_a_row_is_the_same_in_whatever_order_its_versions_come(self) -> None:
        """A cell that was kept has them in alphabetical order."""
        one, other = ({"torchsnapshot": "0.1.0", "torch": "2.13.0"}, {"torch": "2.13.0", "torchsnapshot": "0.1.0"})
        assert cell(versions=one).row == cell(versions=other).row == "mine (torchsnapshot 0.1.0, torch 2.13.0)"

    def test_two_releases_are_two_rows(self) -> None:
        one, other = (cell(versions={"deepspeed": each, "torch": "2.13.0+cpu"}) for each in ("0.16.9", "0.18.0"))
        assert (one.row, other.row) == (
            "mine (deepspeed 0.16.9, torch 2.13.0)",
            "mine (deepspeed 0.18.0, torch 2.13.0)",
        )
        (table,) = matrix.tables([one, other])
        assert [row for row, _ in table.rows] == [one.row, other.row]


class TestMatrix:
    @pytest.mark.parametrize(
        ("cells", "kind", "text"),
        [
            ([cell(claim=ALL), cell("kill", claim=ALL)], "exhausted", "PASS"),
            ([cell(claim=ALL), cell("kill")], "budget", "pass 6"),
            ([cell(), cell("kill", tried=(Tried("fault", 41, 41),))], "budget", "pass 6"),
            ([cell(), cell("kill", tried=(Tried("fault", 40, 41),))], "budget", "pass 6*"),
            ([cell(), cell("kill", FAIL, "recovers")], "fail", "FAIL"),
            ([cell(), cell("kill", FAIL, "old-survives")], "budget", "pass 6"),
            ([cell(), cell("kill", UNKNOWN, reasons=("it hangs",))], "unknown", "?"),
            ([cell("load", FAIL, "recovers"), cell("kill", UNKNOWN, reasons=("it hangs",))], "fail", "FAIL"),
            ([cell("load", UNKNOWN, reasons=("recovers could not judge the run: X: y",))], "unknown", "?"),
            ([cell("load", UNKNOWN, reasons=("old-survives could not judge the run: X: y",))], "budget", "pass 3"),
            ([cell("kill", FAIL, "recovers", against="documented")], "not held", "n/a"),
            ([cell("kill", FAIL, "recovers", against="documented"), cell()], "budget", "pass 3"),
            ([cell(asked=("old-survives",))], "not asked", "-"),
            ([], "not asked", "-"),
        ],
    )
    def test_an_entry(self, cells: list[Cell], kind: str, text: str) -> None:
        entry = matrix.entry(cells, "recovers")
        assert (entry.kind, entry.text) == (kind, text)
        assert (entry.about == "documented") == (kind == "not held")

    def test_a_table_for_each_storage(self) -> None:
        tables = [*matrix.tables([cell(), cell("saves@nfs", FAIL, "recovers", storage="nfs")])]
        assert [each.storage for each in tables] == ["shared", "nfs"]
        assert [[entry.kind for entry in row] for _, row in tables[1].rows] == [["fail", "budget"]]

    def test_what_is_expected_is_what_the_invariant_says(self) -> None:
        names = {name_of(each) for check in CHECKS.values() for each in check.invariants}
        assert all(re.search(r"\w+ \w+ .*\.$", matrix.expected(each)) for each in names)


class TestGrouping:
    """One defect, one entry."""

    @staticmethod
    def of(check: str, *broken: Broken, **more: Any) -> Cell:
        return replace(cell(check, FAIL, **more), broken=broken)

    def test_what_one_run_breaks_and_what_the_same_op_breaks_in_other_checks_is_one_defect(self) -> None:
        torn, later = "save (a.py), unreadable", "save (a.py)"
        cells = [
            self.of("kill", Broken("recovers", "m", "1.json", torn), Broken("old-survives", "m", "1.json", torn)),
            self.of("kill-rank", Broken("recovers", "m", "2.json", torn)),
            self.of("carry-on", Broken("no-deadlock", "m", "3.json", later)),
            self.of("save", Broken("consistent-weights", "m", "4.json", later)),
        ]
        found = grouped(cells)
        assert [each.checks for each in found] == [("save",), ("kill", "kill-rank"), ("carry-on",)], "the gravest first"
        assert found[1].invariants == ("old-survives", "recovers")
        assert found[1].effect == "the checkpoint is lost if the job is killed"

    def test_two_runs_with_one_finding_less_are_two(self) -> None:
        one, other = Broken("recovers", "m", "1.json", "save (a.py)"), Broken("recovers", "m", "2.json", "load (a.py)")
        assert len(grouped([self.of("kill", one, other)])) == 2
        lost, hang = (Broken(each, "m", "1.json", "x (a.py)") for each in ("old-survives", "no-deadlock"))
        assert len(grouped([self.of("kill", one, lost)])) == 1, "what one run does in one way has one cause"
        assert len(grouped([self.of("kill", one, hang)])) == 2, "a hang is not the loss of a checkpoint"

    def test_what_is_not_promised_comes_last_and_is_in_no_headline(self) -> None:
        grave, small = (Broken(each, "m", f"{each}.json", place="save (a.py:3)") for each in ("old-survives", "x"))
        found = grouped([self.of("kill", grave, against="documented"), self.of("save", small)])
        assert [each.lead[1].invariant for each in found] == ["x", "old-survives"]
        assert headline(found) == "1 defect: x does not hold, in save (a.py:3)"
        assert headline([each for each in found if not each.is_held]) == ""
        several = grouped([self.of("kill", grave), self.of("save", small)])
        assert headline(several) == (
            "2 defects: the checkpoint is lost if the job is killed, in save (a.py:3), and 1 more"
        )

    def test_what_also_happens_when_nothing_goes_wrong_has_no_condition(self) -> None:
        error = Broken("no-file-errors", "m", "1.json", "save (a.py), FileExistsError")
        found = grouped([self.of("load-behind", error), self.of("save", replace(error, finding="2.json"))])
        assert [each.effect for each in found] == ["the job fails"]

    def test_ranks_that_wait_in_vain_are_told_by_where_they_wait(self) -> None:
        """Not by the fault that kept the others away, each of which would be a defect of its own."""
        waits = Stopped("collective", "waits in barrier #0", (Frame("a.py", 9, "save"),))
        faults = [op("0 write f", fault="ENOSPC", stack=(Frame("a.py", line, "put"),)) for line in (3, 4)]
        outcomes = [Outcome(World(ranks=2), (each,), (), (Raised("OSError", "no"), waits)) for each in faults]
        hang, error = Violation("no-deadlock", "deadlock"), Violation("error-honesty", "x")
        assert {defect(hang, each) for each in outcomes} == {"save (a.py)"}
        assert {place_and_sentence(hang, each)[0] for each in outcomes} == {"save (a.py:9)"}
        assert [place_and_sentence(error, each)[0] for each in outcomes] == ["put (a.py:3)", "put (a.py:4)"]

    def test_each_check_says_when(self) -> None:
        assert [each.name for each in CHECKS.values() if not each.when] == ["save", "saves"]


class TestBaseline:
    CELLS = (cell("kill", FAIL, "recovers", "old-survives"), cell("save"), cell("load", UNKNOWN, reasons=("no",)))

    def test_known_new_and_fixed(self) -> None:
        known = Baseline(("mine[kill] recovers", "mine[save] recovers", "mine[load] recovers", "mine[error] recovers"))
        found = baseline.compare(self.CELLS, known)
        assert found.new == ("mine[kill] old-survives",)
        assert found.known == ("mine[kill] recovers",)
        assert found.fixed == ("mine[save] recovers",), "load came to UNKNOWN, and error was not asked"
        assert baseline.updated(known, found).known == (
            "mine[error] recovers", "mine[kill] old-survives", "mine[kill] recovers", "mine[load] recovers",
        )  # fmt: skip

    def test_each_defect_of_an_invariant_has_a_line(self) -> None:
        torn, gone = (
            Broken("recovers", "no", defect=each) for each in ("save (a.py), EOFError", "unlink in save (a.py)")
        )
        known = Baseline(("mine[kill] recovers: save (a.py), EOFError", "mine[kill] recovers: load (a.py)"))
        found = baseline.compare([replace(cell("kill", FAIL, "recovers"), broken=(torn, gone))], known)
        assert found.new == ("mine[kill] recovers: unlink in save (a.py)",)
        assert found.known == ("mine[kill] recovers: save (a.py), EOFError",)
        assert found.fixed == (), "the invariant does not hold: nothing is said of a defect that was not seen"
        assert baseline.compare([cell("kill")], known).fixed == known.known

    def test_a_baseline_of_another_class_is_told_as_one(self) -> None:
        known = Baseline(("a.py::One[kill] recovers", "a.py::One[save] recovers", "b:Two[kill] recovers"))
        assert baseline.others(known, ["mine:Mine"]) == ["a.py::One", "b:Two"]
        assert baseline.others(known, ["b:Two"]) == []
        assert baseline.others(Baseline(), ["b:Two"]) == []

    def test_what_is_not_held_against_it_is_not_found(self) -> None:
        assert baseline.compare([cell("kill", FAIL, "recovers", against="documented")], Baseline()) == Comparison()

    @pytest.mark.parametrize(
        ("cells", "known", "verdict"),
        [
            ([cell()], (), PASS),
            ([cell(), cell("kill", FAIL, "recovers")], (), FAIL),
            ([cell(), cell("kill", FAIL, "recovers")], ("mine[kill] recovers",), PASS),
            ([cell("kill", FAIL, "recovers", "old-survives")], ("mine[kill] recovers",), FAIL),
            ([cell("load", UNKNOWN), cell("kill", FAIL, "recovers")], ("mine[kill] recovers",), UNKNOWN),
            ([cell("load", UNKNOWN), cell("kill", FAIL, "recovers")], (), FAIL),
            ([cell(), cell("kill", FAIL, "recovers", against="documented")], (), PASS),
            ([cell("kill", FAIL, "recovers", against="documented")], (), UNKNOWN),
            ([], (), UNKNOWN),
        ],
    )
    def test_the_verdict(self, cells: list[Cell], known: tuple[str, ...], verdict: Verdict) -> None:
        assert baseline.verdict(cells, baseline.compare(cells, Baseline(known))) is verdict

    def test_the_file_has_a_line_for_each(self, tmp_path: Path) -> None:
        path = tmp_path / "known.json"
        baseline.save(Baseline(("a[b] c", "d[e] f")), path)
        assert path.read_text().splitlines()[4:6] == ['  "a[b] c",', '  "d[e] f"']
        assert baseline.load(path).known == ("a[b] c", "d[e] f")
        path.write_text("{}")
        with pytest.raises(UsageError, match=r"not a baseline: .*--update-baseline"):
            baseline.load(path)


class TestEffort:
    PLAIN, FAULTY = World(), make_world(World(), faults="kill on write nth=each")
    WRITES = tuple(op(f"0 write f{number}") for number in range(20))
    BASE = Outcome(World(ranks=2), WRITES, (), ())

    @pytest.mark.parametrize(
        ("world", "strategy", "schedules"),
        [
            (PLAIN, "auto", EFFORTS["quick"].schedules),
            (FAULTY, "round-robin", 1),
            (make_world(World(), storage="nfs", nodes=2), "auto", EFFORTS["quick"].schedules),
            (make_world(World(), faults="crash"), "auto", EFFORTS["quick"].crashed),
        ],
    )
    def test_faults_are_swept_and_stale_views_are_looked_at_in_other_schedules_too(
        self, world: World, strategy: str, schedules: int
    ) -> None:
        made = EFFORTS["quick"].search(suite.scenario(controls.Recipe, "save"), world)
        assert (made.strategy, made.schedules) == (strategy, schedules)
        assert (made.swept, made.states) == (EFFORTS["quick"].faults, EFFORTS["quick"].states)
        assert made.seconds == 0, "an effort is the same on every machine"

    def test_all_faults_are_more_than_any_number(self) -> None:
        made = EFFORTS["full"].search(suite.scenario(controls.Recipe, "save"), self.FAULTY)
        assert made.swept is not None, "else they would count as schedules, of which there is one"
        assert made.swept > 10**9

    def test_an_effort_tries_all_that_a_smaller_one_does(self) -> None:
        small = EFFORTS["quick"]
        every = [*CHECKS.values()]
        assert 10 < len(small.checks(every)) < len(EFFORTS["normal"].checks(every)) == len(every)
        for large in (EFFORTS["normal"], EFFORTS["full"]):
            for one, other in ((small.faults, large.faults), (small.states, large.states)):
                assert other is None or (one is not None and one < other)
            assert small.schedules < large.schedules
            assert small.crashed <= large.crashed
            small = large

    def test_what_is_announced_follows_from_the_ops_of_two_saves(self) -> None:
        kill = CHECKS["kill"]
        due = [extent(each, kill, self.FAULTY, self.BASE) for each in EFFORTS.values()]
        assert [each.faults for each in due] == [16, 20, 20], "as many as there are, or as the effort tries"
        assert [each.runs for each in due] == [17, 21, 21]
        three = extent(EFFORTS["full"], CHECKS["carry-on"], self.FAULTY, self.BASE)
        assert three.faults == 30, "it saves three times"
        four_ranks = extent(EFFORTS["full"], kill, make_world(self.FAULTY, ranks=4), self.BASE)
        assert four_ranks.runs == 2 * 21

    def test_most_telling_first_and_the_same_for_all(self) -> None:
        names = [each.name for each in EFFORTS["quick"].checks([*CHECKS.values()])]
        assert names[:3] == ["load-behind", "kill", "power-loss"]


class TestTrial:
    MADE = Frame(suite.driver.__file__, 22, "__init__")
    CALLED = Frame(suite.driver.__file__, 30, "save")
    OWN = Frame("mine.py", 7, "save")

    def of(self, *results: Any, recovery: tuple[Any, ...] = ()) -> Outcome:
        then = Outcome(World(), (), (), recovery) if recovery else None
        return Outcome(World(), (), (), results, recovery=then)

    def test_a_save_that_fails_is_left_to_the_checks(self) -> None:
        assert trial.reason(self.of(Raised("OSError", "no space", stack=(self.OWN, self.CALLED)), Returned())) == ""

    @pytest.mark.parametrize(
        ("ended", "reason"),
        [
            (Raised("ValueError", "a\nb", stack=(OWN, MADE)),
             r"its constructor raises ValueError: a b \(mine.py:7 save\)"),
            (Raised("AssertionError", "Torch not compiled with CUDA enabled"),
             "needs a device that this machine lacks: .*"),
            (Raised("ModuleNotFoundError", "No module named 'x'"), "needs a package that is not installed: .* 'x'"),
            (Stopped("running", "no op for 30 s", (Frame("lib.py", 1, "f"), OWN, CALLED)),
             r"hangs: no op for 30 s \(mine.py:7 save\)"),
            (Stopped("collective", "waits in barrier #0"), ""),
        ],
    )  # fmt: skip
    def test_why_it_cannot_be_judged(self, ended: Any, reason: str) -> None:
        assert re.fullmatch(reason, trial.reason(self.of(Returned(), ended)))
        assert re.fullmatch(reason, trial.reason(self.of(Returned(), recovery=(ended,))))

    def test_what_fails_in_the_same_place_alone_is_no_race(self) -> None:
        raised, other = (
            Raised("OSError", "no", stack=(Frame("mine.py", line, "save"), self.CALLED)) for line in (7, 9)
        )
        good, bad, elsewhere = (self.of(each) for each in (Returned(), raised, other))
        said = "mine fails by itself, with one rank too, and no fault: OSError: no (mine.py:7 save)"
        assert trial.by_itself("mine", bad, bad) == said
        assert trial.by_itself("mine", bad, good) == "", "that is a race"
        assert trial.by_itself("mine", bad, elsewhere) == ""

    def test_what_saves_nothing(self) -> None:
        acked = Weights(rank=0, kind="acked", step=1, checkpoint="", tensors={})
        nothing = replace(self.of(Returned(), recovery=(Returned(),)), weights=(acked,))
        assert trial.by_itself("mine", nothing, nothing).startswith("mine saves nothing that it finds again")
        assert nothing.recovery is not None
        loaded = replace(nothing.recovery, weights=(replace(acked, kind="loaded"),))
        assert trial.by_itself("mine", nothing, replace(nothing, recovery=loaded)) == ""

    def test_misuse(self) -> None:
        wrong = Raised("racecheck.model.errors.UsageError", "X.load gave dict")
        assert trial.misuse(self.of(Returned(), recovery=(wrong,))) == "X.load gave dict"


class TestSubjects:
    def test_checks_and_storages_by_name(self) -> None:
        mine = Subject("mine", gated.InPlace)
        assert [each.name for each in subjects.checks(mine, ("save", "kill"), ())] == ["kill", "save"]
        on_objects = [each.storage for each in subjects.checks(mine, (), ("object", "nfs"))]
        assert {*on_objects} == {"nfs", "object(mountpoint-s3)", "object(gcsfuse)"}
        quick = subjects.checks(mine, (), (), EFFORTS["quick"])
        due = {name for name, each in CHECKS.items() if each.quick and not each.needs and not each.of_training}
        assert {each.name for each in quick} == due
        named = subjects.checks(mine, ("slow",), (), EFFORTS["quick"])
        assert [each.name for each in named] == ["slow"], "what is named is made"
        assert "async" not in [each.name for each in subjects.checks(mine, (), ())], "it has no save_async"
        for names, storages, wrong in ((("x",), (), "unknown check 'x'"), ((), ("x",), "no check uses storage 'x'")):
            with pytest.raises(UsageError, match=wrong):
                subjects.checks(mine, names, storages)

    def test_why_nothing_is_asked(self) -> None:
        mine = Subject("mine", gated.InPlace)
        assert subjects.lacking(mine, ("async",)) == "mine has no save_async, which check async needs"
        assert "leave one out" in subjects.lacking(mine, ("save",))

    def test_unasked_checks_are_reported(self) -> None:
        said = subjects.left_out(Subject("mine", gated.InPlace))
        assert said == ["mine has no save_async; skipped: async, async-overlap, async-kill, async-error"]
        assert subjects.left_out(Subject("dcp-async", resolve.checkpointer("dcp-async"))) == []

    @pytest.mark.parametrize(
        ("attribute", "value", "wrong"),
        [
            ("timeout", "soon", "timeout must be a number of seconds, not 'soon'"),
            ("timeout", -1, "timeout must be a number of seconds, not -1"),
            ("requires", "torch", r"requires must be a tuple, not 'torch': write \('torch',\)"),
            ("not_for", ("overwrite",), "not_for must map .*"),
            ("save", lambda self, state, root: None, r"save cannot be called as save\(state, root, step\)"),
            ("latest", lambda self: None, r"latest cannot be called as latest\(root\)"),
            ("not_for", {"nodelocal": "x"}, "not_for names 'nodelocal'; known: async, .*node-local"),
        ],
    )
    def test_what_a_class_says_of_itself_is_checked(self, attribute: str, value: object, wrong: str) -> None:
        kind = type("Mine", (gated.InPlace,), {attribute: value})
        with pytest.raises(UsageError, match=f"Mine.{wrong}"):
            suite.scenario(kind, "save")

    def test_other_ranks_where_a_check_is_not_about_that(self) -> None:
        mine = Subject("mine", gated.InPlace)
        assert [mine.world(CHECKS[each], 3).ranks for each in ("save", "shrink", "saves@nfs")] == [3, 4, 3]
        assert mine.world(CHECKS["saves@nfs"], 3).nodes == 3

    def test_what_is_missing_and_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = Subject("mine", gated.Uninstalled)
        assert mine.missing.endswith("there_is_no_such_package: pip install there-is-no-such-package")
        listed = ["there-is.no_such_package>=1; extra == 'other'", 'click>=8; extra == "dev"']
        monkeypatch.setattr(subjects.importlib.metadata, "requires", lambda _: listed)
        assert mine.missing.endswith("pip install 'torch-racecheck[other]'")
        assert Subject("mine", gated.InPlace).missing == ""


class TestStore:
    MINE = Subject("mine", gated.InPlace)

    def test_cells_that_fit_are_kept(self, tmp_path: Path) -> None:
        versions = self.MINE.versions
        CellStore(tmp_path, Terms()).keep(self.MINE, cell("kill", FAIL, "recovers", versions=versions))
        CellStore(tmp_path, Terms()).keep(self.MINE, cell("save", versions=versions))
        assert [*CellStore(tmp_path, Terms()).good(self.MINE)] == ["kill", "save"]
        assert [each.check for each in kept(tmp_path)] == ["kill", "save"]
        assert kept(tmp_path / "elsewhere") == []
        assert not CellStore(tmp_path, Terms(effort="quick")).good(self.MINE)
        assert not CellStore(tmp_path, Terms(seed="1")).good(self.MINE)
        assert not CellStore(tmp_path, Terms()).good(Subject("mine", suite.checks.Check)), "of another file"

    def test_another_release_stands_beside(self, tmp_path: Path) -> None:
        now, then = ({"deepspeed": each, "torch": "2"} for each in ("0.18.0", "0.16.9"))
        store = CellStore(tmp_path, Terms())
        for versions in (now, then):
            store.keep(self.MINE, cell(versions=versions))
        store.keep(Subject("other", gated.InPlace), replace(cell(versions=then), checkpointer="other"))
        (other,) = store.others(["mine"], [cell(versions=now)])
        assert other.versions == then
        assert not store.good(self.MINE), "none was made with what is installed here"

    def test_the_gate_of_one_has_a_file_of_its_own(self, tmp_path: Path) -> None:
        for named in ("", "mine"):
            CellStore(tmp_path, Terms(), named).keep(
                self.MINE, cell("kill" if named else "save", versions=self.MINE.versions)
            )
        assert [*CellStore(tmp_path, Terms(), "mine").good(self.MINE)] == ["kill"]
        CellStore(tmp_path, Terms(), "mine").end()
        assert not CellStore(tmp_path, Terms(), "mine").good(self.MINE)
        assert [*CellStore(tmp_path, Terms()).good(self.MINE)] == ["save"]

    def test_what_is_asked_otherwise_has_another_file(self, tmp_path: Path) -> None:
        kept = cell("kill", versions=self.MINE.versions)
        CellStore(tmp_path, Terms(), "a.b:C", ("kill", "save"), ("nfs",)).keep(self.MINE, kept)
        for terms, named, checks, storages in (
            (Terms(), "a_b:C", ("kill", "save"), ("nfs",)),
            (Terms(), f"{'long' * 50}a.b:C", ("kill", "save"), ("nfs",)),
            (Terms(), "a.b:C", ("kill",), ("nfs",)),
            (Terms(), "a.b:C", ("kill", "save"), ()),
            (Terms(effort="quick"), "a.b:C", ("kill", "save"), ("nfs",)),
            (Terms(seed="1"), "a.b:C", ("kill", "save"), ("nfs",)),
            (Terms(ranks=3), "a.b:C", ("kill", "save"), ("nfs",)),
        ):
            other = CellStore(tmp_path, terms, named, checks, storages)
            assert not other.good(self.MINE)
            other.end()
        again = CellStore(tmp_path, Terms(), "a.b:C", ("save", "kill", "save"), ("nfs",))
        assert [*again.good(self.MINE)] == ["kill"], "the order in which checks are named says nothing"

    def test_a_damaged_file_is_a_line(self, tmp_path: Path) -> None:
        store, file = CellStore(tmp_path, Terms()), tmp_path / "gate.json"
        file.write_text("{")
        with pytest.raises(UsageError, match=r"gate.json: not a gate's cells: .* remove it, or use --fresh"):
            store.good(self.MINE)
        store.clear()
        assert not store.good(self.MINE)
        store.keep(self.MINE, cell(versions=self.MINE.versions))
        store.clear()
        assert [*store.good(self.MINE)] == ["save"], "one that can be read stays"

    def test_what_is_changed_beside_the_class_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mypackage").mkdir()
        texts = {
            "helped.py": "import myhelp, mypackage.files\nclass Mine: ...",
            "myhelp.py": "", "mypackage/files.py": "", "mypackage/mine.py": "import mypackage.files\nclass Mine: ...",
        }  # fmt: skip
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        for name in ("helped", "mypackage.mine"):
            kind = importlib.import_module(name).Mine
            helper = tmp_path / ("myhelp.py" if name == "helped" else "mypackage/files.py")
            before = subjects.fingerprint(Subject("mine", kind))
            assert subjects.fingerprint(Subject("mine", kind)) == before
            helper.write_text("CHANGED = True")
            assert subjects.fingerprint(Subject("mine", kind)) != before


class TestPages:
    CELLS = (
        cell("save", claim=ALL),
        cell("kill", FAIL, "recovers", text="rank 0 | kill <&> \x1b[31m"),
        cell("load", FAIL, "old-survives", against="documented: one job alone", finding="g.json"),
        cell("error", UNKNOWN, reasons=("cut off by --seconds 60",), needs=12.0),
        cell("slow", UNKNOWN, reasons=("two runs differ",)),
    )

    def test_junit(self) -> None:
        known = Baseline(("mine[kill] recovers",))
        root = ET.fromstring(junit.xml(self.CELLS, baseline.compare(self.CELLS, Baseline())))
        (suite_,) = root
        counts = {name: suite_.get(name) for name in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": "5", "failures": "1", "errors": "2", "skipped": "1"}
        failure = root.find("testsuite/testcase[@name='kill']/failure")
        assert failure is not None
        assert failure.get("message") == "recovers: recovers is broken"
        assert failure.text == "rank 0 | kill <&> ?[31m"
        skipped = root.find("testsuite/testcase[@name='load']/skipped")
        assert skipped is not None
        assert skipped.get("message", "").startswith("not promised: documented: one job alone; seen: old-survives")
        root = ET.fromstring(junit.xml(self.CELLS, baseline.compare(self.CELLS, known)))
        assert root.find("testsuite/testcase[@name='kill']/failure") is None
        assert (
            root.find("testsuite/testcase[@name='kill']/skipped[@message='known: recovers: recovers is broken']")
            is not None
        )

    @pytest.mark.parametrize(
        ("found", "helps"),
        [
            (cell("kill", FAIL, "recovers"), True),
            (cell("saves@object(mountpoint-s3)", FAIL, "recovers"), False),
            (cell("async-kill", FAIL, "recovers"), False),
        ],
    )
    def test_a_saver_to_copy_is_named_where_there_is_one(self, found: Cell, helps: bool) -> None:
        """A bucket that cannot rename is not for them, and they do not save asynchronously."""
        assert ("pydoc racecheck.targets.suite.controls" in layouts.text([*pages.blocks(result(found))])) is helps

    def test_each_page_says_what_was_found_and_how_to_see_it(self) -> None:
        blocks = [*pages.blocks(result(*self.CELLS))]
        for made in (layouts.text(blocks), layouts.markdown(blocks), layouts.page(blocks)):
            for part in (
                "FAIL",
                "racecheck replay f.json",
                "documented: one job alone",
                "two runs differ",
                "cut off by --seconds 60; about 12 s more would settle all of these",
            ):
                assert part in made
        page = layouts.page(blocks)
        assert not re.search(r"<script|<link|src=|https?:", page)
        assert "racecheck run &#x27;mine[kill]&#x27;" in page
        assert "kill &lt;&amp;&gt;" in page
        assert page.count("<h1>") == page.count("<main>") == page.count('id="bad-only"') == 1
        assert page.index("<h2>Checks</h2>") < page.index('id="bad-only"') < page.index("<table>")
        assert len(re.findall('<section class="card( defect)?">', page)) == 2, "one for each defect"
        assert [*re.findall('<tr class="(.*?)-row"><th scope="row">(\\w+)</th>', page)][:5] == [
            ("well", "save"),
            ("fail", "kill"),
            ("well", "load"),
            ("unknown", "error"),
            ("unknown", "slow"),
        ]
        assert "| recovers | FAIL |" in layouts.markdown(blocks)

    def test_what_failed_links_to_its_picture(self) -> None:
        blocks = [*pages.blocks(result(*self.CELLS))]
        assert "<a href" not in layouts.page(blocks)
        page = layouts.page(blocks, lambda finding: f"{finding}.html")
        assert '<td class="fail" title="kill"><a href="f.json.html">FAIL</a></td>' in page
        assert '<code>racecheck replay f.json</code> <a href="f.json.html">picture</a></p>' in page
        several = [*pages.overview([*self.CELLS, replace(self.CELLS[0], checkpointer="other")])]
        assert '<a href="f.json.html">FAIL</a>' in layouts.section(several, lambda finding: f"{finding}.html")

    def test_each_page_says_how_much_was_tried(self) -> None:
        part = cell("kill", tried=(Tried("fault", 3, 41),), schedules=4)
        whole = cell("error", tried=(Tried("fault", 41, 41),), schedules=42)
        made = result(cell("save", claim=ALL), part, whole)
        blocks = [*pages.blocks(made)]
        for page in (layouts.text(blocks), layouts.markdown(blocks), layouts.page(blocks)):
            for said in ("all, in 3 schedules", "3 of 41 faults, 4 schedules", "all 41 faults, 42 schedules"):
                assert said in page
        rows = {line.split()[0]: line.split()[1:3] for line in layouts.text(blocks).splitlines() if line.strip()}
        assert (rows["save"], rows["kill"], rows["error"]) == (["PASS", "all,"], ["pass*", "3"], ["pass", "all"])
        assert rows["recovers"] == ["pass", "49*"]
        assert "*: some faults, stale reads or crash states were not tried" in layouts.text(blocks)
        assert [each["extent"] for each in data(made)["cells"]] == [each.extent for each in made.cells]
        said = [each.text for each in ET.fromstring(junit.xml(made.cells, made.comparison)).iter("system-out")]
        assert said == [f"tried: {each.extent}" for each in made.cells]

    def test_what_a_failing_check_left_out_is_marked_too(self) -> None:
        part = cell("power-loss", FAIL, "old-survives", tried=(Tried("crash state", 749, 0),))
        made = layouts.text(pages.blocks(result(part)))
        assert re.search(r"^  recovers +pass 3\*$", made, re.MULTILINE)
        assert "*: some faults" in made

    def test_where_there_is_no_table_of_checks_a_line_says_what_was_tried_in_part(self) -> None:
        part = cell("kill", tried=(Tried("fault", 3, 41),), schedules=4)
        made = layouts.text(pages.blocks(result(cell(), part, replace(cell(), checkpointer="other"))))
        assert "mine (torch 2.13.0): kill: 3 of 41 faults, 4 schedules" in made

    def test_several_checkpointers_are_a_table_for_each_storage(self) -> None:
        other = replace(cell("saves@nfs", storage="nfs"), checkpointer="other")
        made = layouts.markdown(pages.blocks(result(*self.CELLS, other)))
        assert "### Storage: nfs" in made
        assert "| other (torch 2.13.0) | pass 3 | pass 3 |" in made

    def test_wide_tables_have_numbers(self) -> None:
        names = tuple(f"{'long' * 5}-{number}" for number in range(8))
        cells = [replace(cell(asked=names), checkpointer=each) for each in ("mine", "other")]
        made = layouts.text(pages.blocks(result(*cells)), width=100)
        assert max(map(len, made.splitlines()[:6])) <= 100
        assert "8 longlonglonglonglong-7" in made
