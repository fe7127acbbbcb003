"""Where paths lead: dots, slashes, links, long and odd names, working directories."""

from __future__ import annotations

import os
import shutil
import struct
from typing import Any

from tests.programs.fidelity_raw import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_REMOVEDIR,
    AT_SYMLINK_FOLLOW,
    AT_SYMLINK_NOFOLLOW,
    attempt,
    opened,
    program,
    raw,
    room,
    status,
    tree,
    write,
)  # fmt: skip

KINDS = ("file", "directory", "full", "missing", "to_file", "to_directory", "dangling", "loop", "fifo")

ENDINGS = ("", "/", "/.", "/..", "//x")

LOOKS: dict[str, Any] = {
    "open": lambda path: opened("open", path, os.O_RDONLY | os.O_NONBLOCK, 0),
    "open O_DIRECTORY": lambda path: opened("open", path, os.O_DIRECTORY, 0),
    "open O_NOFOLLOW": lambda path: opened("open", path, os.O_NOFOLLOW | os.O_NONBLOCK, 0),
    "open O_PATH": lambda path: opened("open", path, os.O_PATH, 0),
    "open O_PATH O_NOFOLLOW": lambda path: opened("open", path, os.O_PATH | os.O_NOFOLLOW, 0),
    "open O_WRONLY": lambda path: opened("open", path, os.O_WRONLY | os.O_NONBLOCK, 0),
    "openat O_CLOEXEC": lambda path: opened("openat", AT_FDCWD, path, os.O_CLOEXEC | os.O_NONBLOCK, 0),
    "stat": lambda path: attempt(lambda: status(os.stat(path))),
    "lstat": lambda path: attempt(lambda: status(os.lstat(path))),
    "old stat": lambda path: raw("stat", path, room(144)),
    "old lstat": lambda path: raw("lstat", path, room(144)),
    "statx": lambda path: raw("statx", AT_FDCWD, path, 0, 0x7FF, room(256)),
    "statfs": lambda path: raw("statfs", path, room(120)),
    "access": lambda path: raw("access", path, os.R_OK),
    "faccessat2": lambda path: raw("faccessat2", AT_FDCWD, path, os.F_OK, AT_SYMLINK_NOFOLLOW),
    "readlink": lambda path: raw("readlink", path, room(100), 100),
    "getxattr": lambda path: raw("getxattr", path, b"user.x", None, 0),
    "listxattr": lambda path: raw("listxattr", path, None, 0),
    "name_to_handle_at": lambda path: raw("name_to_handle_at", AT_FDCWD, path, room(200, b"\0"), room(8), 0),
    "truncate": lambda path: raw("truncate", path, 4),
    "utimes": lambda path: raw("utimes", path, struct.pack("4q", 1, 0, 1, 0)),
    "chmod": lambda path: raw("chmod", path, 0o755),
    "lchown": lambda path: raw("lchown", path, -1, -1),
}
"""Calls that leave the tree as it is, up to sizes and times."""

CHANGES: dict[str, Any] = {
    "open O_CREAT": lambda path: opened("open", path, os.O_CREAT | os.O_RDWR, 0o640),
    "open O_CREAT O_EXCL": lambda path: opened("open", path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640),
    "open O_CREAT O_NOFOLLOW": lambda path: opened("open", path, os.O_CREAT | os.O_NOFOLLOW | os.O_RDWR, 0o640),
    "open O_CREAT O_DIRECTORY": lambda path: opened("open", path, os.O_CREAT | os.O_DIRECTORY, 0o640),
    "open O_TRUNC": lambda path: opened("open", path, os.O_TRUNC | os.O_WRONLY | os.O_NONBLOCK, 0),
    "open O_TMPFILE": lambda path: str(opened("open", path, os.O_TMPFILE | os.O_RDWR, 0o600))[:20],
    "creat": lambda path: opened("creat", path, 0o640) if "fifo" not in path else "would wait",
    "mkdir": lambda path: raw("mkdir", path, 0o750),
    "mkdirat": lambda path: raw("mkdirat", AT_FDCWD, path, 0o750),
    "mknod": lambda path: raw("mknod", path, 0o100640, 0),
    "rmdir": lambda path: raw("rmdir", path),
    "unlink": lambda path: raw("unlink", path),
    "unlinkat": lambda path: raw("unlinkat", AT_FDCWD, path, 0),
    "unlinkat AT_REMOVEDIR": lambda path: raw("unlinkat", AT_FDCWD, path, AT_REMOVEDIR),
    "symlink": lambda path: raw("symlink", "target", path),
    "rename file to": lambda path: raw("rename", "other", path),
    "rename directory to": lambda path: raw("rename", "others", path),
    "rename from": lambda path: raw("rename", path, "renamed"),
    "rename from to slash": lambda path: raw("rename", path, "renamed/"),
    "exchange": lambda path: raw("renameat2", AT_FDCWD, path, AT_FDCWD, "other", 2),
    "noreplace": lambda path: raw("renameat2", AT_FDCWD, "other", AT_FDCWD, path, 1),
    "link from": lambda path: raw("link", path, "linked"),
    "link to": lambda path: raw("link", "other", path),
    "linkat from, following": lambda path: raw("linkat", AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW),
    "linkat to, following": lambda path: raw("linkat", AT_FDCWD, "other", AT_FDCWD, path, AT_SYMLINK_FOLLOW),
}
"""Calls that may change the tree."""


def one_of_each() -> None:
    """Something of every kind in the working directory."""
    write("file", b"content")
    os.mkdir("directory")
    os.mkdir("full")
    write("full/x", b"inner")
    os.symlink("file", "to_file")
    os.symlink("full", "to_directory")
    os.symlink("nothing", "dangling")
    os.symlink("loop", "loop")
    os.mkfifo("fifo")
    write("other", b"other")
    os.mkdir("others")


def grid() -> None:
    """For each case of `changes` a tree of its own."""
    for call in range(len(CHANGES)):
        for kind in range(len(KINDS)):
            for slash in range(len(ENDINGS)):
                where = f"{call}/{kind}/{slash}"
                os.makedirs(where)
                os.chdir(where)
                one_of_each()
                os.chdir("../../..")


@program(one_of_each)
def looks() -> Any:
    """Every call that looks, on every kind, with every ending."""
    return {
        f"{name} {kind}{slash}": look(kind + slash)
        for kind in KINDS
        for slash in ENDINGS
        for name, look in LOOKS.items()
    }


@program(grid)
def changes() -> Any:
    """Every call that changes names, on every kind, with every ending."""
    answers = {}
    here = os.getcwd()
    for call, (name, change) in enumerate(CHANGES.items()):
        for kind, target in enumerate(KINDS):
            for slash, ending in enumerate(ENDINGS):
                os.chdir(f"{here}/{call}/{kind}/{slash}")
                answers[f"{name} {target}{ending}"] = change(target + ending)
    return answers


@program()
def dots() -> Any:
    """ "." and ".." alone."""
    os.makedirs("a/b")
    answers: dict[str, Any] = {}
    for path in (".", "..", "./", "../", "a/b/..", "a/b/.", "/", "//", "/..", "", "./.", ".//./"):
        os.chdir("a/b")
        changing = {
            name: change(path)
            for name, change in CHANGES.items()
            if not (path.startswith("/") and name in ("open O_TMPFILE",))
        }
        answers[path] = [
            changing,
            {name: look(path) for name, look in LOOKS.items() if not path.startswith("/")},
        ]
        os.chdir("../..")
    return answers, tree()


@program()
def empty_paths() -> Any:
    """An empty path is an error but for those that say otherwise."""
    write("file", b"content")
    descriptor = os.open("file", os.O_RDWR)
    path = os.open("file", os.O_PATH)
    directory = os.open(".", os.O_PATH)
    stat_buffer = room(144)
    answers = [
        raw("newfstatat", descriptor, b"", room(144), 0),
        raw("newfstatat", descriptor, b"", stat_buffer, AT_EMPTY_PATH),
        raw("newfstatat", path, b"", room(144), AT_EMPTY_PATH),
        raw("newfstatat", AT_FDCWD, b"", room(144), AT_EMPTY_PATH),
        raw("newfstatat", 9999, b"", room(144), AT_EMPTY_PATH),
        raw("newfstatat", descriptor, None, room(144), AT_EMPTY_PATH),
        raw("newfstatat", descriptor, None, room(144), 0),
        raw("statx", descriptor, b"", AT_EMPTY_PATH, 0x7FF, room(256)),
        raw("statx", descriptor, None, AT_EMPTY_PATH, 0x7FF, room(256)),
        raw("fchmodat2", path, b"", 0o600, AT_EMPTY_PATH),
        raw("fchownat", path, b"", -1, -1, AT_EMPTY_PATH),
        raw("faccessat2", path, b"", os.R_OK, AT_EMPTY_PATH),
        raw("utimensat", path, b"", bytes(32), AT_EMPTY_PATH),
        raw("utimensat", descriptor, None, bytes(32), 0),
        raw("utimensat", descriptor, None, bytes(32), AT_SYMLINK_NOFOLLOW),
        raw("utimensat", AT_FDCWD, None, bytes(32), 0),
        raw("utimensat", 9999, None, bytes(32), 0),
        raw("futimesat", descriptor, None, bytes(32)),
        raw("futimesat", AT_FDCWD, None, bytes(32)),
        raw("linkat", path, b"", AT_FDCWD, "linked", AT_EMPTY_PATH),
        raw("linkat", descriptor, b"", directory, "linked again", AT_EMPTY_PATH),
        raw("linkat", AT_FDCWD, b"", AT_FDCWD, "never", AT_EMPTY_PATH),
        raw("linkat", AT_FDCWD, b"file", AT_FDCWD, b"", AT_EMPTY_PATH),
        raw("linkat", AT_FDCWD, b"file", directory, b"", AT_EMPTY_PATH),
        raw("openat", directory, b"", os.O_RDONLY, 0),
        raw("openat", directory, None, os.O_RDONLY, 0),
        raw("mkdirat", directory, None, 0o700),
        raw("readlinkat", directory, None, room(10), 10),
        raw("renameat", directory, None, directory, "x"),
        raw("fchownat", directory, None, -1, -1, 0),
        raw("faccessat", directory, None, 0),
        raw("openat", descriptor, b"file", os.O_RDONLY, 0),
        raw("openat", 9999, b"file", os.O_RDONLY, 0),
        raw("openat", -1, b"file", os.O_RDONLY, 0),
        opened("openat", -1, os.path.abspath("file"), os.O_RDONLY, 0),
        raw("mkdirat", directory, b"", 0o700),
        raw("readlinkat", directory, b"", room(10), 10),
        raw("unlinkat", directory, b"", AT_REMOVEDIR),
        raw("execveat", 9999, b"", None, None, AT_EMPTY_PATH),
    ]
    for each in (descriptor, path, directory):
        os.close(each)
    return answers, repr(stat_buffer.raw[24:28]), tree()


@program()
def links_themselves() -> Any:
    """A descriptor of a symbolic link."""
    os.symlink("target", "link")
    link = os.open("link", os.O_PATH | os.O_NOFOLLOW)
    text = room(10)
    answers = [
        status(os.fstat(link)),
        raw("readlinkat", link, b"", text, 10),
        repr(text.raw),
        raw("readlinkat", AT_FDCWD, "link", text, 3),
        repr(text.raw),
        raw("readlink", "link", text, 0),
        raw("readlink", "link", text, -1),
        raw("newfstatat", AT_FDCWD, "link", room(144), AT_SYMLINK_NOFOLLOW),
        raw("fchmodat2", AT_FDCWD, "link", 0o600, AT_SYMLINK_NOFOLLOW),
        raw("utimensat", AT_FDCWD, "link", struct.pack("4q", 5, 0, 5, 0), AT_SYMLINK_NOFOLLOW),
        os.lstat("link").st_mtime_ns,
        raw("lsetxattr", "link", b"user.x", b"1", 1, 0),
        raw("lgetxattr", "link", b"user.x", None, 0),
        raw("fchownat", AT_FDCWD, "link", -1, -1, AT_SYMLINK_NOFOLLOW),
        raw("read", link, text, 1),
    ]
    os.close(link)
    return answers


@program()
def links_on_the_way() -> Any:
    """Relative and absolute links, up and down, in the middle of paths, and ".." behind them."""
    os.makedirs("one/two/three")
    os.makedirs("far/away")
    write("far/beside", b"beside")
    os.symlink("../../far/away", "one/two/there")
    os.symlink(os.path.abspath("far"), "absolute")
    os.symlink("one/two/there/..", "up")
    os.symlink("./one//two/./three/", "slashed")
    os.symlink("../links_on_the_way/far", "out_and_in")
    answers = {
        path: opened("open", path, os.O_CREAT | os.O_RDWR, 0o600)
        for path in (
            "one/two/there/../beside", "absolute/beside", "absolute/../far/beside", "up/beside", "slashed/new",
            "slashed/../new", "one/two/there/new", "out_and_in/beside", "absolute/new2", "one/../absolute/new3",
            "one/missing/../x", "far/beside/../x", "one/two/there/../../far/new4",
        )
    }  # fmt: skip
    return (
        answers,
        raw("rmdir", "slashed"),
        raw("mkdir", "up/made", 0o700),
        raw("rename", "up/made", "slashed/moved"),
        tree(),
    )


@program()
def chains_of_links() -> Any:
    """The kernel follows 40 links, and no more."""
    write("0", b"end")
    for number in range(1, 46):
        os.symlink(str(number - 1), str(number))
    os.symlink("pong", "ping")
    os.symlink("ping", "pong")
    os.symlink("ping/x", "through")
    answers = {number: opened("open", str(number), os.O_RDONLY, 0) for number in (1, 5, 39, 40, 41, 45)}
    statuses = [attempt(lambda each=each: status(os.stat(each))) for each in ("39", "40", "41", "ping", "through")]
    made = [opened("open", each, os.O_CREAT | os.O_WRONLY, 0o600) for each in ("ping", "through", "41")]
    return (
        answers,
        statuses,
        made,
        attempt(os.mkdir, "ping"),
        attempt(os.unlink, "ping"),
        attempt(os.path.realpath, "5"),
    )


@program()
def dangling_links() -> Any:
    """A link that leads nowhere gets its target from O_CREAT, and from nothing else."""
    os.mkdir("below")
    os.symlink("below/target", "near")
    os.symlink("missing/target", "far")
    os.symlink("second", "first")
    os.symlink("third", "second")
    os.symlink("below/", "slash")
    os.symlink("new/", "new_slash")
    return [
        opened("open", "near", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600),
        opened("open", "near", os.O_WRONLY, 0o600),
        opened("open", "near", os.O_CREAT | os.O_WRONLY, 0o604),
        opened("open", "far", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "first", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "slash", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "new_slash", os.O_CREAT | os.O_WRONLY, 0o600),
        raw("mkdir", "new_slash", 0o700),
        raw("mkdir", "new_slash/", 0o700),
        raw("truncate", "far", 0),
        raw("link", "far", "far too"),
        tree(),
    ]


@program()
def from_outside() -> Any:
    """Links from outside into the directory, and from it out again."""
    here = os.getcwd()
    # A name from tempfile comes from the seed: two sessions that run this at once would get in each other's way.
    outside = f"/dev/shm/outside{here.replace('/', '_')}"
    os.mkdir(outside)
    os.mkdir("inside")
    write(f"{outside}/file", b"outside")
    os.symlink(f"{here}/inside", f"{outside}/in")
    os.symlink(outside, "out")
    os.symlink(f"{outside}/in/deep", "dangling")
    answers = [
        opened("open", f"{outside}/in/new", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "out/in/new", os.O_RDONLY, 0),
        opened("open", "out/in/../new", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "out/file", os.O_RDONLY, 0),
        opened("open", "out/other", os.O_CREAT | os.O_WRONLY, 0o600),
        opened("open", "dangling", os.O_CREAT | os.O_WRONLY, 0o600),
        raw("rename", "out/other", "out/in/other"),
        raw("rename", "inside/other", "out/back"),
        raw("link", "out/file", "inside/linked"),
        raw("symlink", "x", "out/in/link"),
        raw("mkdir", "out/in/made", 0o700),
        raw("unlink", "out/file"),
        sorted(os.listdir(outside)),
        sorted(os.listdir("out/in")),
        tree(),
    ]
    shutil.rmtree(outside)
    os.unlink("out")
    os.unlink("dangling")
    return [str(each).replace(outside, "<outside>") for each in answers]


def _of_length(length: int, end: str, start: str = "") -> str:
    """A path of a number of bytes that means ``end``."""
    rest = length - len(start) - len(end)
    return start + "/" * (rest % 2) * bool(start) + "./" * (rest // 2) + ("/" * (rest % 2) if not start else "") + end


@program()
def long_paths() -> Any:
    """Names of 255 and 256 bytes, paths of 4095 and 4096, relative, absolute and from a descriptor."""
    write("f", b"content")
    os.symlink("." + "/." * 2040 + "/f", "long")
    directory = os.open(".", os.O_PATH)
    here = os.getcwd() + "/"
    answers: dict[str, Any] = {}
    for length in (4000, 4094, 4095, 4096, 5000):
        relative, absolute = _of_length(length, "f"), _of_length(length, "f", here)
        answers[f"relative {length}"] = [
            opened("open", relative, os.O_RDONLY, 0),
            raw("stat", relative, room(144)),
        ]
        answers[f"absolute {length}"] = [opened("open", absolute, os.O_RDONLY, 0), raw("access", absolute, 0)]
        answers[f"at {length}"] = opened("openat", directory, relative, os.O_RDONLY, 0)
        answers[f"made {length}"] = [raw("mkdir", _of_length(length, "d"), 0o700), raw("rmdir", "d")]
        answers[f"slashes {length}"] = raw("mkdir", "e" + "/" * (length - 1), 0o700), raw("rmdir", "e")
        answers[f"target {length}"] = raw("symlink", "t" * length, f"link{length}")
    for length in (254, 255, 256, 300):
        name = "n" * length
        answers[f"name {length}"] = [
            raw("mkdir", name, 0o700),
            raw("stat", f"{name}/", room(144)),
            raw("rename", name, "m" * length),
        ]
        answers[f"parent {length}"] = raw("mkdir", f"{name}/x", 0o700)
    answers["link"] = [opened("open", "long", os.O_RDONLY, 0), opened("open", "long/", os.O_RDONLY, 0)]
    os.close(directory)
    return answers, tree()


@program()
def deep_directories() -> Any:
    """Deeper than any path can say."""
    name, here = "d" * 250, os.getcwd()
    for _ in range(20):
        os.mkdir(name)
        os.chdir(name)
    write("bottom", b"deep")
    answers = [
        attempt(os.listdir, "."),
        attempt(lambda: status(os.stat("../" + name + "/bottom"))),
        attempt(os.mkdir, "more"),
        attempt(os.rename, "more", "../less"),
        sorted(os.listdir("..")),
    ]
    os.chdir(here)
    shutil.rmtree(name)
    return answers, tree()


@program()
def odd_names() -> Any:
    """Spaces, newlines, other alphabets, bytes that are no text, and names that look like the kernel's own remarks."""
    names = [
        b"with space", b"line\nbreak", b"tab\t", "größe".encode(), "目录".encode(), b"\xff\xfe\x80", b"back\\slash",
        b"gone (deleted)", b"#123", b"-rf", b"*", b"a:b", b"'\"", b"...", b" ", b"~", b"%s%d", b"\x01\x7f",
    ]  # fmt: skip
    answers = []
    for name in names:
        write(os.fsdecode(name), b"x")
        os.mkdir(name + b".d")
        write(os.fsdecode(name + b".d/" + name), b"y")
        os.rename(name + b".d/" + name, name + b".moved")
        os.symlink(name, name + b".link")
        answers.append([status(os.stat(name + b".link")), repr(os.readlink(name + b".link"))])
        file = os.open(name, os.O_RDONLY)
        os.unlink(name)
        answers.append([status(os.fstat(file)), attempt(os.stat, name), repr(os.read(file, 10))])
        os.close(file)
    return answers, tree()


@program()
def working_directories() -> Any:
    """Moved, renamed and removed under the feet of who is in them."""
    top = os.getcwd()
    os.makedirs("one/two")
    os.chdir("one/two")
    write("here", b"1")
    os.rename(f"{top}/one", f"{top}/uno")
    answers: list[Any] = [os.getcwd(), attempt(os.listdir), attempt(lambda: status(os.stat("here")))]
    write("still", b"2")
    answers += [sorted(os.listdir(f"{top}/uno/two")), attempt(os.stat, "../../one")]
    back = os.open("..", os.O_RDONLY)
    os.fchdir(back)
    answers += [os.getcwd(), sorted(os.listdir())]
    os.chdir("two")
    shutil.rmtree(f"{top}/uno/two")
    answers += [
        attempt(os.getcwd), attempt(os.listdir), attempt(os.listdir, back), attempt(write, "new"), attempt(os.mkdir, "new"),
        attempt(lambda: status(os.stat("."))), attempt(lambda: status(os.stat(".."))), attempt(os.rmdir, "."),
        attempt(os.rename, f"{top}/uno", "uno"), attempt(os.symlink, "x", "y"), raw("chdir", "."), raw("chdir", "x"),
    ]  # fmt: skip
    os.mkdir(f"{top}/uno/two")
    answers += [attempt(os.listdir), attempt(write, "new"), attempt(os.listdir, "../two")]
    os.chdir("..")
    answers += [os.getcwd(), raw("fchdir", back), raw("chdir", "two/x"), raw("chdir", f"{top}/uno/two/")]
    os.close(back)
    answers += [os.getcwd(), raw("fchdir", 9999), raw("chdir", b""), raw("chdir", None)]
    os.chdir(top)
    return answers, tree()


@program()
def moved_directories() -> Any:
    """Open directories go on where they are, renamed or removed."""
    os.mkdir("a")
    write("a/file", b"1")
    directory = os.open("a", os.O_RDONLY)
    handle = os.open("a", os.O_PATH)
    os.rename("a", "b")
    answers = [opened("openat", each, "file", os.O_RDWR, 0) for each in (directory, handle)]
    os.mkdir("a")
    answers += [opened("openat", directory, "more", os.O_CREAT | os.O_WRONLY, 0o600), sorted(os.listdir("a"))]
    answers += [raw("renameat", directory, "file", AT_FDCWD, "a/file"), raw("unlinkat", handle, "more", 0)]
    answers += [raw("newfstatat", directory, "../a", room(144), 0), raw("mkdirat", directory, "../c", 0o700)]
    os.rmdir("b")
    answers += [
        opened("openat", directory, "x", os.O_CREAT | os.O_WRONLY, 0o600),
        raw("mkdirat", handle, "x", 0o700),
    ]
    answers += [
        opened("openat", directory, ".", os.O_RDONLY, 0),
        opened("openat", directory, "..", os.O_RDONLY, 0),
    ]
    answers += [
        attempt(os.listdir, directory),
        status(os.fstat(handle)),
        raw("linkat", AT_FDCWD, "a/file", handle, "x", 0),
    ]
    os.mkdir("b")
    answers += [opened("openat", directory, "x", os.O_CREAT | os.O_WRONLY, 0o600), os.listdir("b")]
    for each in (directory, handle):
        os.close(each)
    return answers, tree()


@program()
def proc_paths() -> Any:
    """The process's own view through /proc."""
    write("file", b"content")
    file, directory = os.open("file", os.O_RDWR), os.open(".", os.O_RDONLY)
    answers = [
        opened("open", f"/proc/self/fd/{file}", os.O_RDONLY, 0),
        opened("open", f"/proc/self/fd/{directory}/file", os.O_RDONLY, 0),
        opened("open", f"/dev/fd/{file}", os.O_WRONLY | os.O_TRUNC, 0),
        opened("open", f"/proc/thread-self/fd/{file}", os.O_RDONLY | os.O_NOFOLLOW, 0),
        opened("open", "/proc/self/cwd/file", os.O_RDONLY, 0),
        opened("open", f"/proc/self/root{os.getcwd()}/file", os.O_RDONLY, 0),
        opened("open", f"/proc/self/../self/fd/{file}", os.O_RDONLY, 0),
        opened("open", f"//proc/self/fd/{file}", os.O_RDONLY, 0),
        opened("open", f"/proc/{os.getpid()}/fd/{file}", os.O_RDONLY, 0),
        raw("link", f"/proc/self/fd/{file}", "never"),
        raw("linkat", AT_FDCWD, f"/proc/self/fd/{file}", AT_FDCWD, "linked", AT_SYMLINK_FOLLOW),
        os.path.basename(os.readlink(f"/proc/self/fd/{file}")),
        status(os.stat(f"/proc/self/fd/{file}")),
    ]
    os.unlink("file")
    os.unlink("linked")
    answers += [
        opened("open", f"/proc/self/fd/{file}", os.O_RDONLY, 0),
        status(os.stat(f"/proc/self/fd/{file}")),
        raw("truncate", f"/proc/self/fd/{file}", 3),
        raw("linkat", AT_FDCWD, f"/proc/self/fd/{file}", AT_FDCWD, "again", AT_SYMLINK_FOLLOW),
        status(os.fstat(file)),
    ]
    os.close(file)
    os.close(directory)
    return answers, tree()
