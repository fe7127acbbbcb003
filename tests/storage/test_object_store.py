"""Buckets of objects, mounted on every node, on real processes."""

from __future__ import annotations

from random import Random

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Op, Place, Raised, World
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.storage import make
from tests.support.showing import show, values
from tests.support.targets import target


def test_an_upload_is_seen_when_it_is_closed(session: Session) -> None:
    outcome = show(session, "closes_late", storage="object(gcsfuse, negative-ttl=0)")
    assert values(outcome) == [[True, None, None, None], [True, ["d"], "ENOENT", "ENOENT", "data"]]
    assert set(outcome.disk) == {"d", "d/f"}
    closes = [op for op in outcome.ops if op.call == "close" and "FLUSH" in op.flags]
    assert [op.path for op in closes] == ["d/f"]


def test_what_a_process_leaves_open_is_uploaded_when_it_ends(session: Session) -> None:
    outcome = show(session, "leaves_open", storage="object(gcsfuse)")
    assert values(outcome) == ["", "data"]
    assert set(outcome.disk) == {"f"}
    assert set(show(session, "leaves_open", storage="object(gcsfuse)", first=1).disk) == {"f"}


def test_on_mountpoint_fsync_completes_it(session: Session) -> None:
    found = values(show(session, "closes_late", storage="object(mountpoint-s3)"))[1]
    assert found == [False, [], "ENOENT", "data", "data"]


def test_renaming_into_place_is_refused(session: Session) -> None:
    outcome = show(session, "renames_into_place")
    failed = outcome.results[0]
    assert isinstance(failed, Raised)
    assert (failed.errno, failed.path) == ("ENOTSUP", "ckpt.tmp")
    assert set(outcome.disk) == {"ckpt.tmp"}
    assert values(show(session, "renames_into_place", storage="object(gcsfuse)")) == [None, None]


def test_a_marker_that_comes_last_holds(session: Session) -> None:
    for storage in ("object(mountpoint-s3)", "object(gcsfuse)"):
        assert values(show(session, "marks_done", "stale", storage=storage)) == ["weightsweights"] * 2


def test_the_first_of_two_uploads_wins(session: Session) -> None:
    """By generation on gcsfuse; mountpoint-s3 keeps the last."""
    assert values(show(session, "both_write")) == [[None, "0"], ["ESTALE", "0"]]
    assert values(show(session, "both_write", first=1)) == [["ESTALE", "1"], [None, "1"]]
    assert values(show(session, "both_write", storage="object(mountpoint-s3)")) == [[None, "1"], [None, "1"]]


def test_what_mountpoint_does_not_do(session: Session) -> None:
    assert values(show(session, "refusals"))[0] == {
        "rename": "ENOTSUP", "rename directory": "EPERM", "overwrite": "EACCES", "append": "EACCES",
        "unlink": "EPERM", "unlink while writing": "EBUSY", "read while writing": "EBUSY", "symlink": "EPERM",
        "link": "EPERM", "chmod": "EPERM", "write out of order": "EINVAL", "write in order": 2, "fsync": None,
        "write after fsync": "EIO", "rmdir": None,
    }  # fmt: skip


def test_a_new_directory_is_the_nodes_own(session: Session) -> None:
    """And whoever mounts the bucket afterwards sees what is stored."""
    outcome = show(session, "own_directories")
    assert values(outcome) == [[True, True, ["f"]], [False, True, ["f"]]]
    assert outcome.recovery is not None
    assert values(outcome.recovery) == [["d"], ["d"]]


def test_files_are_renamed_as_one_step_on_gcsfuse(session: Session) -> None:
    assert values(show(session, "moves")) == [
        {"latest": "new", "tmp": False, "rename directory": "EMFILE", "left": []},
        {"latest": "new", "tmp": False, "left": []},
    ]


def test_a_run_is_repeated_exactly(session: Session) -> None:
    for name in ("closes_late", "moves", "both_write"):
        first = show(session, name, "stale")
        again = Replay(first.schedule)
        again.begin(Random(0))
        second = runner.run(session, RunRequest.of(target("caches", name), first.world, again, seed="0"))
        assert again.divergence == ""
        assert first_difference(first, second) == ""


def use(rank: int, call: str, path: str, *, inode: int, flags: tuple[str, ...] = ()) -> Op:
    place = Place(path, 100 + rank, path.rpartition("/")[2], inode, "file" if inode else "")
    return Op(rank, str(rank), call, call, (place,), flags)


def test_every_nodes_copy_of_an_object_is_one_location() -> None:
    """Identities differ from mirror to mirror, and paths do not."""
    model = make(World(ranks=2, nodes=2, storage="object"))
    close = model.footprint(use(0, "close", "d/f", inode=5, flags=("FLUSH",)))
    read = model.footprint(use(1, "read", "d/f", inode=6))
    listing = model.footprint(
        Op(1, "1", "list", "getdents64", (Place("d", 0, "d", 9, "directory", open_file=3),))
    )  # fmt: skip
    assert set(close) & set(read)
    assert set(close) & set(listing)
