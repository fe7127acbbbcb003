"""Files of torch.save and safetensors, read without running anything in them."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from racecheck.agent.contents.dcp_metadata import Chunk, Unreadable
from racecheck.invariants.checkpoints import FOREIGN, TOO_LARGE, UNSUPPORTED

LARGEST = 256 << 20
"""The most bytes that are read of a file, or of a piece of one."""

_ZIP = b"PK\x03\x04"
_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How a file of torch.save began before it was a zip archive: the pickle of a fixed number."""
_ZIP_HEADER = struct.Struct("<26xH2x")
_REFUSAL = re.compile(r"GLOBAL ([\w.]+)")
_LINE = 400

_TYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, known)
    for name, known in {
        "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
        "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
        "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    }.items()
    if hasattr(torch, known)
}  # fmt: skip


def too_large(size: int) -> str:
    """Return the problem of a file, or a piece of one, of this size."""
    return f"it has {size} bytes, {TOO_LARGE}"


def one_line(error: BaseException) -> str:
    """Return an error in one plain line."""
    return plain(str(error)) or type(error).__name__


def plain(text: str) -> str:
    """Return ``text`` as one line of printable characters of limited length."""
    words = " ".join(text[:_LINE].split())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in words)


# torch.save.


_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError, ValueError)
"""The errors of zipfile, depending on which bytes of an archive are wrong."""


def load_torch(data: bytes) -> Any:
    """Return the object that torch.save has written; raises `Unreadable`."""
    if data.startswith(_ZIP):
        _check_archive(data)
    elif not data.startswith(_LEGACY):
        if _ZIP.startswith(data) or _LEGACY.startswith(data):
            raise Unreadable(f"truncated: only {len(data)} bytes are there")
        raise Unreadable("not a torch.save file")
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_plain_arrays()):
            warnings.simplefilter("ignore")
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 (what a damaged pickle makes torch raise is not documented)
        raise Unreadable(_torch_problem(error, data)) from None


def _plain_arrays() -> list[Any]:
    """Return the classes that numpy arrays are made of, such as saved states of random generators."""
    types = [each for each in vars(np.dtypes).values() if _is_type(each, np.dtype)]
    rebuild = [each.__reduce__()[0] for each in (np.zeros(1), np.float64(1))]
    return [*rebuild, np.ndarray, np.dtype, *types]


def _is_type(found: Any, base: type) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def _check_archive(data: bytes) -> None:
    """Raise `Unreadable` for an archive that is cut, too large, or whose checksums do not fit.

    torch does not look at the checksums: of a file whose blocks never reached the disk it loads zeros.  Where no
    checksum at all is right none was kept (`torch.serialization.set_crc32_options`).
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > LARGEST:
                raise Unreadable(too_large(sum(entry.file_size for entry in entries)))
            wrong = [entry.filename for entry in entries if not _is_intact(archive, entry)]
    except zipfile.BadZipFile as error:
        raise Unreadable(f"truncated: {len(data)} bytes are there ({one_line(error)})") from None
    except _DAMAGED as error:
        raise Unreadable(f"its archive is damaged: {one_line(error)}") from None
    if wrong and len(wrong) < len(entries):
        raise Unreadable(f"{wrong[0].partition('/')[2]} in it has other bytes than were written (wrong checksum)")


def _is_intact(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    try:
        archive.read(entry)
    except _DAMAGED:
        return False
    return True


def _torch_problem(error: Exception, data: bytes) -> str:
    text = one_line(error)
    refused = _REFUSAL.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if refused:
        is_cut = data.startswith(_LEGACY) and b"\n%s\n" % refused[1].rpartition(".")[2].encode() not in data
        return f"truncated: {text}" if is_cut else f"holds {refused[1]}, {FOREIGN}"
    if isinstance(error, (RecursionError, MemoryError)):
        return "it would take too much memory"
    cut = isinstance(error, EOFError) or "unexpected EOF" in text or "Ran out of input" in text
    return f"truncated: {text}" if cut else f"cannot be loaded: {text}"


def begins_as_torch(data: bytes) -> bool:
    """Return whether these bytes begin a file of torch.save: the first entry of its archive is the pickle."""
    if data.startswith(_ZIP) and len(data) >= _ZIP_HEADER.size:
        (length,) = _ZIP_HEADER.unpack_from(data)
        return data[_ZIP_HEADER.size : _ZIP_HEADER.size + length].endswith(b"/data.pkl")
    return data.startswith(_LEGACY)


# safetensors.


def load_safetensors(data: bytes) -> dict[str, torch.Tensor]:
    """Return a safetensors file's tensors: the length of a JSON header, the header, the bytes; raises `Unreadable`."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or (len(data) < 8 + length and data[8:9] in {b"{", b""}):
        raise Unreadable(f"truncated: only {len(data)} bytes are there")
    try:
        header = json.loads(data[8 : 8 + length])
        spans = {name: _span(each) for name, each in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise Unreadable("not a safetensors file: unreadable header") from None
    body = memoryview(data)[8 + length :]
    end = max((end for _, _, _, end in spans.values()), default=0)
    if end > len(body):
        raise Unreadable(f"truncated: {len(body)} of {end} bytes of tensors are there")
    if end < len(body):
        raise Unreadable(f"not a safetensors file: {len(body) - end} bytes at its end belong to no tensor")
    return {name: _view(body, *span) for name, span in spans.items()}


def _span(about: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """Return type, shape and place of a tensor; raises `Unreadable`, or another error for an invalid header."""
    if about["dtype"] not in _TYPES:
        raise Unreadable(f"it has tensors of type {about['dtype']}; {UNSUPPORTED}")
    kind, shape = _TYPES[about["dtype"]], tuple(map(int, about["shape"]))
    start, end = map(int, about["data_offsets"])
    if min((0, start, *shape)) < 0 or end - start != Chunk((), shape).elements * kind.itemsize:
        raise ValueError("length and shape disagree")
    return kind, shape, start, end


def _view(body: memoryview, kind: torch.dtype, shape: tuple[int, ...], start: int, end: int) -> torch.Tensor:
    if start == end:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(body[start:end]), dtype=kind).reshape(shape)
