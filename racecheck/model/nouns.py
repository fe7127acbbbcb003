"""The nouns.  Frozen data; nothing here does anything.

A *scenario* is run by every *rank* of a *world*.  Each intercepted call is an *op*.  Where something
is not determined there is a *point* with options; a strategy answers with an index, the *choice*.
The choices are the *schedule*; ops and collectives, in order, are the *trace*.  Trace, results and
disk are the *outcome*, which invariants turn into *violations* and a *verdict*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal


class Verdict(enum.IntEnum):
    """Verdicts merge by ``max``: one failure outweighs everything, and UNKNOWN outweighs a pass."""

    PASS = 0
    UNKNOWN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong; `racecheck.faults` has the grammar in which people write it.

    ``what`` happens ("ENOSPC", "short", "kill", "crash", ...) to ops of these ``calls`` (families; none: of any) on a
    path that matches ``path``, by ``rank`` and on ``node`` (-1: any).  ``nth``: to the n-th such op of a run, from 1,
    or with 0 to each of them, in one run after the other.  ``times``: to how many from there on, 0 for all.  ``amount``
    is what the kind of fault needs: bytes or seconds.  ``model`` is the model of crashes, or the kind of damage.
    ``after``: a kill comes when the op has happened, not before it.  ``survive``: the program has to get over it, and
    no failure is excused.
    """

    what: str
    calls: tuple[str, ...] = ()
    path: str = "**"
    rank: int = -1
    node: int = -1
    nth: int = 1
    times: int = 1
    amount: float = 0.0
    model: str = ""
    after: bool = False
    survive: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """How much of something a scenario has: ``steps``, say, or ``shards``; ``value`` is 1 or more."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class World:
    """The ranks, their nodes and storage, and the faults.

    ``nodes`` share the ranks out evenly, in order.  ``skew`` is how many seconds the clock of each rank goes ahead
    (ranks that it does not name: 0).  ``timeout`` is in seconds of real time and bounds how long the world may go
    without reaching its next op, and how long all its waits by the real clock may take; ``max_ops`` bounds the ops of
    one run, so that a poll loop ends.  ``sizes`` is how much the ranks do, where a scenario leaves that to its world.
    ``backend`` is "gloo", or, for ranks without control, "nccl" (each takes a GPU) or "auto" (that where there are
    as many GPUs, else gloo).  ``collectives`` says when a rank continues whose part needs nothing of its peers (the
    root of a broadcast): "gloo" as gloo lets it, "weakest" at once, as MPI and NCCL may.  ``parts`` are the calls that
    go in two parts, each an op (`racecheck.scheduling.parts`).
    """

    ranks: int = 2
    nodes: int = 1
    storage: str = "shared"
    skew: tuple[float, ...] = ()
    faults: tuple[Fault, ...] = ()
    backend: str = "gloo"
    timeout: float = 30.0
    max_ops: int = 20_000
    sizes: tuple[Size, ...] = ()
    collectives: str = "gloo"
    parts: tuple[str, ...] = ()

    @property
    def per_node(self) -> int:
        """How many ranks a node has."""
        return self.ranks // self.nodes

    def node(self, rank: int) -> int:
        """Return the node of a rank."""
        return rank // self.per_node


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a Python stack; stacks start with the innermost frame."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Place:
    """The object that a path or a descriptor led to, just before the op.

    ``path`` is relative to the watched directory with symbolic links resolved ("." is the directory
    itself).  ``directory`` and ``inode`` are identities: the n-th file system object met in this run,
    never a raw inode number, so that they are equal in every run of one schedule; ``inode`` is 0 where
    nothing has the name.  ``open_file`` numbers the open file description when the op came through a
    descriptor.  ``size`` is the file's, in bytes, and ``through`` are the symbolic links on the way (and directories
    that ".." left again), as paths like ``path``.
    """

    path: str
    directory: int
    name: str
    inode: int
    kind: Literal["", "file", "directory", "symlink", "other"]
    open_file: int = 0
    size: int = 0
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How an op ended: ``errno`` by name ("EEXIST") or "", and the call's return value.

    ``size`` counts the bytes that moved (of a listing: its entries) and ``digest`` is their SHA-256.  ``known`` is
    False for a call that the kernel carried out unobserved.  ``text`` has the bytes written or read if these are short
    and printable: the reader of a pointer file wants to see where it points.
    """

    errno: str = ""
    value: int = 0
    size: int = 0
    digest: str = ""
    known: bool = True
    text: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """One intercepted call; ``result`` is None while it is pending.

    ``call`` is the family ("stat"), ``syscall`` the call itself ("newfstatat").  ``args`` are the numbers that matter
    (offset, length, mode, nanoseconds; ``end``: where in its file a write ended that named no offset).  ``clock`` is
    the vector clock after the op: for each thread how many of its events happen before or are this one.  ``time`` is
    virtual, in nanoseconds since the start of the run.  ``fault`` is the injected fault, "" for none.
    ``alone``: up to then its rank has had no thread and no process but this one.
    """

    rank: int
    thread: str
    call: str
    syscall: str
    places: tuple[Place, ...] = ()
    flags: tuple[str, ...] = ()
    args: Mapping[str, int] = field(default_factory=dict)
    result: Result | None = None
    clock: Mapping[str, int] = field(default_factory=dict)
    time: int = 0
    stack: tuple[Frame, ...] | None = None
    fault: str = ""
    alone: bool = True

    @property
    def path(self) -> str:
        """The path that the op was about, "" for one that has none (a sleep)."""
        return self.places[-1].path if self.places else ""

    @property
    def label(self) -> str:
        """The op's name for people and replays."""
        label = f"{self.thread} {self.call} {' -> '.join(place.path for place in self.places)}".rstrip()
        return f"{label}: {self.fault}" if self.fault else label


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective (or a send with its receive) that all of its parties have reached.

    ``ranks`` are global and in order of the group; ``root`` is the global rank of the root, -1 if the
    kind has none; ``number`` counts the collectives of the group from 0.  ``issued`` says of each thread that took part
    which of its events (as clocks count them) that was, ``left`` of each that waited after which of its events it went
    on.
    """

    kind: str
    group: str
    number: int
    ranks: tuple[int, ...]
    root: int = -1
    clock: Mapping[str, int] = field(default_factory=dict)
    stacks: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)
    issued: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)


Event = Op | Collective


PointKind = Literal["next", "fault", "view", "crash"]


@dataclass(frozen=True, slots=True)
class Point:
    """Something that is not determined.  ``options[0]`` is the default; ``trace`` has the events so far.

    "next": which of these ops goes.  "fault": does this op go well, or how does it go wrong?  "view": what does its
    node see, as it is or as it was?  "crash": which of these states does a crash leave?
    """

    kind: PointKind
    options: tuple[Op, ...]
    trace: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to a point: an index into ``count`` options, with the label of the chosen one."""

    kind: str
    count: int
    index: int
    label: str


Schedule = tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class OpName:
    """The name of an op, which survives changes of the code around it (`racecheck.model.ops.op_names`).

    It is the ``number``-th op of ``thread``, from 1, with this ``call`` and this pattern of paths ("ckpt/shard#").
    """

    thread: str
    call: str
    paths: str
    number: int = 1

    def __str__(self) -> str:
        number = f" (no. {self.number})" if self.number > 1 else ""
        return f"{self.thread} {self.call} {self.paths}".rstrip() + number


@dataclass(frozen=True, slots=True)
class Constraint:
    """One op has to come before another.  A few of these describe which runs fail, whatever else happens in between."""

    before: OpName
    after: OpName

    def __str__(self) -> str:
        return f"{self.before} before {self.after}"


@dataclass(frozen=True, slots=True)
class Returned:
    """The scenario returned on this rank; ``value`` is JSON data."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The scenario raised on this rank.

    ``type`` is the class's qualified name without "builtins.", ``bases`` the names of its classes;
    ``errno`` by name and ``path`` relative to the watched directory for an ``OSError``.  ``echo`` marks
    the failure of a rank whose peer had failed first: not a cause.  ``lacks`` says which collective has failed since a
    rank that should take part has ended, although it has not failed; else it is empty.  ``causes`` are the errnos by
    name of the exceptions behind it (``__cause__``, else ``__context__``).  ``thread`` is the name of the thread that
    nobody heard of: it ended with this exception, and the rank returned.
    """

    type: str
    message: str
    bases: tuple[str, ...] = ()
    errno: str = ""
    path: str = ""
    stack: tuple[Frame, ...] = ()
    echo: bool = False
    lacks: str = ""
    causes: tuple[str, ...] = ()
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended without finishing the scenario.

    It has a ``signal`` by name or an exit ``status``, and the end of its ``output``.
    """

    status: int = 0
    signal: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run ended while this rank was still running: ``why`` it could not continue, and where it was.

    ``kind``: "collective", "lock", "asleep" (nothing can wake it), "running" (out of time or of ops),
    "echo" (it waits for a rank that failed).
    """

    kind: Literal["collective", "lock", "asleep", "running", "echo"]
    why: str
    stack: tuple[Frame, ...] = ()


RankResult = Returned | Raised | Died | Stopped


@dataclass(frozen=True, slots=True)
class DiskEntry:
    """A file system object that the run left: its kind, size in bytes, and SHA-256 or link target."""

    kind: Literal["file", "directory", "symlink", "other"]
    size: int = 0
    digest: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that a rank declared as saved or loaded, or of which it declared that the save has returned.

    See `racecheck.Rank.saved`, ``loaded``, ``acked`` and ``trained``, which declares the state after a training step.

    ``tensors`` maps each tensor's name to a digest of its type, shape and bytes; ``checkpoint`` is the path below the
    watched directory, "" if it was not declared; ``event`` is how many events of the trace came before.
    ``series`` is "" for declarations of a rank.  The observed saves of a program have there the paths that they belong
    to, equal but for numbers, and ``step`` counts the saves of that series on this rank, from 1.  "changed": that state
    has other ``tensors`` when the save returns than when it began.
    """

    rank: int
    kind: Literal["saved", "loaded", "acked", "trained", "changed"]
    step: int
    checkpoint: str
    tensors: Mapping[str, str]
    event: int = 0
    series: str = ""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step that a rank of a program was observed to train, as things stood before it.

    ``saves`` is how many saves of the rank had begun.  ``parts`` are digests of the batch, the parameters, each kind of
    the optimizer's state and each generator of random numbers, and its settings as text (`racecheck.agent.training`).
    """

    rank: int
    saves: int
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor (or an object, of ``shape`` ()) that a checkpoint's metadata promises, and the bytes there.

    It is ``length`` bytes at ``offset`` of ``file``, a path like that of the metadata; ``start`` is where in the tensor
    of ``shape`` it begins, ``sizes`` how far it goes.  ``digest`` is like a `Weights`'; ``problem`` says why it cannot
    be read, "" if it can.
    """

    name: str
    file: str
    offset: int
    length: int
    shape: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    digest: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a checkpoint file; ``problem`` says why it cannot be read, "" if it is whole.

    ``pieces`` are the promises of DCP metadata, ``tensors`` the digests by name of a file of torch.save or safetensors.
    """

    format: Literal["dcp-metadata", "torch", "safetensors"]
    problem: str = ""
    pieces: tuple[Piece, ...] = ()
    tensors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of one group that reached the same place with different collectives."""

    group: str
    number: int
    calls: Mapping[int, str]
    stacks: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The parts of a run that racecheck did not see or did not control.

    ``passed`` counts calls that went on untouched because they are outside the watched directory.
    ``holes`` name the obstacles to a PASS (a refused call, a second thread, ...), each with how
    often it was met.  ``untried`` name alternatives that were not tried: no search that has met one
    of these covers every interleaving.  ``notes`` are remarks that change neither verdict nor claim.
    """

    ops: int = 0
    passed: int = 0
    holes: Mapping[str, int] = field(default_factory=dict)
    untried: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Crash:
    """A crash during a run, and its disks.

    It came when only the events ``happened`` (indices into the trace) had; under the persistence ``model`` the events
    ``lost`` left nothing on the disk, and ``torn`` only a part.  ``kept`` says which part, so that no two states
    have the same crash: triples of a change (its number in the log), the first byte of it that lasted, and the end of
    those bytes.  (-1, -1) stands for the whole change, and (-1, size) for a file that has got this size of it.

    An outcome that it left has a trace of what had happened alone.  If something between that had not, its indices
    differ from those of the whole run: these are ``whole``, one for each event (none: they are the same).
    """

    model: str
    happened: tuple[int, ...]
    lost: tuple[int, ...] = ()
    torn: tuple[int, ...] = ()
    kept: tuple[tuple[int, int, int], ...] = ()
    whole: tuple[int, ...] = ()
    damage: str = ""
    """Describes the damage of a ``file`` after the run, of the kind ``model``; "" for a crash."""
    file: str = ""

    @property
    def within(self) -> Crash:
        """The same crash, with indices into the trace before it."""
        if self.whole or self.happened == tuple(range(len(self.happened))):
            return self
        place = {event: index for index, event in enumerate(self.happened)}
        lost, torn = (tuple(place[each] for each in events) for events in (self.lost, self.torn))
        return replace(self, happened=tuple(range(len(place))), lost=lost, torn=torn, whole=self.happened)

    @property
    def of_run(self) -> Crash:
        """The same crash, with indices into the trace of the whole run."""
        if not self.whole:
            return self
        lost, torn = (tuple(self.whole[each] for each in events) for events in (self.lost, self.torn))
        return replace(self, happened=self.whole, lost=lost, torn=torn, whole=())


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that one run left; invariants judge it.

    ``disk`` maps paths below the watched directory to their objects; if nodes have disks of their own a path starts
    with the node ("node1/ckpt/.metadata").  ``contents`` is of the checkpoint files among them, for invariants that ask
    for it.  ``recovery`` is the outcome of the scenario's recovery, in a fresh world on the disk that this run left.
    ``names`` are the patterns of names that differ between two runs of one schedule, and that are shown with the thread
    that used them: ".tmp<0:1>".  ``pending`` are ops that never went: of ranks still going when the run ended.
    ``cut`` are those of threads that ended with their process, each with the index of the event that ended it.
    ``looked`` are the times of files that a program looked at, in nanoseconds since the run began, ``lookers`` the ops
    that had asked for them (`racecheck.scheduling.file_times.label`).  ``times`` are the first times of day that the
    clocks of ranks told the program, by rank, in nanoseconds since 1970.
    ``fired`` says how often each of the world's faults has happened.  After a ``crash`` disk, contents and recovery are
    of what that left; trace and results are of the run that it cut.  ``steps`` are those of a program with a recovery.
    """

    world: World
    trace: tuple[Event, ...]
    schedule: Schedule
    results: tuple[RankResult, ...]
    disk: Mapping[str, DiskEntry] = field(default_factory=dict)
    contents: Mapping[str, Content] = field(default_factory=dict)
    weights: tuple[Weights, ...] = ()
    steps: tuple[TrainingStep, ...] = ()
    recovery: Outcome | None = None
    undamaged: Outcome | None = None
    """The recovery of the run itself, if ``recovery`` began from a damaged disk."""
    outside: Mapping[str, str] = field(default_factory=dict)
    mismatch: Mismatch | None = None
    names: tuple[str, ...] = ()
    pending: tuple[Op, ...] = ()
    cut: tuple[tuple[int, Op], ...] = ()
    looked: tuple[int, ...] = ()
    lookers: tuple[str, ...] = ()
    times: Mapping[int, int] = field(default_factory=dict)
    fired: tuple[int, ...] = ()
    crash: Crash | None = None
    coverage: Coverage = field(default_factory=Coverage)
    seconds: float = 0.0

    @property
    def ops(self) -> tuple[Op, ...]:
        """The trace without its collectives."""
        return tuple(event for event in self.trace if isinstance(event, Op))


@dataclass(frozen=True, slots=True)
class Tried:
    """How many were tried of the faults or stale reads of the default schedule, each alone, or of the crash states.

    ``of`` is how many there are, 0 if that is not known.
    """

    what: str
    done: int
    of: int

    def __str__(self) -> str:
        noun = f"{self.what}{'s' * (max(self.done, self.of) != 1)}"
        if self.is_all:
            return f"all {self.done} {noun}"
        return f"{self.done} of {self.of} {noun}" if self.of else f"{self.done} {noun}, not all"

    @property
    def is_all(self) -> bool:
        return 0 < self.of == self.done


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold: on which ranks, and the trace indices of the events that show it."""

    invariant: str
    message: str
    ranks: tuple[int, ...] = ()
    events: tuple[int, ...] = ()


Invariant = Callable[[Outcome], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its grounds: violations for FAIL, reasons for UNKNOWN."""

    verdict: Verdict
    violations: Sequence[Violation] = ()
    reasons: Sequence[str] = ()
