"""Files that a script makes and removes before its ranks are so again in each run."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest

from racecheck.model.errors import UsageError
from racecheck.targets import surroundings
from racecheck.targets.surroundings import pack, paths, put_back


def anywhere(_: Path) -> bool:
    return True


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir(mode=0o750)
    (tmp_path / "conf").write_text("lr 1")
    os.utime(tmp_path / "conf", (1000, 1000))
    (tmp_path / "tool").touch(0o755)
    (tmp_path / "link").symlink_to("conf")
    return tmp_path


def test_files_directories_links_and_removals_come_back(tree: Path) -> None:
    made = [tree / each for each in ("conf", "gone", "link", "logs", "tool")]
    archive = pack([(each, each.name == "logs") for each in made])
    assert [path.name for path, is_file in paths(archive) if is_file] == ["conf", "link", "tool"]
    assert [path.name for path, is_file in paths(archive) if not is_file] == ["gone", "logs", "logs"]
    for each in made[:1]:
        each.unlink()
    (tree / "logs" / "old").touch()
    (tree / "gone").mkdir()
    (tree / "gone" / "deep").touch()
    (tree / "link").unlink()
    (tree / "link").mkdir()
    put_back(archive, anywhere)
    assert sorted(each.name for each in tree.iterdir()) == ["conf", "link", "logs", "tool"]
    assert ((tree / "conf").read_text(), (tree / "conf").stat().st_mtime) == ("lr 1", 1000)
    assert (os.readlink(tree / "link"), [*(tree / "logs").iterdir()]) == ("conf", [])
    assert ((tree / "tool").stat().st_mode & 0o777, (tree / "logs").stat().st_mode & 0o777) == (0o755, 0o750)
    put_back(archive, anywhere)


def test_a_directory_that_was_there_keeps_its_other_files(tree: Path) -> None:
    archive = pack([(tree / "logs", False)])
    (tree / "logs" / "old").touch()
    put_back(archive, anywhere)
    assert (tree / "logs" / "old").exists()


def test_nothing_is_an_archive_too_and_too_much_is_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack([])
    assert paths(pack([])) == []
    os.mkfifo(tree / "pipe")
    assert pack([(tree / "pipe", False)]) == ""
    monkeypatch.setattr(surroundings, "_MOST_BYTES", 3)
    assert pack([(tree / "conf", False)]) == ""


@pytest.mark.parametrize("text", ["archive", "AAAA", pack([])[:40]])
def test_other_text_is_no_archive(text: str) -> None:
    with pytest.raises(ValueError, match=r"padding|not an lzma|end-of-stream|header|readable"):
        paths(text)


def test_no_path_is_touched_that_may_not_be_written(tree: Path) -> None:
    archive = pack([(tree / "conf", False), (tree / "gone", False)])
    (tree / "gone").touch()
    with pytest.raises(UsageError, match=r"cannot put .*/gone where the script had put it"):
        put_back(archive, lambda path: path.name != "gone")
    assert (tree / "gone").exists()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as made:
        made.addfile(tarfile.TarInfo(f"{tree}/logs/../conf".lstrip("/")))
    with pytest.raises(UsageError, match="cannot put"):
        put_back(base64.b64encode(data.getvalue()).decode(), anywhere)
    assert (tree / "conf").read_text() == "lr 1"
