"""Read the files of a checkpoint: whether they are whole, and which weights they hold.

The files are those of code under test, damaged or foreign: they are read without running anything in them, and all that
is wrong with one becomes its problem.  Runs in a process of its own, for it imports torch.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO

import torch

from racecheck.agent.contents import dcp_metadata, formats, weight_digests
from racecheck.agent.contents.dcp_metadata import Chunk, Item, Metadata, Tensor, Unreadable
from racecheck.invariants.checkpoints import UNSUPPORTED
from racecheck.model.nouns import Content, Piece

_METADATA = re.compile(r"(__\d+)?\.metadata")
_SHARD = re.compile(r"__.*_.*\.distcp")
_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_MOST_CHUNKS, _SHOWN = 500, 5


def read(root: str, kept: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Read all checkpoint files below a directory; returns, by path relative to it, JSON data of a `Content` each.

    These are the metadata of DCP, files of torch.save and of safetensors, known by their names or by how they begin.
    Shards of DCP are read as their metadata says, not by themselves.  Symbolic links are followed to files below
    ``root`` only, and its entries ``kept`` are left out.
    """
    top = Path(root).resolve()
    found: dict[str, dict[str, Any]] = {}
    for path in _files(top, kept):
        content = _content(top, path)
        if content is not None:
            found[_relative(top, path)] = json.loads(json.dumps(asdict(content)))
    return found


def _files(directory: Path, kept: Collection[str] = ()) -> Iterator[Path]:
    """Yield everything below a directory except directories, in order of paths; follow no link to a directory."""
    try:
        found = [entry for entry in os.scandir(directory) if entry.name not in kept]
        entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = directory / entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _files(path)
        elif not entry.is_symlink() or not path.is_dir():
            yield path


def _relative(top: Path, path: Path) -> str:
    return os.path.relpath(path, top)


def _content(top: Path, path: Path) -> Content | None:
    """Return a file's content; None for a file that belongs to no checkpoint."""
    try:
        if _METADATA.fullmatch(path.name):
            return _of_metadata(top, path)
        if path.suffix == ".safetensors":
            return Content("safetensors", tensors=weight_digests.digests(formats.load_safetensors(_bytes(top, path))))
        if _is_torch(top, path):
            return Content("torch", tensors=weight_digests.digests(formats.load_torch(_bytes(top, path))))
    except Unreadable as problem:
        return Content(_format(path), problem=formats.plain(str(problem)))
    return None


def _format(path: Path) -> Any:
    if _METADATA.fullmatch(path.name):
        return "dcp-metadata"
    return "safetensors" if path.suffix == ".safetensors" else "torch"


def _is_torch(top: Path, path: Path) -> bool:
    if path.suffix in _TORCH:
        return True
    if _SHARD.fullmatch(path.name):
        return False
    try:
        with _open(top, path) as file:
            return formats.begins_as_torch(file.read(1024))
    except Unreadable:
        return False


# Files.


@contextmanager
def _open(top: Path, path: Path) -> Iterator[BinaryIO]:
    """Open a regular file below the watched directory; raises `Unreadable`."""
    with os.fdopen(_descriptor(top, path), "rb") as file:
        yield file


def _descriptor(top: Path, path: Path) -> int:
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(top):
            raise Unreadable(f"it points outside the watched directory; {UNSUPPORTED}")
        if real.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Unreadable("is missing") from None
    except (OSError, RuntimeError) as error:
        raise Unreadable(f"it cannot be opened: {getattr(error, 'strerror', '') or formats.one_line(error)}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("not a file")
    return descriptor


def _bytes(top: Path, path: Path) -> bytes:
    """Return the whole of a file; raises `Unreadable`, also for an empty one."""
    with _open(top, path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > formats.LARGEST:
            raise Unreadable(formats.too_large(size))
        data = file.read()
    if not data:
        raise Unreadable("it is empty")
    return data


# DCP.


def _of_metadata(top: Path, path: Path) -> Content:
    found = dcp_metadata.parse(_bytes(top, path))
    pieces = tuple(sorted((_piece(top, path.parent, found, item) for item in found.items), key=_order))
    problems = [*_unstored(found), *(text for name, each in found.tensors.items() for text in _gaps(name, each))]
    return Content("dcp-metadata", formats.plain("; ".join(problems[:_SHOWN])), pieces)


def _order(piece: Piece) -> tuple[Any, ...]:
    return piece.name, piece.start, piece.file, piece.offset


def _unstored(found: Metadata) -> Iterator[str]:
    """Return the items that the metadata describes without a location."""
    stored = {(item.name, item.start) for item in found.items}
    names = {item.name for item in found.items}
    for name, tensor in found.tensors.items():
        for chunk in tensor.chunks:
            if (name, chunk.start) not in stored and not (len(tensor.chunks) == 1 and name in names):
                yield f"tensor {name}: the metadata does not locate the chunk at {chunk.start}"
    for name in sorted(found.objects - names):
        yield f"object {name}: the metadata does not locate it"


def _gaps(name: str, tensor: Tensor) -> Iterator[str]:
    """Return why the chunks do not make up the tensor."""
    for chunk in tensor.chunks:
        ends = [start + size for start, size in zip(chunk.start, chunk.sizes, strict=True)]
        if any(end > side for end, side in zip(ends, tensor.shape, strict=True)):
            yield f"tensor {name}: the chunk at {chunk.start} goes beyond its shape {tensor.shape}"
            return
    for one, other in combinations(tensor.chunks[:_MOST_CHUNKS], 2):
        if one.overlaps(other):
            yield f"tensor {name}: the chunks at {one.start} and {other.start} overlap"
            return
    covered, whole = sum(chunk.elements for chunk in tensor.chunks), Chunk((), tensor.shape).elements
    if covered != whole:
        what = "elements are missing" if covered < whole else "there are too many elements"
        yield f"tensor {name}: {what}: chunks cover {covered} of {whole}"


def _piece(top: Path, directory: Path, found: Metadata, item: Item) -> Piece:
    """Read one storage item."""
    tensor, chunk = found.tensors.get(item.name), _chunk(found, item)
    digest, problem = "", ""
    try:
        if tensor is None and item.name not in found.objects:
            raise Unreadable("the metadata does not say what it is")
        if tensor is not None and chunk is None:
            raise Unreadable(f"the metadata has no chunk at {item.start}")
        loaded = _load(top, directory / item.file, item)
        if tensor is not None and chunk is not None:
            _check(loaded, tensor, chunk)
        digest = weight_digests.digest_of(loaded)
    except Unreadable as reason:
        problem = _about(item.file, str(reason))
    return Piece(
        name=item.name,
        file=os.path.relpath(os.path.normpath(directory / item.file), top),
        offset=item.offset,
        length=item.length,
        shape=tensor.shape if tensor else (),
        start=chunk.start if chunk else (),
        sizes=chunk.sizes if chunk else (),
        digest=digest,
        problem=problem,
    )


def _about(file: str, problem: str) -> str:
    return formats.plain(f"{file} is missing" if problem == "is missing" else f"{file}: {problem}")


def _chunk(found: Metadata, item: Item) -> Chunk | None:
    """Return the chunk that an item stores."""
    tensor = found.tensors.get(item.name)
    if tensor is None:
        return None
    if item.start is None:
        return tensor.chunks[0] if len(tensor.chunks) == 1 else None
    return next((chunk for chunk in tensor.chunks if chunk.start == item.start), None)


def _load(top: Path, path: Path, item: Item) -> Any:
    """Return the value of an item; raises `Unreadable`."""
    if item.extensions:
        raise Unreadable(f"it went through {', '.join(item.extensions)}; {UNSUPPORTED}")
    if item.length > formats.LARGEST:
        raise Unreadable(formats.too_large(item.length))
    with _open(top, path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(9)
        if begin[8:] == b"{":  # written with SerializationFormat.SAFETENSORS: its offsets are not file offsets
            return _by_name(_bytes(top, path), item.name)
        if item.offset + item.length > size:
            there = max(0, size - item.offset)
            raise Unreadable(f"truncated: {there} of the {item.length} bytes at {item.offset} are present")
        file.seek(item.offset)
        return formats.load_torch(file.read(item.length))


def _by_name(data: bytes, name: str) -> torch.Tensor:
    found = formats.load_safetensors(data)
    if name not in found:
        raise Unreadable(f"it has no tensor {name}")
    return found[name]


def _check(loaded: Any, tensor: Tensor, chunk: Chunk) -> None:
    """Raise `Unreadable` if an item is not the chunk that the metadata promises."""
    if not isinstance(loaded, torch.Tensor):
        raise Unreadable(f"it holds {type(loaded).__name__}, not a tensor")
    if tuple(loaded.shape) != chunk.sizes:
        raise Unreadable(f"it holds a tensor of shape {tuple(loaded.shape)}, not {chunk.sizes}")
    if tensor.type and str(loaded.dtype) != tensor.type:
        raise Unreadable(f"it holds a tensor of {loaded.dtype}, not {tensor.type}")
