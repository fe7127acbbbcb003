"""What the watched directory of a launch command holds at the start, as an archive: kept, and safe to unpack."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from racecheck.model.errors import UsageError
from racecheck.targets.programs import ABSENT, pack, unpack
from tests.support.outside import snapshot


def unpacked(start: str, directory: Path) -> Path:
    directory.mkdir()
    unpack(start, directory)
    return directory


def kept(tree: Path) -> dict[str, Any]:
    """All that an archive keeps but times, which have not as many digits there."""
    return {str(Path(path).relative_to(tree)): (how[0], *how[2:]) for path, how in snapshot(tree).items()}


def test_a_tree_comes_back(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("text")
    (tree / "a" / "file").chmod(0o664)
    os.link(tree / "a" / "file", tree / "second")
    (tree / "link").symlink_to("/etc/passwd")
    os.utime(tree / "a" / "file", (1000, 1000))
    (tree / "a" / "b").chmod(0o500)
    again = unpacked(pack(tree), tmp_path / "again")
    assert kept(again) == kept(tree)
    assert (again / "a" / "file").stat().st_mtime == 1000
    assert pack(tree) == pack(tree)
    assert os.path.samefile(again / "second", again / "a" / "file")


def test_what_is_kept_is_left_out(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("code", "code/deep", "out", "out/code"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    again = unpacked(pack(tree, {"code"}), tmp_path / "again")
    assert sorted(str(each.relative_to(again)) for each in again.rglob("*")) == ["out", "out/code"]


def test_nothing_is_there_for_none(tmp_path: Path) -> None:
    assert pack(tmp_path / "none") == ABSENT
    assert not unpacked(ABSENT, tmp_path / "made").exists()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "members",
    [
        [member("/tmp/absolute")],
        [member("../beside")],
        [member("a/../../beside")],
        [member("link", tarfile.SYMTYPE, "/tmp"), member("link/file")],
        [member("link", tarfile.SYMTYPE, "/tmp/file"), member("link")],
        [member("link", tarfile.SYMTYPE, "/tmp/file"), member("./link")],
        [member("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("device", tarfile.CHRTYPE)],
    ],
)
def test_what_leads_outside_is_refused_before_anything_is_made(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        archive.addfile(member("first"))
        for each in members:
            archive.addfile(each)
    with pytest.raises(UsageError, match="outside the watched directory"):
        unpacked(base64.b64encode(data.getvalue()).decode(), tmp_path / "made")
    assert [*tmp_path.rglob("*")] == [tmp_path / "made"]
