"""Reports in text.

Golden files hold what a person sees; ``python tests/report/test_interleaving.py`` writes them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from racecheck.model.frames import user_frames
from racecheck.model.nouns import (  # fmt: skip
    Collective,
    Coverage,
    Died,
    Event,
    Frame,
    Mismatch,
    Op,
    Outcome,
    Place,
    Raised,
    RankResult,
    Result,
    Returned,
    Stopped,
    Violation,
    World,
)
from racecheck.model.package import PLACE
from racecheck.report import words
from racecheck.report.folding import shown
from racecheck.report.interleaving import coverage_text, render, summary

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT = Path("/home/user/project")
LIBRARY = Frame("/usr/lib/python3.11/shutil.py", 678, "_rmtree_safe_fd")
TORCH = Frame("/venv/lib/python3.11/site-packages/torch/serialization.py", 500, "save")


def user(line: int, function: str = "prepare_directory") -> tuple[Frame, ...]:
    file = str(ROOT / "train.py")
    return LIBRARY, TORCH, Frame(file, line, function), Frame(file, 99, "main")


def op(rank: int, call: str, *paths: str, line: int = 0, kind: str = "", inode: int = 0, **fields: Any) -> Op:
    places = tuple(Place(path, 0, os.path.basename(path), inode, kind) for path in paths)  # type: ignore[arg-type]
    result = Result(**{name: fields.pop(name) for name in ("errno", "size", "known") if name in fields})
    fields = {"thread": str(rank), "syscall": call, "stack": user(line) if line else None, **fields}
    return Op(rank, call=call, places=places, result=result, **fields)


def collective(kind: str, number: int, *ranks: int, root: int = -1, group: str = "0", line: int = 0) -> Collective:
    stacks = {rank: user(line, "save") for rank in ranks} if line else {}
    return Collective(kind, group, number, ranks, root, stacks=stacks)


def outcome(*trace: Event, ranks: int = 2, results: tuple[RankResult, ...] = (), **fields: Any) -> Outcome:
    return Outcome(World(ranks=ranks), trace, (), results, **fields)


def violation(*events: int) -> Violation:
    return Violation("no-file-errors", "FileNotFoundError", events=events)


# What a person sees.


def overwrite(first: int = 0, second: int = 1) -> tuple[Event, ...]:
    """Two ranks remove and make one directory, as openpi did."""
    return (
        op(first, "stat", "ckpt", kind="directory", inode=1, line=41),
        op(second, "stat", "ckpt", kind="directory", inode=1, line=41),
        op(first, "open", "ckpt", inode=1, line=42),
        op(first, "list", "ckpt", inode=1, size=2, line=42),
        op(first, "close", "ckpt", inode=1, known=False, line=42),
        op(second, "open", "ckpt", inode=1, line=42),
        op(first, "unlink", "ckpt/f0", inode=2, line=42),
        op(second, "unlink", "ckpt/f0", errno="ENOENT", line=42),
        op(first, "rmdir", "ckpt", inode=1, line=42),
        op(first, "stat", "ckpt", errno="ENOENT", line=43),
        op(first, "mkdir", "ckpt", line=43),
        collective("barrier", 0, 0, 1, line=44),
        op(first, "open", "ckpt/model.pt", flags=("O_CREAT", "O_TRUNC", "O_WRONLY"), line=45),
        op(first, "write", "ckpt/model.pt", inode=3, size=1_048_576, line=45),
        op(first, "open", "ckpt/latest", inode=4, flags=("O_CREAT", "O_TRUNC", "O_WRONLY"), line=46),
        op(first, "rename", "ckpt/tmp", "ckpt/latest", inode=5, line=46),
        op(second, "flock", "ckpt/.lock", inode=6, flags=("LOCK_UN",), line=47),
        op(second, "open", "ckpt/side.pt", thread=f"{second}.1", inode=7),
        op(second, "store", "store:key", syscall="compare_set", line=49),
        op(second, "sleep", args={"nanoseconds": 100_000_000}, line=48),
    )


def long_run() -> tuple[Event, ...]:
    """200 ops of two ranks, in turns of twenty, with the race in the middle and a barrier near the end."""
    turns = [index // 20 % 2 for index in range(200)]
    trace: list[Event] = [
        op(rank, "write", f"rank{rank}/shard{index}", inode=index + 10, size=index, line=7)
        for index, rank in enumerate(turns)
    ]
    trace[3] = op(0, "mkdir", "ckpt", line=2)
    trace[90] = op(0, "unlink", "ckpt/f0", inode=500, line=42)
    trace[125] = op(0, "stat", "ckpt/f0", errno="ENOENT", line=3)
    trace[111] = op(1, "unlink", "ckpt/f0", errno="ENOENT", line=42)
    trace[180] = collective("all_gather", 0, 0, 1, line=50)
    return tuple(trace)


def eight() -> Outcome:
    world = collective("broadcast", 0, *range(8), root=3, line=40)
    half = collective("barrier", 0, 1, 3, 5, 7, group="1")
    message = collective("send/recv", 0, 6, 2, line=60)
    return outcome(world, half, message, *overwrite(2, 5)[:11], ranks=8)


def foreign() -> tuple[Event, ...]:
    names = [
        "épée/数据.pt",
        "e\u0301le\u0300ve",
        "bad\udcff\udc80name",
        "line\nbreak\x1b[31m",
        "emoji-🚀\ufe0f",
        "\u202eabc",
    ]
    return tuple(op(line % 2, "unlink", name, inode=9, line=line) for line, name in enumerate(names, start=1))


def ended() -> Outcome:
    """A rank of each kind; rank 5 waits for those that have gone."""
    message = "[Errno 2] No such file or directory: '/run/ckpt/f0'\nNote: more below"
    return outcome(
        ranks=7,
        results=(
            Returned(),
            Returned({"step": 2, "digest": "3f2a9c"}),
            Raised("FileNotFoundError", message, stack=user(42)),
            Raised("RuntimeError", "Connection closed by peer", stack=user(44), echo=True),
            Died(signal="SIGSEGV", output="Loading.\n\nFatal Python error: Segmentation fault\n"),
            Died(status=3),
            Stopped("echo", "waits in barrier #3 of group 0 for rank 2, which has failed", user(44)),
        ),
    )


def deadlock() -> Outcome:
    stack = (TORCH, *(Frame(str(ROOT / "train.py"), line, f"level{line}") for line in range(1, 10)))
    return outcome(
        op(0, "stat", "ckpt", errno="ENOENT", line=41),
        results=(
            Stopped("collective", "waits in barrier #3 of group 0 for rank 1", stack),
            Stopped("lock", "waits for the lock on ckpt/.lock", user(47)),
        ),
    )


def mismatch() -> Outcome:
    calls = {0: "barrier()", **dict.fromkeys((1, 2, 3), "all_reduce(float32[4])")}
    stacks = {0: user(50, "save"), 1: user(60, "train"), 2: user(60, "train"), 3: user(61, "train")}
    results = tuple(Stopped("echo", "the run was stopped", stacks[rank]) for rank in range(4))
    return outcome(ranks=4, results=results, mismatch=Mismatch("0", 7, calls, stacks))


def sixteen() -> Outcome:
    return outcome(collective("barrier", 0, *range(16)), *overwrite(4, 11), ranks=16)


INTERLEAVINGS: dict[str, Callable[[], str]] = {
    "two-ranks": lambda: render(outcome(*overwrite()), [violation(6, 7)], full=True, root=ROOT),
    "two-ranks-80": lambda: render(outcome(*overwrite()), [violation(6, 7)], width=80, full=True, root=ROOT),
    "eight-ranks": lambda: render(eight(), [violation(9, 10)], full=True, root=ROOT),
    "sixteen-ranks-80": lambda: render(sixteen(), [violation(8)], width=80, full=True, root=ROOT),
    "names": lambda: render(outcome(*foreign()), [violation(2)], full=True, root=ROOT),
    "shortened": lambda: render(outcome(*long_run()), [violation(111)], root=ROOT),
    "shortened-no-violation": lambda: render(outcome(*long_run()), [], root=ROOT),
}
SUMMARIES: dict[str, Callable[[], str]] = {
    "summary": lambda: summary(ended(), root=ROOT),
    "summary-60": lambda: summary(ended(), width=60, root=ROOT),
    "deadlock": lambda: summary(deadlock(), root=ROOT),
    "mismatch": lambda: summary(mismatch(), root=ROOT),
}
RENDERED = INTERLEAVINGS | SUMMARIES


@pytest.mark.parametrize("name", RENDERED)
def test_golden(name: str) -> None:
    assert RENDERED[name]() + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", INTERLEAVINGS)
def test_lines_of_code_start_in_the_same_cell(name: str) -> None:
    """Whatever the names before them are: each character has the width that a terminal gives it."""
    befores = [line.partition("train.py") for line in INTERLEAVINGS[name]().splitlines()]
    assert len({cell_len(before) for before, found, _ in befores if found}) == 1


# Any trace at all.

PATHS = st.lists(st.text("abé数\udcff\n", min_size=1, max_size=2), min_size=1, max_size=3).map("/".join)
NAMES = st.text(max_size=20)
FRAMES = st.lists(st.builds(Frame, st.text(max_size=40), st.integers(0, 9999), NAMES), max_size=3).map(tuple)
CALLS = st.sampled_from(["stat", "open", "write", "list", "rename", "removexattr", "sleep", "store", "unlink", "rmdir"])


@st.composite
def events(draw: st.DrawFn, ranks: int) -> Event:
    rank = draw(st.integers(0, ranks - 1))
    if draw(st.integers(0, 9)) == 0:
        members = draw(st.lists(st.integers(0, ranks - 1), max_size=ranks, unique=True))
        return collective(draw(NAMES), draw(st.integers(0, 99)), *members, root=rank, group=draw(NAMES), line=1)
    paths = draw(st.lists(PATHS, max_size=2))
    errno = draw(st.sampled_from(["", "ENOENT", "ENOTEMPTY"]))
    flags = draw(st.sampled_from([(), ("O_CREAT",), ("O_TRUNC",)]))
    thread = draw(st.sampled_from([str(rank), f"{rank}.1"]))
    return op(rank, draw(CALLS), *paths, errno=errno, flags=flags, thread=thread, stack=draw(FRAMES), size=7)


@st.composite
def runs(draw: st.DrawFn, most_ranks: int = 40) -> tuple[Outcome, Violation]:
    """Long ones too: a few events drawn, and repeated."""
    ranks = draw(st.integers(1, most_ranks))
    trace = draw(st.lists(events(ranks), min_size=1, max_size=8)) * draw(st.integers(1, 20))
    named = draw(st.lists(st.integers(0, len(trace) - 1), max_size=3))
    return outcome(*trace, ranks=ranks), violation(*named)


WIDTHS = st.integers(0, 200)


@given(runs(), WIDTHS, st.booleans())
def test_every_line_can_be_printed_and_fits(run: tuple[Outcome, Violation], width: int, full: bool) -> None:
    text = render(run[0], [run[1]], width=width, full=full, root=ROOT)
    text.encode()
    assert "\t" not in text
    assert max(cell_len(line) for line in text.split("\n")) <= max(width, 40)


@given(runs(), WIDTHS, st.booleans())
def test_every_event_is_shown_or_counted_and_what_is_named_is_marked(
    run: tuple[Outcome, Violation], width: int, full: bool
) -> None:
    _, *lines = render(run[0], [run[1]], width=width, full=full, root=ROOT).split("\n")
    step, marked = 0, set()
    for line in lines:
        left_out = re.fullmatch(r" *\.\.\.  (\d+) more ops", line)
        if left_out:
            step += int(left_out[1])
            continue
        step += 1
        assert re.match(rf" *{step}  ", line)
        marked |= {step - 1} if "<---" in line else set()
    assert step == len(run[0].trace)
    assert marked == set(run[1].events)


@given(runs(most_ranks=16), st.integers(110, 200))
def test_a_path_that_a_violation_names_is_shown_whole(run: tuple[Outcome, Violation], width: int) -> None:
    lines = render(run[0], [run[1]], width=width, root=ROOT).split("\n")
    for index in run[1].events:
        event = run[0].trace[index]
        shown = next(line for line in lines if re.match(rf" *{index + 1}  ", line))
        for place in event.places if isinstance(event, Op) and event.call != "sleep" else ():
            assert words.escape(place.path) in shown


@given(runs(), WIDTHS)
def test_colour_changes_nothing_but_the_colour(run: tuple[Outcome, Violation], width: int) -> None:
    painted = render(run[0], [run[1]], width=width, colour=True, root=ROOT)
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == render(run[0], [run[1]], width=width, root=ROOT)


RESULTS = st.one_of(
    st.builds(Returned, st.none() | st.text() | st.lists(st.integers())),
    st.builds(Raised, st.text(min_size=1), st.text(max_size=400), stack=FRAMES, echo=st.booleans()),
    st.builds(Died, st.integers(0, 255), st.sampled_from(["", "SIGKILL"]), st.text()),
    st.builds(Stopped, st.sampled_from(["collective", "echo"]), st.text(max_size=200), FRAMES),
)


@given(st.lists(RESULTS, max_size=12), WIDTHS, FRAMES)
def test_any_summary_can_be_printed_and_fits(results: list[RankResult], width: int, stack: tuple[Frame, ...]) -> None:
    differs = Mismatch("0", 1, dict.fromkeys(range(3), "all_reduce(" + "x" * 100), {1: stack})
    text = summary(outcome(results=tuple(results), mismatch=differs), width=width, root=ROOT)
    text.encode()
    assert max(cell_len(line) for line in text.split("\n")) <= max(width, 40)
    for rank in range(len(results)):
        assert len(re.findall(rf"(?m)^rank {rank} ", text)) == 1


# Which events of a long trace are shown.


def quiet(count: int, rank: int = 0) -> list[Event]:
    return [op(rank, "write", f"other/{index}") for index in range(count)]


def test_without_a_decisive_event_a_short_trace_is_shown_whole_and_so_is_a_long_one_in_full() -> None:
    assert shown(quiet(40), ()) == list(range(40))
    assert shown([*quiet(30, 0), *quiet(30, 1)], ()) == [29, 59]
    lines = render(outcome(*quiet(500)), [], full=True).split("\n")
    assert len(lines) == 501


def test_changes_of_the_same_names_stay_in_sight() -> None:
    trace = quiet(100)
    trace[10] = op(0, "mkdir", "a")
    trace[20] = op(0, "mkdir", "a/b")
    trace[30] = op(0, "rename", "tmp", "a/b")
    trace[40] = op(0, "mkdir", "a/bb")
    trace[50] = op(0, "stat", "a/b")
    trace[80] = op(0, "unlink", "a/b", inode=77)
    assert shown(trace, {80}) == [20, 30, 80]


def test_one_or_two_events_are_not_folded() -> None:
    trace = quiet(100)
    for index in (50, 53, 57):
        trace[index] = collective("barrier", 0, 0)
    assert shown(trace, {97}) == [50, 51, 52, 53, 57, 97, 98, 99]


def test_of_more_than_a_screen_the_decisive_events_stay() -> None:
    trace = quiet(100)
    for index in range(0, 100, 12):
        trace[index] = op(0, "mkdir", "a")
    assert shown(trace, {40, 42, 60}) == [40, 41, 42, 60]


def test_of_many_collectives_the_nearest_stay() -> None:
    trace: list[Event] = [collective("barrier", index, 0) if index % 5 else op(0, "stat", "a") for index in range(100)]
    assert shown(trace, {50}) == [49, 50]


# Words.


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (op(0, "stat", "a", kind="directory"), "dir"),
        (op(0, "stat", "a", kind="file"), "file"),
        (op(0, "stat", "a", errno="ENOENT"), "none"),
        (op(0, "stat", "a", errno="EACCES"), "EACCES"),
        (op(0, "access", "a", errno="ENOENT"), "ENOENT"),
        (op(0, "write", "a", size=12), "12 B"),
        (op(0, "write", "a", errno="ENOSPC"), "ENOSPC"),
        (op(0, "list", "a", size=1), "1 entry"),
        (op(0, "list", "a"), "end"),
        (op(0, "open", "a", inode=1), "ok"),
        (op(0, "open", "a", flags=("O_CREAT", "O_TRUNC")), "new"),
        (op(0, "open", "a", inode=1, flags=("O_CREAT", "O_TRUNC")), "emptied"),
        (op(0, "open", "a", flags=("O_CREAT", "O_EXCL"), errno="EEXIST"), "EEXIST"),
        (op(0, "open", "a", syscall="creat", flags=("O_CREAT", "O_TRUNC", "O_WRONLY")), "new"),
        (op(0, "close", "a", known=False), ""),
        (Op(0, "0", "mkdir", "mkdir"), ""),
        (op(0, "mkdir", "a"), "ok"),
    ],
)
def test_results(made: Op, expected: str) -> None:
    assert words.result(made) == expected


OWN = str(PLACE)
MINE = Frame("/home/user/project/train.py", 1, "f")


@pytest.mark.parametrize(
    "library",
    [
        "/usr/lib/python3.11/shutil.py",
        "/opt/conda/lib/python3.14t/os.py",
        "/usr/lib64/python3.9/os.py",
        "/usr/lib/python3/dist-packages/torch/serialization.py",
        "/home/user/project/.venv/lib/python3.11/site-packages/torch/serialization.py",
        "<frozen importlib._bootstrap>",
        f"{OWN}/agent/process_group.py",
    ],
)
def test_the_users_line_is_the_innermost_that_no_library_has(library: str) -> None:
    stack = (Frame(library, 9, "g"), MINE, Frame("/home/user/other/main.py", 2, "main"))
    assert user_frames(stack) == list(stack[1:])


def test_where_a_stack_has_no_user_code_the_nearest_stands_in() -> None:
    own = Frame(f"{OWN}/targets/adapters/plain.py", 3, "save")
    assert user_frames((LIBRARY, TORCH, own)) == [own]
    assert user_frames((LIBRARY, TORCH)) == [TORCH]
    assert user_frames((LIBRARY,)) == [LIBRARY]
    assert user_frames(()) == []


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/user/project/train.py", "train.py"),
        ("/home/user/project/a/b/c/train.py", "a/b/c/train.py"),
        ("/home/user/project2/deep/train.py", "deep/train.py"),
        ("relative/train.py", "relative/train.py"),
        ("<stdin>", "<stdin>"),
        ("/train.py", "/train.py"),
    ],
)
def test_files_are_shown_from_the_root_or_by_their_last_two_parts(file: str, shown: str) -> None:
    assert words.frame_line(Frame(file, 7, "f"), ROOT) == f"{shown}:7 f"


def test_a_line_of_code_never_loses_its_number() -> None:
    line = "tests/deep/train.py:42 prepare_directory"
    assert words.fit_line(line, 40) == line
    assert words.fit_line(line, 29) == "train.py:42 prepare_directory"
    assert words.fit_line(line, 16) == "train.py:42"
    assert words.fit_line(line, 10) == "t....py:42"
    assert words.fit_line(line, 4) == ".:42"
    assert words.fit_line(line, 2) == "42"
    assert words.fit_line(line, 0) == ""
    assert words.fit_line("", 10) == ""


def test_collectives_made_from_several_lines_say_so() -> None:
    event = Collective("barrier", "0", 0, (0, 1), stacks={0: user(5, "f"), 1: user(6, "f")})
    assert words.where(event, ROOT) == "train.py:5 f and 1 more"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("épée", "épée"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "\\u0301"),
        ("ที่", "ที่"),
        (os.fsdecode(b"\xff\x80a"), "\\xff\\x80a"),
        ("\ud800", "\\ud800"),
        ("a\tb\n", "a\\tb\\n"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e\u200d\ufe0f", "\\u202e\\u200d\\ufe0f"),
    ],
)
def test_escape(name: str, shown: str) -> None:
    assert words.escape(name) == shown


@given(st.text(), st.integers(0, 30))
@example("数数数", 4)
def test_what_is_cut_fits(text: str, width: int) -> None:
    text = words.escape(text)
    for cut in (
        words.fit(text, width),
        words.fit_path(text, width),
        words.fit_subject(f"{text} -> {text}", width),
    ):
        assert cell_len(cut) <= width
    if cell_len(text) <= width:
        assert words.fit(text, width) == words.fit_path(text, width) == text


def test_both_paths_of_a_rename_are_cut() -> None:
    assert words.fit_subject("checkpoints/step2.tmp -> checkpoints/step2", 24) == "ch...2.tmp -> c.../step2"
    assert words.fit_subject("a -> checkpoints/step2", 16) == "a -> ch.../step2"


def test_titles_name_the_nodes() -> None:
    ops = [op(rank, "mkdir", f"a-directory-{rank}", line=9) for rank in range(4)]
    on = [replace(outcome(*ops), world=World(ranks=4, nodes=nodes)) for nodes in (1, 2)]
    titles = [render(each, [], width=200).split("\n")[0].split("  ") for each in on]
    assert [*filter(None, (each.strip() for each in titles[0]))] == [f"rank {rank}" for rank in range(4)]
    assert [*filter(None, (each.strip() for each in titles[1]))] == [
        f"rank {rank} (node {rank // 2})" for rank in range(4)
    ]
    narrow = render(on[1], [], width=60).split("\n")
    assert narrow[:2] == ["node  0011", "      0123"]


def test_a_path_is_not_cut_where_another_one_differs() -> None:
    one, other = (f"runs/{name}/checkpoints/step-2/model.pt" for name in ("first", "final"))
    assert words.fit_path(one, 20) == words.fit_path(other, 20) == "runs/...p-2/model.pt"
    paths = [one, other]
    assert words.fit_path(one, 20, paths) == "runs/fir.../model.pt"
    assert words.fit_path(other, 20, paths) == "runs/fin.../model.pt"
    assert words.fit_path(one, 6, paths) == "r...pt", "no cut of so few cells tells them apart"


def test_ranks_in_words() -> None:
    assert words.ranks([3]) == "rank 3"
    assert words.ranks([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"


# The rest.


def test_nothing_happened() -> None:
    assert render(outcome(), []) == "no ops were recorded"
    assert summary(outcome()) == ""


def test_files_are_shown_from_the_current_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made = op(0, "mkdir", "a", stack=(Frame(str(tmp_path / "deep" / "down" / "train.py"), 5, "f"),))
    assert render(outcome(made), []).endswith("  deep/down/train.py:5 f")
    stopped = Stopped("asleep", "sleeps", made.stack or ())
    assert summary(outcome(results=(stopped,))).endswith("        deep/down/train.py:5 f")


def test_ranks_have_columns_or_lanes_or_neither() -> None:
    """A column has at least 24 cells, the line of code 16: at 120 cells that is three ranks, not four.

    Six cells are the step's; lanes leave 40 for the rest.
    """

    def header(ranks: int, path: str = "a-path-that-takes-a-lot-of-room") -> list[str]:
        return render(outcome(op(0, "unlink", path, line=1), ranks=ranks), []).split("\n")[0].split()

    assert header(3) == ["rank", "0", "rank", "1", "rank", "2"]
    assert header(4) == ["0123"]
    assert header(12) == ["012345678901"]
    assert header(41) == []
    assert header(5, "short") == [word for rank in range(5) for word in ("rank", str(rank))]


def test_a_marked_path_that_columns_would_cut_gets_lanes() -> None:
    path = "a/" + "long" * 9
    plain, marked = (render(outcome(op(0, "unlink", path)), each, width=80) for each in ([], [violation(0)]))
    assert path not in plain
    assert path in marked


def test_only_decisive_events_are_painted() -> None:
    trace = [op(1, "unlink", "a"), op(0, "unlink", "a", errno="ENOENT"), op(0, "rmdir", "b", errno="ENOENT")]
    _, bold, red, plain = render(outcome(*trace), [violation(1)], colour=True).split("\n")
    assert re.search(r"\x1b\[1m[^\x1b]*unlink a", bold), "its cause"
    assert re.search(r"\x1b\[1;31m[^\x1b]*unlink a", red)
    assert re.search(r"\x1b\[0m *rmdir b", plain)


def test_large_values_are_not_printed() -> None:
    assert summary(outcome(results=(Returned("x" * 100),))) == "rank 0  returned"


def test_coverage() -> None:
    holes = {"a writable shared mapping of a watched file": 2, "io_uring": 1}
    assert coverage_text(Coverage(1, 431, holes, notes={"a mapping": 3})) == (
        "coverage: 1 op controlled; 431 calls outside the watched directory; "
        "not controlled: a writable shared mapping of a watched file (2), io_uring (1)\nnotes: a mapping (3)"
    )
    assert coverage_text(Coverage(69)).endswith(
        "69 ops controlled; 0 calls outside the watched directory; not controlled: nothing"
    )


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each, make in RENDERED.items():
        (GOLDEN / f"{each}.txt").write_text(make() + "\n", encoding="utf-8")


def test_where_lines_are_not_cut_the_place_is_whole() -> None:
    """In a pipe, nothing of the user's code is lost, however wide the columns are."""
    trace = [op(rank, "mkdir", "deep/" * 12 + str(rank), line=44) for rank in range(2)]
    place = "train.py:44 prepare_directory"
    assert place not in render(outcome(*trace), [], root=ROOT, width=60)
    assert render(outcome(*trace), [], root=ROOT, width=60, cut=False).count(place) == 2


def test_a_rank_whose_thread_failed_returned() -> None:
    found = summary(outcome(ranks=1, results=(Raised("ValueError", "no", thread="Thread-1 (write)"),)), root=ROOT)
    assert found == "rank 0  raised ValueError: no, in thread Thread-1 (write); the rank returned"
