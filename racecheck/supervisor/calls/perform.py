"""Perform calls in a rank's place.

The same call is made on our duplicate of the rank's descriptor, or from an O_PATH handle of the directory that its path
leads to, with the rank's umask and its own buffers.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import resource
import signal
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.memory import Memory
from racecheck.kernel.signature import Arg, Role
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Fault, Op
from racecheck.model.ops import op_kinds
from racecheck.model.ops.unstable_names import Names
from racecheck.sessions.file_digests import Digest, plain
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.files.paths import AT_FDCWD, Located, check_ours
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Request

_CHUNK = 1 << 20
_SHORT = 120
"""Bytes that are kept as text: the length of a pointer to a checkpoint."""
_IOV_MAX = 1024
_LONG_MAX = (1 << 63) - 1
_CREATING = op_kinds.MAKES | {"open"}
_MAKES_MODE = _CREATING - {"symlink"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a rank: a value or an errno, or a descriptor (``opened``).

    ``size`` and ``digest`` are of the bytes that moved (for a listing, ``size`` counts its entries but the dots), and
    ``text`` the bytes, if they are short and printable.  ``carry_on``: the kernel is to do it; then the result is not
    known.  ``is_unseen``: the descriptor that was ``opened`` does not matter.  ``end`` is where in its file a write
    ended that named no offset, -1 for any other.
    """

    value: int = 0
    errno: int = 0
    size: int = 0
    digest: str = ""
    text: str = ""
    opened: int = -1
    close_on_exec: bool = False
    carry_on: bool = False
    is_unseen: bool = False
    end: int = -1
    part: Op | None = None
    """The part of the call that is done; the rest is still to be answered."""
    kill: Fault | None = None
    """The fault that ends the caller now that the call is done."""
    has_ended: bool = False
    """A fault has ended the caller before the call."""


CARRY_ON = Answer(carry_on=True)
ENDED = Answer(has_ended=True)
Next = Callable[[Request], Answer]
"""Carries a request out, as far as it is not the caller's to do."""
OpLayer = Callable[[Request, Next], Answer]


def stacked(layers: Sequence[OpLayer], kernel: Next) -> Next:
    """Return a function that hands a request through the layers, from the first to the kernel.

    A layer calls ``next`` at most once, with the same request.
    """
    return functools.reduce(lambda next_, layer: lambda request: layer(request, next_), reversed(layers), kernel)


def perform(request: Request) -> Answer:
    """Perform a request; errors of the call are part of the answer.

    Raises `OSError` only if the rank's own memory cannot be used: then the kernel must have the call.
    """
    if request.how is None or not request.how[2]:
        for located in request.located.values():
            if located.has_failed:
                return Answer(errno=located.error)
    performer = _PERFORMERS.get(request.call.family, _generic)
    if request.call.family not in op_kinds.RESIZES:
        return performer(request)
    with _file_size(request.task.process.pid) as is_limited:
        answer = performer(request)
    if is_limited and answer.errno == errno.EFBIG and not proc.ignores(request.task.process.pid, signal.SIGXFSZ):
        raise CannotRun(
            f"rank {request.task.rank.number} reaches RLIMIT_FSIZE, and SIGXFSZ is not controlled: ignore the signal, "
            "as Python does"
        )
    return answer


@contextmanager
def _file_size(pid: int) -> Iterator[bool]:
    """Take over the limit of a process for the sizes of files; yields whether there is one."""
    theirs, ours = resource.prlimit(pid, resource.RLIMIT_FSIZE)[0], resource.getrlimit(resource.RLIMIT_FSIZE)
    if theirs in {resource.RLIM_INFINITY, ours[0]}:
        yield theirs != resource.RLIM_INFINITY
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (theirs if ours[1] < 0 else min(theirs, ours[1]), ours[1]))
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, ours)


def _symlink(request: Request) -> Answer:
    """Add the present offset."""
    target = _text(request.task.process.memory, request.raw(Role.TARGET))
    return replace(_generic(request), text=_shown(plain(target)))


def _generic(request: Request) -> Answer:
    """Perform any call, argument by argument as its signature says."""
    buffers: list[tuple[int, ctypes.Array[ctypes.c_char], Arg]] = []
    arguments: list[libc.Argument] = []
    for index, arg in enumerate(request.call.args):
        argument = _argument(request, index, arg)
        if isinstance(argument, ctypes.Array):
            buffers.append((index, argument, arg))
        arguments.append(argument)
    with _umask(request):
        value, error = libc.syscall(_number(request), *arguments)
    if error:
        return Answer(errno=error)
    for index, buffer, arg in buffers:
        length = value if arg.role is Role.OUTBUF and request.call.family != "stat" else len(buffer)
        request.task.process.memory.write(request.arguments[index], buffer.raw[:length])
    return Answer(value=value)


def _number(request: Request) -> int:
    number = syscalls.number(request.call.name, libc.MACHINE)
    assert number is not None
    return number


def _argument(request: Request, index: int, arg: Arg) -> libc.Argument:
    register, memory = request.arguments[index], request.task.process.memory
    if index in request.files:
        return request.files[index].descriptor
    if arg.role is Role.DIRFD:
        return AT_FDCWD
    if arg.role in (Role.PATH, Role.LINK):
        located = request.located.get(index)
        return os.fsencode(located.via) if located else (b"" if register else None)
    if register == 0 and arg.role not in (Role.INT, Role.LONG, Role.FLAGS, Role.FD, Role.IGNORED):
        return None
    if arg.role in (Role.TARGET, Role.STRING):
        return _text(memory, register)
    if arg.role is Role.IN:
        return memory.read(register, arg.size(libc.MACHINE))
    if arg.role is Role.OUT:
        return ctypes.create_string_buffer(arg.size(libc.MACHINE))
    if arg.role is Role.INBUF:
        return memory.read(register, _bounded(request.arguments[arg.length or 0]))
    if arg.role is Role.OUTBUF:
        length = request.number(request.call.args[arg.length or 0].name)
        return ctypes.create_string_buffer(min(length, _CHUNK) if length > 0 else _CHUNK) if length else None
    return register


def _text(memory: Memory, address: int) -> bytes:
    text = memory.string(address)
    if text is None:
        raise OSError(errno.ENAMETOOLONG, "longer than any path")
    return text


def _bounded(length: int) -> int:
    """Return a length that one of the kernel's own structures can have."""
    if length > _CHUNK:
        raise OSError(errno.E2BIG, "longer than any attribute")
    return length


@contextmanager
def _umask(request: Request) -> Iterator[None]:
    """Use the rank's umask while a call creates something.

    It is nearly always the same, and then left alone.
    """
    if request.call.family not in _MAKES_MODE:
        yield
        return
    theirs = int(proc.status(request.task.tid).get("Umask", "022"), 8)
    ours = os.umask(theirs)
    try:
        yield
    finally:
        os.umask(ours)


def _open(request: Request) -> Answer:
    located = next(iter(request.located.values()), None)
    if located is not None and (_is_elsewhere(located) or _may_wait(located.status)):
        return CARRY_ON
    if not request.task.process.descriptors.has_room():
        return Answer(errno=errno.EMFILE)
    flags, mode = _open_arguments(request)
    if flags & os.O_PATH and request.task.rank.mount is not None:  # the kernel would look on another disk
        flags = flags & ~os.O_PATH | os.O_DIRECTORY
    ours = flags | os.O_CLOEXEC | (os.O_NOCTTY if not flags & os.O_PATH else 0)
    with _umask(request):
        if request.how is not None:
            descriptor, error = _openat2(request, ours, mode, request.how[2])
        else:
            assert located is not None
            number = syscalls.number("openat", libc.MACHINE) or 0
            descriptor, error = libc.syscall(number, AT_FDCWD, os.fsencode(located.via), ours, mode)
    check_ours(error)
    if error:
        return Answer(errno=error)
    if flags & os.O_PATH:  # a listener cannot hand such a descriptor over
        os.close(descriptor)
        return CARRY_ON
    return Answer(opened=descriptor, close_on_exec=bool(flags & os.O_CLOEXEC))


def _is_elsewhere(located: Located) -> bool:
    """Return whether a watched link leads to a file outside, whose descriptor must not count as watched."""
    return located.shown is None and not located.crossed


def _may_wait(status: os.stat_result | None) -> bool:
    return status is not None and (stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode))


def _open_arguments(request: Request) -> tuple[int, int]:
    if request.how is not None:
        return request.how[0], request.how[1]
    mode = request.op.args.get("mode", 0) & 0o7777
    if request.call.name == "creat":  # the one call of its family without a register for flags
        return os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode
    flags = request.raw(Role.FLAGS) & 0xFFFFFFFF
    return flags, mode if flags & (os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY) else 0


def _openat2(request: Request, flags: int, mode: int, resolve: int) -> tuple[int, int]:
    """Open with resolve flags: the whole way matters then, so it starts where the rank's own path starts."""
    how = struct.pack("QQQ", flags, mode, resolve)
    if not resolve:
        return libc.syscall(_number(request), AT_FDCWD, os.fsencode(request.located[1].via), how, len(how))
    path = os.fsencode(request.view.own(os.fsdecode(request.paths[1])))
    try:
        handle = os.open(request.view.start(signed(request.arguments[0])), os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return -1, error.errno or errno.EBADF
    try:
        return libc.syscall(_number(request), handle, path, how, len(how))
    finally:
        os.close(handle)


def _rest(spans: list[tuple[int, int]], done: int) -> Iterator[tuple[int, int]]:
    """Yield the spans without their first ``done`` bytes."""
    for address, length in spans:
        skipped = min(done, length)
        done -= skipped
        yield address + skipped, length - skipped


def _spans(request: Request) -> list[tuple[int, int]]:
    """Return where in the rank's memory the bytes of a read or write are: (address, length) pairs."""
    role = request.call.args[1].role
    address, count = request.arguments[1], request.arguments[2]
    if role in (Role.INBUF, Role.OUTBUF):
        return [(address, count)]
    if not 0 <= count <= _IOV_MAX:
        raise OSError(errno.EINVAL, "too many buffers")
    raw = request.task.process.memory.read(address, 16 * count)
    return [struct.unpack_from("QQ", raw, 16 * each) for each in range(count)]


def wanted(request: Request) -> int:
    """Return how many bytes a read or write asks for."""
    try:
        return sum(length for _, length in _spans(request))
    except OSError:
        return 0


def extent(request: Request) -> tuple[int, int]:
    """Return where in its file a read, write, copy or allocation begins, and how many bytes it is about at most.

    Raises `OSError` if that cannot be told.
    """
    call, file, start = request.op.call, request.file, request.op.args.get("offset", -1)
    if call == "copy":
        source = next(index for index, arg in enumerate(request.call.args) if arg.name == "from")
        if source not in request.files:
            raise OSError(errno.EBADF, "copies from elsewhere")
        file, length = request.files[source], request.number("length")
        pointer = request.arguments[source + 1]
        start = int.from_bytes(request.task.process.memory.read(pointer, 8), "little") if pointer else -1
    else:
        length = request.number("length") if call == "allocate" else wanted(request)
    if start < 0:
        start = os.lseek(file.descriptor, 0, os.SEEK_CUR)
    if call in op_kinds.READS:
        length = min(length, file.status().st_size - start)
    return start, max(0, min(length, _LONG_MAX))


def _chunks(spans: list[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield the bytes in pieces, at least one, and no more than one call may move."""
    room = most
    for address, length in spans:
        for start in range(0, min(length, room), _CHUNK):
            yield address + start, min(_CHUNK, length - start, room - start)
        room -= min(length, room)
    if room == most:
        yield 0, 0


def _transfer(request: Request, move: Callable[[Memory, OpenFile, int, int, int], bytes]) -> Answer:
    """Read or write piece by piece, as one op; ``move`` does one piece and returns the bytes that it moved.

    The value of the answer counts all bytes of the call, the size those that move now.
    """
    file, offset = request.file, request.op.args.get("offset", -1)
    memory, digest, done, text = request.task.process.memory, Digest(), 0, b""
    positioned = "offset" in request.op.args and (offset != -1 or request.call.name not in {"preadv2", "pwritev2"})
    spans = _spans(request)
    if positioned and offset < 0:
        return Answer(errno=errno.EINVAL)
    if any(length > _LONG_MAX for _, length in spans):
        return Answer(errno=errno.EFAULT if request.call.args[1].role in (Role.INBUF, Role.OUTBUF) else errno.EINVAL)
    for address, length in _chunks([*_rest(spans, request.done)], request.most):
        try:
            moved = move(memory, file, address, length, offset + request.done + done if positioned else -1)
        except OSError as error:
            if done or request.done:
                break
            return Answer(errno=error.errno or errno.EIO)
        digest.update(moved)
        done += len(moved)
        text = moved if done == len(moved) else b""
        if len(moved) < length:
            break
    return Answer(value=request.done + done, size=done, digest=digest.hexdigest(), text=_shown(plain(text)))


def _shown(data: bytes) -> str:
    try:
        text = data.decode() if len(data) <= _SHORT else ""
    except UnicodeDecodeError:
        return ""
    return text if text.strip().isprintable() else ""


def _write(request: Request) -> Answer:
    flags = _rwf(request)

    def move(memory: Memory, file: OpenFile, address: int, length: int, offset: int) -> bytes:
        data = memory.part(address, length)
        with _buffer(data, file) as buffer:
            if flags or offset >= 0:
                done = os.pwritev(file.descriptor, [buffer], offset, flags)
            else:
                done = os.write(file.descriptor, buffer)
        return _or_fault(data[:done], length)

    answer = _transfer(request, move)
    if answer.errno or request.op.args.get("offset", -1) >= 0:
        return answer
    with suppress(OSError):  # a pipe has no offset
        return replace(answer, end=os.lseek(request.file.descriptor, 0, os.SEEK_CUR))
    return answer


def _read(request: Request) -> Answer:
    flags = _rwf(request)

    def move(memory: Memory, file: OpenFile, address: int, length: int, offset: int) -> bytes:
        with _buffer(bytes(length), file) as buffer:
            if flags or offset >= 0:
                done = os.preadv(file.descriptor, [buffer], offset, flags)
            else:
                done = os.readv(file.descriptor, [buffer])
            data = bytes(buffer[:done])
        stored = memory.fill(address, data)
        if stored < done and offset < 0:
            os.lseek(file.descriptor, stored - done, os.SEEK_CUR)
        return _or_fault(data[:stored], done)

    return _transfer(request, move)


def _or_fault(moved: bytes, wanted: int) -> bytes:
    """Return the error when nothing moved although something could: the rank's memory does not exist."""
    if wanted and not moved:
        raise OSError(errno.EFAULT, "bad address")
    return moved


def _rwf(request: Request) -> int:
    return request.raw(Role.FLAGS) & 0xFFFFFFFF if request.call.name in {"preadv2", "pwritev2"} else 0


@contextmanager
def _buffer(data: bytes, file: OpenFile) -> Iterator[memoryview]:
    """Provide ``data`` in memory that can be read into, at a page boundary where O_DIRECT needs one."""
    if not data or not fcntl.fcntl(file.descriptor, fcntl.F_GETFL) & os.O_DIRECT:
        yield memoryview(bytearray(data))
        return
    with mmap.mmap(-1, len(data)) as room:
        room[:] = data
        with memoryview(room) as view:
            yield view


SORTED = "listings are sorted: other orders of directory entries were not tried"
"""The note of a run in which a listing had several entries."""


_DOTS = 2
"""How many entries a listing has before those of files."""


def _list(request: Request) -> Answer:
    """Answer with a directory's entries, in the order of their names.

    Each call reads those that come after the last one it has answered with: a long listing takes several calls, and
    between them the directory may change (getdents64(2)).  After the end no more come.
    """
    if request.call.name != "getdents64":
        return CARRY_ON
    file, room = request.file, request.number("length") & 0x7FFFFFFF
    try:
        _check_directory(file)
        if file.listing is None:
            file.listing = list(_entries(file, request.task.rank.names))
        elif _DOTS < file.position < len(file.listing) and not file.keeps_listing:
            file.listing[file.position :] = _entries(file, request.task.rank.names, file.listing[: file.position])
    except OSError as error:
        return Answer(errno=error.errno or errno.EIO)
    start, records = file.position, list[bytes]()
    for record in file.listing[start:]:
        room -= len(record)
        if room < 0:
            break
        records.append(record)
    if not records and start < len(file.listing):
        return Answer(errno=errno.EINVAL)
    stored = request.task.process.memory.fill(request.raw(Role.OUTBUF), b"".join(records))
    while sum(map(len, records)) > stored:
        records.pop()
    if not records and start < len(file.listing):
        return Answer(errno=errno.EFAULT)
    file.position += len(records)
    return Answer(value=sum(map(len, records)), size=len(records) - max(0, min(len(records), _DOTS - start)))


def _check_directory(file: OpenFile) -> None:
    """Raise `OSError` for a file that is no directory, or a directory that has been removed."""
    status = file.status()
    if fcntl.fcntl(file.descriptor, fcntl.F_GETFL) & os.O_PATH:
        raise OSError(errno.EBADF, "not open")
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, "not a directory")
    if status.st_nlink == 0:
        raise OSError(errno.ENOENT, "the directory was removed")


def _entries(file: OpenFile, names: Names, before: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Return ``struct linux_dirent64`` records (getdents64(2)), those that come after ``before``.

    Their order is that of the names as they are shown, which is the same in every run; the offset of each is its
    number.
    """
    path = f"/proc/self/fd/{file.descriptor}"
    given = {_name(each) for each in before}
    last = _key(_name(before[-1]), names) if before else b""
    with os.scandir(path) as found:
        left = (each for each in found if each.name not in given and _key(each.name, names) >= last)
        listed = sorted(left, key=lambda each: _key(each.name, names))
        entries = [(os.fsencode(each.name), each.inode(), _type(each)) for each in listed]
    here, above = os.stat(f"{path}/."), os.stat(f"{path}/..")
    dots = [(b".", here.st_ino, stat.S_IFDIR >> 12), (b"..", above.st_ino, stat.S_IFDIR >> 12)]
    for number, (name, inode, kind) in enumerate(entries if before else [*dots, *entries], start=len(before) + 1):
        length = (19 + len(name) + 1 + 7) // 8 * 8
        yield struct.pack("=QqHB", inode, number, length, kind) + name.ljust(length - 19, b"\0")


def _key(name: str, names: Names) -> bytes:
    return os.fsencode(names.show(name))


def _name(record: bytes) -> str:
    """Return the name in a record."""
    return os.fsdecode(record[19:].rstrip(b"\0"))


def _type(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK >> 12
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR >> 12
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG >> 12
    return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12


def _seek(request: Request) -> Answer:
    """Seek.  In a directory the offset counts entries of our listing; a seek to the start forgets the listing."""
    file, offset = request.file, request.number("offset")
    whence = request.raw(Role.FLAGS) & 0xFFFFFFFF
    if stat.S_ISDIR(os.fstat(file.descriptor).st_mode):
        if whence == os.SEEK_CUR and offset == 0:
            return Answer(value=file.position)
        if whence != os.SEEK_SET or offset < 0:
            return Answer(errno=errno.EINVAL)
        file.position = offset
        if offset == 0:
            file.listing = None
        return Answer(value=offset)
    return _generic(request)


def _copy(request: Request) -> Answer:
    """Perform ``copy_file_range`` or ``sendfile``: the target has to be a file of ours."""
    ends = {arg.name: index for index, arg in enumerate(request.call.args) if arg.role is Role.FD}
    if request.call.name not in {"copy_file_range", "sendfile"} or ends["to"] not in request.files:
        return CARRY_ON
    if ends["from"] in request.files:
        return _copied(request, ends["from"], request.files[ends["from"]].descriptor)
    try:
        source = request.task.process.descriptors.fetch(signed(request.arguments[ends["from"]]))
    except OSError:
        return CARRY_ON
    try:
        return _copied(request, ends["from"], source) if stat.S_ISREG(os.fstat(source).st_mode) else CARRY_ON
    finally:
        os.close(source)


def _copied(request: Request, index: int, source: int) -> Answer:
    """Copy; ``source`` stands for the descriptor that is argument number ``index``."""
    memory = request.task.process.memory
    arguments: list[libc.Argument] = []
    offsets: list[tuple[int, ctypes.Array[ctypes.c_char]]] = []
    for place, arg in enumerate(request.call.args):
        register = request.arguments[place]
        if arg.role is Role.FD:
            arguments.append(source if place == index else request.files[place].descriptor)
        elif arg.role is Role.INOUT and register:
            buffer = ctypes.create_string_buffer(memory.read(register, 8), 8)
            offsets.append((register, buffer))
            arguments.append(buffer)
        elif arg.name == "length" and (request.done or request.most < register):
            arguments.append(min(register - request.done, request.most))
        else:
            arguments.append(register)
    value, error = libc.syscall(_number(request), *arguments)
    if error and request.done:
        return Answer(value=request.done)
    if error:
        return Answer(errno=error)
    for register, buffer in offsets:
        memory.write(register, buffer.raw)
    return Answer(value=request.done + value, size=value)


def _sync(request: Request) -> Answer:
    """Answer sync: nothing here outlives the run, and writing back the whole machine's caches would only take time."""
    if not request.files:
        return CARRY_ON
    is_path = fcntl.fcntl(request.file.descriptor, fcntl.F_GETFL) & os.O_PATH
    return Answer(errno=errno.EBADF if is_path else 0)


_PERFORMERS: dict[str, Callable[[Request], Answer]] = {
    "open": _open,
    "read": _read,
    "write": _write,
    "list": _list,
    "seek": _seek,
    "copy": _copy,
    "symlink": _symlink,
    "sync": _sync,
}
"""The calls that need more than their signature says, by family."""


def creates(request: Request) -> bool:
    """Return whether the call makes a new object where none was."""
    if request.call.family not in _CREATING:
        return False
    located = list(request.located.values())[-1:]
    return "O_TMPFILE" in request.flags or all(each.status is None for each in located)
