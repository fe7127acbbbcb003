"""The life of a rank, from its fork to its end, and its hypercalls on the way (`hypercalling`)."""

from __future__ import annotations

import copy
import faulthandler
import importlib
import json
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from racecheck.agent import forking, host_names
from racecheck.agent.clocks import watch_clock
from racecheck.agent.ending import finalise, is_own, newest_modules
from racecheck.agent.errors import frames_of, raised
from racecheck.agent.hypercalling import hypercall
from racecheck.agent.job import Job, listen_for_stacks, send
from racecheck.agent.threads import say_failed, unhandled
from racecheck.kernel import capabilities, libc, seccomp
from racecheck.model.errors import UsageError
from racecheck.model.hypercalls import (
    BecomeParent,
    Exit,
    Note,
    ObservedStep,
    ObservedWeights,
    Ready,
)
from racecheck.model.nouns import Died, RankResult, Returned
from racecheck.model.package import is_installed
from racecheck.targets.programs import Program, acked
from racecheck.targets.scenarios import Rank, Scenario

_PR_SET_PDEATHSIG = 1


def run(
    load: Callable[[], Scenario],
    job: Job,
    rank: int,
    channel: socket.socket,
    connect: Callable[[Job, int], None],
    channels: Sequence[int] = (),
) -> int:
    """Run a rank after its fork; returns the exit status.  ``load`` imports the scenario.

    ``channels`` are those of all ranks, if this one forks the others.

    1. settle: environment, output, seeds; 2. install the filter, hand the listener over; 3. ``connect``: bring the
    process group up; 4. `Ready`: wait for all ranks; 5. import the scenario and run it; 6. send the
    result; 7. in free mode wait for the others, and end as a Python process ends; 8. `Exit`.
    """
    settle(job, rank)
    if job.controlled:
        watch_clock(job, rank)
        _run_one_by_one(rank if job.spread else 0)
    if (job.controlled or job.filtered) and not job.forks:
        _hand_over(channel, controlled=job.controlled)
    connect(job, rank)
    before, own = len(sys.modules), list[str]()
    if job.program and job.controlled:
        observe(job, lambda said: hypercall(ObservedWeights(said)))
    if job.program:
        load, own = with_program(load(), job), ["__main__"]
        if job.controlled:
            observe_training(load(), lambda said: hypercall(ObservedStep(said)))
    unhandled.append(lambda error, name: say_failed(replace(raised(error, rank, job), thread=name)))
    if job.forks:
        forking.births[:] = [_births(job, channels)]
    else:
        _be_ready(job)
    result, error = result_of(load, job.rank(rank, channel), job, channel)
    for each in forking.births:
        each.complete()
    fresh = newest_modules(len(sys.modules) - before)
    imported = sorted(each for each in fresh if not is_own(each))
    send(channel, {"result": {"type_name": type(result).__name__, **asdict(result)}, "modules": imported})
    if not job.controlled and isinstance(result, Returned):
        channel.recv(1)  # a rank that leaves early would close connections on which its peers still wait
    status = result.status if isinstance(result, Died) else int(error is not None)
    finalise(error, [*own, *filter(is_own, fresh)])
    hypercall(Exit())
    return status


def _be_ready(job: Job) -> None:
    """Wait until all ranks are there, and the run begins."""
    hypercall(Ready())
    if job.note:
        hypercall(Note(job.note))


def _births(job: Job, channels: Sequence[int]) -> forking.Births:
    """Return the ranks to be forked by a program."""

    def begin(rank: int) -> None:
        is_parent = rank == job.group
        if not is_parent:
            os.setsid()
            _print_to(job, rank)
            importlib.import_module("racecheck.agent.program_group").be_rank(rank)
            for name in ("observation", "training"):
                importlib.import_module(f"racecheck.agent.{name}").be_rank()
            unhandled[:] = [lambda error, name: say_failed(replace(raised(error, rank, job), thread=name))]
        found = [*forking.births[0].uncontrolled()] if is_parent else []
        watch_clock(job, rank)
        with socket.socket(fileno=os.dup(channels[rank])) as channel:
            _hand_over(channel, controlled=True)
        _be_ready(job)
        if is_parent:
            hypercall(BecomeParent())
        for each in found:
            hypercall(each)

    def end(rank: int, error: BaseException | None, status: int) -> None:
        with socket.socket(fileno=channels[rank]) as channel:
            result: RankResult = Died(status=status) if status else Returned()
            if error is not None:
                _complain(error, rank, channel)
                result = raised(error, rank, job)
            elif not status:
                acked()
            send(channel, {"result": {"type_name": type(result).__name__, **asdict(result)}, "modules": []})
            hypercall(Exit())
        os._exit(status)

    return forking.Births(job.group, begin, end)


def with_program(program: Scenario, job: Job) -> Callable[[], Scenario]:
    """Return a program with the functions that run it, and resume it; only ranks have them."""
    assert isinstance(program, Program)
    made = copy.copy(program)
    runner = importlib.import_module("racecheck.agent.program")
    made.run = runner.prepared(made.launch, job.output)
    if made.resumed is not None:
        resumed = made.resumed.restarted if job.restarted else made.resumed
        made.recover(runner.prepared(resumed, job.output), **made.recovering)
    return lambda: made


def observe(job: Job, say: Callable[[dict[str, Any]], Any]) -> None:
    """Observe the saves and loads of a program in the watched directory."""
    importlib.import_module("racecheck.agent.observation").observe(job.watched, job.kept, say)


def observe_training(program: Scenario, say: Callable[[dict[str, Any]], Any]) -> None:
    """Observe the steps of a program that has a recovery, which is compared with them."""
    if isinstance(program, Program) and program.resumed is not None:
        saves = importlib.import_module("racecheck.agent.observation").saves
        importlib.import_module("racecheck.agent.training").observe(saves, say)


def _run_one_by_one(place: int) -> None:
    """Keep the threads of this rank on one processor, so that none interrupts the one that woke it.

    Which of two threads is faster would be luck, where both run Python code that no op separates.  Ranks take turns,
    so that all are fastest in one ``place``, too; sessions next to each other have different ones.
    """
    ask = os.sched_getaffinity
    allowed = sorted(ask(0))
    chosen = {allowed[(int(os.environ["RACECHECK_SLOT"][-4:]) + place) % len(allowed)]}

    def affinity(pid: int, /) -> set[int]:
        """Return processors as the program would find them; a choice of its own counts."""
        found = ask(pid)
        return {*allowed} if found == chosen else found

    with suppress(PermissionError):  # a container may forbid it
        os.sched_setaffinity(0, chosen)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.sched_getaffinity = affinity


def settle(job: Job, rank: int) -> None:
    """Make a forked process a rank's: its session (as torchrun starts it), its environment, its output, its seeds."""
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if job.program and os.geteuid() == 0:
        capabilities.give_up_mounting()
    per_node = job.ranks // job.nodes
    scratch = Path(job.scratch) / str(rank // per_node)
    host_names.settle(rank // per_node, job.nodes)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank % per_node), WORLD_SIZE=str(job.ranks), LOCAL_WORLD_SIZE=str(per_node),
        GROUP_RANK=str(rank // per_node), GROUP_WORLD_SIZE=str(job.nodes), TMPDIR=str(scratch), MASTER_ADDR="127.0.0.1",
    )  # fmt: skip
    sys.dont_write_bytecode = True
    _print_to(job, rank)
    faulthandler.enable(file=2)
    random.seed(f"{job.seed}:{rank}")
    if generator := sys.modules.get("numpy.random"):
        generator.seed(random.Random(f"{job.seed}:{rank}").getrandbits(32))
    with suppress(KeyError):
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]  # of a module by name no type is known


def _print_to(job: Job, rank: int) -> None:
    output = os.open(f"{job.output}/{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)


def _hand_over(channel: socket.socket, *, controlled: bool) -> None:
    _grow_descriptor_table()
    reading = listen_for_stacks()
    listener = seccomp.install(stop_for_gil=controlled)
    seccomp.hand_over(channel, str(os.getpid()).encode(), [listener, reading])
    os.close(listener)
    os.close(reading)


def _grow_descriptor_table() -> None:
    """Enlarge the descriptor table now, while there is one thread.

    With several threads the kernel waits for all processors before it uses a larger table, which takes longer than the
    rest of opening a file a hundred times.
    """
    highest = min(4 * seccomp.FIRST_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) - 1
    os.close(os.dup2(0, highest))


def result_of(
    load: Callable[[], Scenario], rank: Rank, job: Job, channel: socket.socket
) -> tuple[RankResult, BaseException | None]:
    """Import the scenario and call it, or its recovery; returns its result, and the exception if there was one."""
    try:
        scenario = _loaded(load)
        value = scenario.resume(rank) if job.recovering else scenario(rank)
    except SystemExit as end:
        status = int(end.code if isinstance(end.code, int) else end.code is not None)
        return (Died(status=status) if status else Returned()), None
    except BaseException as error:  # noqa: BLE001  (of whatever class: it is the result of the rank)
        if job.program:
            _complain(error, rank.rank, channel)
        return raised(error, rank.rank, job), error
    try:
        return Returned(json.loads(json.dumps(value))), None
    except (TypeError, ValueError):
        found = f"the scenario returned a value of type {type(value).__name__} on rank {rank.rank}"
        send(
            channel,
            {"usage": f"{found}: return JSON data (numbers, strings, lists); for a tensor, return a digest"},
        )
        return Returned(), None


def _loaded(load: Callable[[], Scenario]) -> Scenario:
    try:
        return load()
    except UsageError as error:
        raise error.__cause__ or error from None


def _complain(error: BaseException, rank: int, channel: socket.socket) -> None:
    """Tell the supervisor of a failure that says nothing about the program: it needs what this machine lacks."""
    runner = importlib.import_module("racecheck.agent.program")
    if what := runner.lacks(error):
        frames = [each for each in frames_of(error.__traceback__) if not is_installed(each.file)]
        place = f" ({frames[0].file}:{frames[0].line})" if frames else ""
        send(channel, {"usage": f"rank {rank} needs {what}{place}: {error}"})
