"""Savers that a crash hurts, or does not.  Sleeps are in virtual time: they take none.  Not collected by pytest."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import racecheck
from racecheck import Outcome, Rank, Returned, Violation
from racecheck.invariants import judges_crashes, reads_contents

NAME = "state.pt"
_loads = 0


def state(step: int) -> dict[str, Any]:
    import torch

    return {"step": step, "weights": torch.full((64,), float(step))}


@judges_crashes
def old_or_new(outcome: Outcome) -> Iterator[Violation]:
    """The recovery loads the old step or the new one."""
    assert outcome.recovery is not None
    for result in outcome.recovery.results:
        if not isinstance(result, Returned) or result.value not in (1, 2):
            yield Violation("old-or-new", f"neither old nor new: {result}", (0,))


@judges_crashes
def new_once_acked(outcome: Outcome) -> Iterator[Violation]:
    """What was acknowledged is what is loaded."""
    assert outcome.recovery is not None
    (result,) = outcome.recovery.results
    acked = max((said.step for said in outcome.weights if said.kind == "acked"), default=1)
    if not isinstance(result, Returned) or result.value < acked:
        yield Violation("new-once-acked", f"step {acked} was acknowledged", (0,), (len(outcome.trace) - 1,))


@judges_crashes
@reads_contents
def whole(outcome: Outcome) -> Iterator[Violation]:
    """Every checkpoint file that is there can be read, and what the metadata names is there."""
    for path, content in outcome.contents.items():
        if content.problem or any(piece.problem for piece in content.pieces):
            yield Violation("whole", f"{path} is not whole", (0,))


def save_old(path: Path) -> None:
    import torch

    torch.save(state(1), path / NAME)


def load(rank: Rank) -> int:
    import torch

    found = torch.load(rank.path / NAME)
    rank.loaded(found, step=found["step"])
    assert (found["weights"] == found["step"]).all(), "mixed"
    return int(found["step"])


def in_place(rank: Rank) -> None:
    import torch

    torch.save(state(2), rank.path / NAME)


def renaming(rank: Rank) -> None:
    import torch

    torch.save(state(2), rank.path / "tmp")
    os.replace(rank.path / "tmp", rank.path / NAME)


def renaming_acked(rank: Rank) -> None:
    """Says that it is done before the name is durable."""
    import torch

    with open(rank.path / "tmp", "wb") as file:
        torch.save(state(2), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(rank.path / "tmp", rank.path / NAME)
    rank.acked(step=2)


def durable(rank: Rank) -> None:
    import torch

    with open(rank.path / "tmp", "wb") as file:
        torch.save(state(2), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(rank.path / "tmp", rank.path / NAME)
    directory = os.open(rank.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    rank.acked(step=2)


def hang(rank: Rank) -> int:
    """Waits for a file that a crash may have taken."""
    if not (rank.path / "tmp").exists():
        return 2
    read, _ = os.pipe()
    return len(os.read(read, 1))


def spin(rank: Rank) -> int:
    """Waits, without a pause, for the new state to get its name."""
    while (rank.path / "tmp").exists():
        pass
    return load(rank)


def give_up(rank: Rank) -> int:
    """Ends its process where a crash has left the old step."""
    step = load(rank)
    if step == 1:
        os._exit(7)
    return step


def remember(rank: Rank) -> int:
    """Comes to something else once it has been called before."""
    global _loads
    _loads += 1
    return 2 if _loads == 1 else 3


def modify(rank: Rank) -> int:
    """Uses the disk up: a second load of the same files would fail."""
    step = load(rank)
    (rank.path / NAME).write_bytes(b"used")
    (rank.path / "more").mkdir()
    return step


def newest(rank: Rank) -> int:
    """Goes by modification times."""
    first, second = rank.path / "first", rank.path / "second"
    if not (first.exists() and second.exists()):
        return 1
    if not (first.read_bytes() and second.read_bytes()):
        return 1
    apart = second.stat().st_mtime - first.stat().st_mtime
    expected = 1 if second.read_bytes() == b"22" else -1
    is_old = time.time() - (rank.path / NAME).stat().st_mtime > 3600
    return 2 if is_old and abs(apart - expected) < 0.1 and second.stat().st_mtime < time.time() else 0


def two_files(rank: Rank) -> None:
    (rank.path / "second").write_bytes(b"2")
    time.sleep(1)
    (rank.path / "first").write_bytes(b"1")
    time.sleep(1)
    (rank.path / "second").write_bytes(b"22")
    time.sleep(1)
    (rank.path / "second").rename(rank.path / "third")
    (rank.path / "third").rename(rank.path / "second")


def scenario(run: Any, recovery: Any, name: str, ranks: int = 1, timeout: float = 30.0) -> racecheck.Scenario:
    made = racecheck.scenario(ranks=1, invariants=(old_or_new,), timeout=timeout)(run)
    made.name = name
    made.setup(save_old)
    made.recover(recovery, ranks=ranks)
    return made


overwriting = scenario(in_place, load, "overwriting")
replacing = scenario(renaming, load, "replacing")
lasting = scenario(durable, load, "lasting")
together = scenario(durable, load, "together", ranks=2)
hanging = scenario(renaming, hang, "hanging", timeout=3.0)
spinning = scenario(durable, spin, "spinning", timeout=2.0)
exiting = scenario(durable, give_up, "exiting")
remembering = scenario(durable, remember, "remembering")
modifying = scenario(durable, modify, "modifying")
dated = scenario(two_files, newest, "dated")


def shards(rank: Rank, step: int) -> dict[str, Any]:
    import torch

    return {f"own{rank.rank}": torch.full((512,), float(step)), "common": torch.full((256,), float(step))}


@racecheck.scenario(ranks=2, invariants=(old_or_new,))
def dcp_twice(rank: Rank) -> None:
    """Saves a second time into the directory of the first."""
    import torch.distributed.checkpoint as dcp

    dcp.save(shards(rank, 2), checkpoint_id=rank.path / "checkpoint")


@dcp_twice.setup
def dcp_once(path: Path) -> None:
    """Both ranks' parts, by one process."""
    import torch
    import torch.distributed.checkpoint as dcp

    whole = {name: torch.ones(512 if name != "common" else 256) for name in ("own0", "own1", "common")}
    dcp.save(whole, checkpoint_id=path / "checkpoint", no_dist=True)


@dcp_twice.recover(ranks=1)
def dcp_load(rank: Rank) -> int:
    import torch
    import torch.distributed.checkpoint as dcp

    found = {name: torch.zeros(512 if name != "common" else 256) for name in ("own0", "own1", "common")}
    dcp.load(found, checkpoint_id=rank.path / "checkpoint")
    steps = {float(value) for tensor in found.values() for value in tensor.unique()}
    return int(steps.pop()) if len(steps) == 1 else -1


@racecheck.scenario(ranks=2, nodes=2, storage="node-local", invariants=(old_or_new,))
def on_two_nodes(rank: Rank) -> None:
    """Each node's disk has a file of its own."""
    (rank.path / "file").write_text(f"node {rank.node}")


@on_two_nodes.recover
def look(rank: Rank) -> int:
    path = rank.path / "file"
    return 1 if not path.exists() else 2 if path.read_text() == f"node {rank.node}" else 0


def crash(rank: Rank) -> int:
    """Ends like a bug in C++ where a crash has left the old step."""
    step = load(rank)
    if step == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return step


killed = scenario(durable, crash, "killed")
too_early = scenario(renaming_acked, load, "too_early")


def last_once(rank: Rank) -> int:
    """Ends its process when it is called a second time."""
    global _loads
    _loads += 1
    if _loads > 1:
        os._exit(3)
    return load(rank)


brittle = scenario(durable, last_once, "brittle")


def text(rank: Rank) -> Any:
    """What a file says; and where there are more, which."""
    assert os.getcwd() != "/"
    found = (rank.path / "file").read_text()
    if found == "all":
        return sorted(os.listdir(rank.path))
    if found == "raise":
        raise ValueError(found)
    if found == "chdir":
        os.chdir("/")
    return found


def text_once(rank: Rank) -> Any:
    """The same, and it ends its process when it is called a second time."""
    global _loads
    _loads += 1
    if _loads > 1:
        os._exit(3)
    return text(rank)


texts = scenario(renaming, text, "texts")
texts_once = scenario(renaming, text_once, "texts_once")


def published(rank: Rank) -> int:
    """The step that a small file names."""
    return int((rank.path / "step").read_text())


def publish_old(path: Path) -> None:
    (path / "step").write_text("1")


on_nfs = racecheck.scenario(ranks=2, nodes=2, storage="nfs", faults=("crash",), invariants=(new_once_acked,))


def called(made: racecheck.Scenario, name: str) -> racecheck.Scenario:
    """With an old step to begin with, and a recovery that reads which one is there."""
    made.name = name
    made.setup(publish_old)
    made.recover(published, ranks=1)
    return made


def publishes(sends: Callable[[int, Path], None], name: str) -> racecheck.Scenario:
    """Rank 0 publishes a file that is still open, and says that it is done; before that something happens to it."""

    def run(rank: Rank) -> None:
        import torch.distributed as dist

        new, step = rank.path / "new", rank.path / "step"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT) if rank.rank == 0 else -1
        if rank.rank == 0:
            os.write(descriptor, b"2")
        dist.barrier()
        if name == "read_elsewhere" and rank.rank == 1:
            assert new.read_text() == "2"
        if rank.rank == 0:
            with suppress(OSError):
                sends(descriptor, new)
        dist.barrier()
        if rank.rank == 0:
            os.replace(new, step)
            rank.acked(step=2)

    return called(on_nfs(run), name)


def write_in_a_child(descriptor: int, new: Path) -> None:
    child = os.fork()
    if child == 0:
        os.write(os.open(new, os.O_WRONLY), b"2")
        os._exit(0)
    os.waitpid(child, 0)


def sync_and_close(descriptor: int, _: Path) -> None:
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


still_open = publishes(lambda descriptor, new: None, "still_open")
closed = publishes(lambda descriptor, new: os.close(descriptor), "closed")
read_only = publishes(lambda descriptor, new: os.close(os.open(new, os.O_RDONLY)), "read_only")
synced = publishes(sync_and_close, "synced")
locked = publishes(lambda descriptor, new: fcntl.flock(descriptor, fcntl.LOCK_UN), "locked")
changed = publishes(lambda descriptor, new: os.fchmod(descriptor, 0o600), "changed")
looked_at = publishes(lambda descriptor, new: print(os.fstat(descriptor).st_size), "looked_at")
by_a_child = publishes(write_in_a_child, "by_a_child")
read_elsewhere = publishes(lambda descriptor, new: None, "read_elsewhere")


@on_nfs
def both_write(rank: Rank) -> None:
    """Two nodes write one file, and neither has sent anything when the other does."""
    import torch.distributed as dist

    with open(rank.path / "new", "wb", buffering=0) as file:
        dist.barrier()
        file.write(b"2")
        dist.barrier()


@on_nfs
def in_three_pages(rank: Rank) -> None:
    """A byte, two pages, a byte, one behind the other."""
    if rank.rank == 0:
        with open(rank.path / "new", "wb", buffering=0) as file:
            file.writelines(b"x" * length for length in (1, 8192, 1))


on_objects = racecheck.scenario(
    ranks=2, nodes=2, storage="object(gcsfuse)", faults=("crash",), invariants=(new_once_acked,)
)


def uploads(ends: Callable[[int, Path], None], name: str) -> racecheck.Scenario:
    """Rank 0 writes a file again, and says that it is done; before that something happens to it."""

    def run(rank: Rank) -> None:
        if rank.rank == 0:
            step = rank.path / "step"
            descriptor = os.open(step, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(descriptor, b"2")
            ends(descriptor, step)
            rank.acked(step=2)

    return called(on_objects(run), name)


upload_begun = uploads(lambda descriptor, step: None, "upload_begun")
upload_synced = uploads(lambda descriptor, step: os.fsync(descriptor), "upload_synced")
upload_closed = uploads(lambda descriptor, step: os.close(descriptor), "upload_closed")


@on_objects
def trees_of_objects(rank: Rank) -> None:
    """Makes, replaces, moves and removes objects and directories, some of them open at the end."""
    import torch.distributed as dist

    own = rank.path / f"of {rank.rank}" / "deep"
    own.mkdir(parents=True)
    (own / "kept").write_text("new")
    (own / "replaced").write_text("old")
    (own / "replaced").write_text("new")
    (own / "gone").write_text("old")
    (own / "moved").write_text("old")
    os.rename(own / "moved", rank.path / f"moved by {rank.rank}")
    (own / "gone").unlink()
    os.symlink("kept", own / "link")
    (rank.path / f"empty of {rank.rank}").mkdir()
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "empty of 1").rmdir()
        (rank.path / "step").unlink()


@racecheck.scenario(ranks=1, storage="object(mountpoint-s3,allow-delete)")
def one_object_in_a_tree(rank: Rank) -> None:
    """Its directories come with it, and go with it."""
    path = rank.path / "a" / "b" / "object"
    path.parent.mkdir(parents=True)
    path.write_text("1")
    path.unlink()


@racecheck.scenario(ranks=1, storage="object(gcsfuse)")
def one_object_moved(rank: Rank) -> None:
    """It is never there twice, nor gone."""
    (rank.path / "a").write_text("1")
    (rank.path / "a").rename(rank.path / "b")


trees_of_objects.setup(publish_old)


def both_copies(rank: Rank) -> int:
    """The step that the better of two copies has."""
    import torch
    import torch.distributed as dist

    path = rank.path / "step"
    found = torch.tensor(2 if path.exists() and path.read_text() == "2" else 1)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def copies(synced: int, name: str) -> racecheck.Scenario:
    """Two nodes have a copy each; those of the first ``synced`` ranks last."""

    def run(rank: Rank) -> None:
        with open(rank.path / "step", "w", encoding="utf-8") as file:
            file.write("2")
            file.flush()
            if rank.rank < synced:
                os.fsync(file.fileno())
                sync_and_close(os.open(rank.path, os.O_RDONLY), rank.path)
        rank.acked(step=2)

    made = racecheck.scenario(ranks=2, nodes=2, storage="node-local", invariants=(a_copy_is_left,))(run)
    made.name = name
    made.recover(both_copies)
    return made


@judges_crashes
def a_copy_is_left(outcome: Outcome) -> Iterator[Violation]:
    """Where both ranks have said that they are done, somebody has what they wrote."""
    assert outcome.recovery is not None
    acked = {said.rank for said in outcome.weights if said.kind == "acked"}
    if acked == {0, 1} and outcome.recovery.results != (Returned(2), Returned(2)):
        yield Violation("a-copy-is-left", "both copies are gone", (0, 1))


no_copy_synced, one_copy_synced = copies(0, "no_copy_synced"), copies(1, "one_copy_synced")


in_three_pages.setup(publish_old)
in_three_pages.recover(published, ranks=1)
both_write.setup(publish_old)
both_write.recover(published, ranks=1)


def _makes(rank: Rank, *names: str) -> None:
    """Each rank makes a directory, and all wait."""
    from torch import distributed

    (rank.path / names[rank.rank]).mkdir()
    distributed.barrier()
    rank.acked(step=1)


@racecheck.scenario(ranks=2)
def first_makes_a(rank: Rank) -> None:
    _makes(rank, "A", "B")


@racecheck.scenario(ranks=2)
def first_makes_b(rank: Rank) -> None:
    _makes(rank, "B", "A")


def names_left(rank: Rank) -> str:
    return "".join(sorted(each.name for each in rank.path.iterdir()))


@judges_crashes
def only_b_once_acked(outcome: Outcome) -> Iterator[Violation]:
    """Both ranks have said that they are done, and then only B is there."""
    assert outcome.recovery is not None
    acked = sum(said.kind == "acked" for said in outcome.weights)
    if acked == 2 and outcome.recovery.results == (Returned("B"),):
        yield Violation("only-b", "only B is left", (0,))


for each in (first_makes_a, first_makes_b):
    each.recover(ranks=1)(names_left)


def six_pages(rank: Rank) -> None:
    (rank.path / "pages").write_bytes(b"".join(bytes([65 + page]) * 4096 for page in range(6)))


def which_pages(rank: Rank) -> str:
    """A letter for each page that lasted, a dot for each that did not."""
    path = rank.path / "pages"
    data = path.read_bytes() if path.exists() else b""
    return data[::4096].replace(b"\0", b".").decode()


@judges_crashes
def all_or_nothing(outcome: Outcome) -> Iterator[Violation]:
    assert outcome.recovery is not None
    for result in outcome.recovery.results:
        if not isinstance(result, Returned) or result.value not in ("", "ABCDEF"):
            yield Violation("all-or-nothing", f"pages {getattr(result, 'value', result)}", (0,))


torn_pages = racecheck.scenario(ranks=1, invariants=(all_or_nothing,))(six_pages)
torn_pages.name = "torn_pages"
torn_pages.recover(which_pages, ranks=1)


@racecheck.scenario(ranks=2)
def unordered(rank: Rank) -> None:
    """Rank 1 names what rank 0 may not have written yet; in the default schedule it has."""
    name, text = ("shard", "whole") if rank.rank == 0 else ("latest", "shard")
    (rank.path / name).write_text(text)


def load_latest(rank: Rank) -> str:
    latest = rank.path / "latest"
    return (rank.path / latest.read_text()).read_text() if latest.exists() and latest.stat().st_size else ""


unordered.recover(load_latest, ranks=1)
