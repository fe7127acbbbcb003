"""Carries out a program of sleeps, daemons, children and ends that ``RACECHECK_PROGRAM`` names.

It runs under control only, where sleeps are ops and take virtual time: nothing here waits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from racecheck import Rank, scenario


@scenario(ranks=2)
def carry_out(rank: Rank) -> None:
    with open(os.environ["RACECHECK_PROGRAM"], encoding="utf-8") as file:
        program = json.load(file)
    _run(rank, program[rank.rank])


def _run(rank: Rank, steps: Sequence[Sequence[Any]]) -> None:
    for what, *arguments in steps:
        _STEPS[what](rank, *arguments)


def _look(rank: Rank, name: str) -> None:
    (rank.path / name).exists()


def _make(rank: Rank, name: str) -> None:
    (rank.path / name).touch()


def _remove(rank: Rank, name: str) -> None:
    (rank.path / name).unlink(missing_ok=True)


def _poll(rank: Rank, name: str, pause: float, limit: float) -> None:
    end = time.monotonic() + limit
    while not (rank.path / name).exists() and time.monotonic() < end:
        time.sleep(pause)


def _thread(rank: Rank, daemon: bool, joined: bool, steps: Sequence[Sequence[Any]]) -> None:
    thread = threading.Thread(target=_run, args=(rank, steps), daemon=daemon)
    thread.start()
    if joined:
        thread.join()


def _child(rank: Rank, seconds: float, limit: float) -> None:
    try:
        subprocess.run(["sleep", str(seconds)], timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        (Path(rank.path) / "late").touch()


def _left(rank: Rank, seconds: float, number: int) -> None:
    """A child that is told to end, and waited for."""
    del rank
    with subprocess.Popen(["sleep", str(seconds)]) as child:
        child.send_signal(number)


def _wait(rank: Rank, limit: float) -> None:
    del rank
    threading.Event().wait(limit)


def _end(rank: Rank, how: str) -> None:
    del rank
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError(how)


def _alarm(rank: Rank, seconds: float, is_caught: bool) -> None:
    """In the main thread alone, as Python has it."""
    del rank
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, (lambda *_: None) if is_caught else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limited(rank: Rank, limit: float, seconds: float) -> None:
    del rank
    subprocess.run(["timeout", str(limit), "sleep", str(seconds)], check=False)


_STEPS = {
    "alarm": _alarm,
    "limited": _limited,
    "sleep": lambda _, seconds: time.sleep(seconds),
    "look": _look,
    "make": _make,
    "remove": _remove,
    "poll": _poll,
    "thread": _thread,
    "child": _child,
    "left": _left,
    "wait": _wait,
    "end": _end,
}
