"""Writes, deletes and renames below a directory, and elsewhere, in a layer.  Started as a program; prints JSON.

Arguments: the directory of the layer, a directory that stays real, a directory to change, and what to do at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from racecheck.kernel.layer import Layer
from racecheck.kernel.real_files import real

PLACES = ("/tmp", "/dev/shm", os.path.expanduser("~"), "/var/tmp")


def change(tree: Path, mark: str) -> None:
    """Change a tree with a file ``a``, a link ``link`` and a directory ``b`` with a file ``c``, by every means."""
    (tree / "new").write_text("new")
    with open(tree / "a", "a") as file:
        file.write("more")
    os.rename(tree / "b" / "c", tree / "moved")
    shutil.move(tree / "b", tree / "other")  # rename(2) does it only in the layer of the machine's root
    os.unlink(tree / "link")
    os.chmod(tree / "a", 0o600)
    os.utime(tree / "moved", (1, 1))
    os.link(tree / "a", tree / "second")
    os.setxattr(tree / "a", "user.mine", b"1")
    os.truncate(tree / "moved", 0)
    shutil.rmtree(tree / "other")
    for place in PLACES:
        if os.access(place, os.W_OK):
            Path(place, mark).write_text("x")
    for extra in os.environ.get("EXTRA", "").split():
        with open(extra, "a") as file:
            file.write("more")
    with suppress(OSError):  # the root directory is read-only
        Path("/", mark).write_text("x")


def main(place: Path, kept: Path, tree: Path, end: str) -> None:
    layer = Layer(place, [kept, place], [tree])
    os.chdir(tree)
    change(Path("."), f"mark of {place.name}")
    (kept / "kept").write_text("kept")
    seen: dict[str, Any] = {"here": sorted(os.listdir(tree)), "cwd": os.getcwd(), "changed": layer.changed(tree)}
    seen["but for kept"] = layer.changed(tree, {"a", "moved"})
    seen["held"] = [layer.holds(each) for each in (tree, tree / "no" / "such", kept, Path("/proc/self"))]
    seen["real"] = sorted(os.listdir(real(tree)))
    if end == "killed":
        print(json.dumps(seen), flush=True)
        os.kill(os.getpid(), 9)
    os.chdir("/")
    layer.renew()
    seen["renewed"] = sorted(os.listdir(tree))
    seen["held again"] = layer.holds(tree)
    change(tree, f"mark of {place.name}")
    layer.renew()
    seen["marks"] = [each for each in PLACES if Path(each, f"mark of {place.name}").exists()]
    seen["then"] = layer.changed(tree)
    if end == "lifted":
        layer.lift()
        (tree / "real").write_text("real")
        layer.cover([tree])
        seen["again"] = sorted(os.listdir(tree))
        change(tree, f"mark of {place.name}")
        os.unlink(tree / "real")
        layer.lift()
        seen["lifted"] = sorted(os.listdir(tree))
    if end == "kept":
        keep(layer, tree, seen)
    print(json.dumps(seen))


def keep(layer: Layer, tree: Path, seen: dict[str, Any]) -> None:
    """Keep changes, make others, and tell what is there when those are forgotten, and then all."""
    (tree / "b" / "c").unlink()
    (tree / "b" / "c").mkdir()
    (tree / "d").mkdir()
    (tree / "d" / "e").write_text("e")
    (tree / "a").write_text("other")
    (tree / "link").unlink()
    shutil.rmtree(tree / "b")
    (tree / "b").mkdir()
    seen["difference"] = [
        (str(path.relative_to(tree)), hides) for path, hides in layer.difference() if path.is_relative_to(tree)
    ]
    layer.keep()
    seen["changed"] = layer.changed(tree / "no")
    seen["kept"] = [sorted(os.listdir(tree)), os.listdir(tree / "b"), (tree / "a").read_text()]
    shutil.rmtree(tree / "d")
    (tree / "a").unlink()
    (tree / "b" / "new").touch()
    layer.renew()
    seen["again"] = [sorted(os.listdir(tree)), os.listdir(tree / "b"), (tree / "d" / "e").read_text()]
    layer.forget()
    seen["forgotten"] = [sorted(os.listdir(tree)), os.listdir(tree / "b"), (tree / "a").read_text()]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), sys.argv[4])
