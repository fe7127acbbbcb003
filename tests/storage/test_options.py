"""Options in a storage's name."""

from __future__ import annotations

import pytest

from racecheck import storage
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.storage.fuse import IncoherentFuse
from racecheck.storage.nfs import NFS
from racecheck.storage.object_store import Objects


def make(name: str) -> storage.Storage:
    return storage.make(World(storage=name))


def test_nfs_defaults_are_those_of_nfs5() -> None:
    made = make("nfs")
    assert isinstance(made, NFS)
    found = made.settings
    assert (found.acregmin, found.acregmax, found.acdirmin, found.acdirmax) == (3, 60, 30, 60)
    assert (found.vers, found.lookupcache, found.cto, found.noac, found.sync) == (4, "all", True, False, False)


def test_nfs_options() -> None:
    made = make("nfs(vers=3, actimeo=0,lookupcache = positive, nocto, server=async)")
    assert isinstance(made, NFS)
    found = made.settings
    assert (found.acregmin, found.acregmax, found.acdirmin, found.acdirmax) == (0, 0, 0, 0)
    assert (found.vers, found.lookupcache, found.cto, found.server_async) == (3, "pos", False, True)


def test_the_last_one_counts() -> None:
    made = make("nfs(noac, ac, nocto, cto, actimeo=5, acdirmin=1.5)")
    assert isinstance(made, NFS)
    assert (made.settings.noac, made.settings.sync, made.settings.cto) == (False, True, True)
    assert (made.settings.acregmin, made.settings.acdirmin, made.settings.acdirmax) == (5, 1.5, 5)


def test_objects() -> None:
    plain, other = make("object"), make("object(mountpoint-s3, allow-delete, ttl=60)")
    assert isinstance(plain, Objects)
    assert isinstance(other, Objects)
    assert (plain.settings.profile, plain.settings.ttl, plain.settings.first_wins) == ("gcsfuse", 60, True)
    assert (other.settings.profile, other.settings.ttl, other.settings.allow_delete) == ("mountpoint-s3", 60, True)
    assert not other.settings.allow_overwrite


def test_incoherent_fuse() -> None:
    made = make("incoherent-fuse(timeout=2)")
    assert isinstance(made, IncoherentFuse)
    assert made.settings.timeout == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("afs", "unknown storage 'afs'; known: incoherent-fuse, nfs, node-local, object, shared"),
        ("nfs(", "'nfs\\(' is not a storage: write nfs or nfs\\(vers=3, nocto\\)"),
        ("NFS", "'NFS' is not a storage"),
        ("nfs(fast)", "unknown option 'fast' of storage nfs; known: vers=, acregmin=, .*, nocto, "),
        ("nfs(nocto=1)", "unknown option 'nocto=1' of storage nfs"),
        ("nfs(vers)", "unknown option 'vers' of storage nfs"),
        ("nfs(vers=2)", "vers= of storage nfs must be 3, 4, 4.0, 4.1, 4.2, not '2'"),
        ("nfs(acregmin=-1)", "acregmin= of storage nfs must be 0 to 86400 seconds, not '-1'"),
        ("nfs(actimeo=nan)", "actimeo= of storage nfs must be 0 to 86400 seconds, not 'nan'"),
        ("nfs(actimeo=soon)", "actimeo= of storage nfs must be 0 to 86400 seconds, not 'soon'"),
        ("nfs(lookupcache=some)", "lookupcache= of storage nfs must be all, pos, positive, none, not 'some'"),
        ("object(s3fs)", "unknown option 's3fs' of storage object; known: gcsfuse, mountpoint-s3, "),
        ("shared(fast)", "unknown option 'fast' of storage shared; known: none"),
    ],
)
def test_what_there_is_not(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        make(name)
    assert "\n" not in str(raised.value)


def test_only_caches_have_views() -> None:
    for name in storage.NAMES:
        world = World(storage=name)
        assert storage.make(world).has_views == (storage.view(world) is not None)
    assert storage.view(World(storage="nfs")) is not storage.view(World(storage="nfs"))
