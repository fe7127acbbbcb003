"""The parts of a checkpoint file at which a flipped bit shows if anybody looks: tensors, headers, names, numbers.

Few and representative: of many tensors the first, the largest and the last.  Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress

_ZIP, _ARRAY = b"PK\x03\x04", b"\x93NUMPY"
_LOCAL = struct.Struct("<26xHH")
"""The lengths of the name and of the extra field in a local header of a zip archive (APPNOTE.TXT, 4.3.7)."""
_TEXT_BYTES = 1 << 20
"""A longer file is not taken for text."""
_DIGITS = re.compile(rb"\d")

BytePlace = tuple[int, str]
"""The offset of a byte, and the name of the part that it belongs to."""


def parts(path: str, data: bytes) -> list[BytePlace]:
    """Return bytes to damage in a file with these bytes, in the order of their offsets, each offset once."""
    if not data:
        return []
    found: dict[int, str] = {}
    known = [each for each in _known(path, data) if 0 <= each[0] < len(data)]  # a header may promise more than there is
    for offset, name in known or _spread(data):
        found.setdefault(offset, name)
    return sorted(found.items())


def _known(path: str, data: bytes) -> list[BytePlace]:
    if data.startswith(_ZIP):
        with suppress(zipfile.BadZipFile, struct.error):
            return [*_of_archive(data)]
    if data.startswith(_ARRAY):
        return [*_of_array(data)]
    if path.endswith(".safetensors"):
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            return [*_of_safetensors(data)]
    return [*_of_text(data)]


def _of_archive(data: bytes) -> Iterator[BytePlace]:
    """Yield parts of an archive: of tensors and the pickle by torch.save, or of any entries; of the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        tensors, others = [], []
        for each in archive.infolist():
            name, extra = _LOCAL.unpack_from(data, each.header_offset)
            start = each.header_offset + _LOCAL.size + name + extra
            if re.search(r"/data/\d+$", each.filename):
                tensors.append((start, each.file_size, each.filename))
            else:
                others.append((start, each.file_size, each.filename))
        pickles = [each for each in others if each[2].endswith("data.pkl")]
        for start, size, name in [*pickles, *_chosen(tensors)] if tensors else _chosen(others):
            yield start + size // 2, name
        yield archive.start_dir + len(data[archive.start_dir :]) // 2, "the archive's directory"


def _of_safetensors(data: bytes) -> Iterator[BytePlace]:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    yield 8 + length // 2, "the header"
    tensors = []
    for name, each in header.items():
        if name != "__metadata__":
            start, end = each["data_offsets"]
            tensors.append((8 + length + start, end - start, name))
    for start, size, name in _chosen(sorted(tensors)):
        yield start + size // 2, name


def _of_array(data: bytes) -> Iterator[BytePlace]:
    """Yield a byte of the header and one of the numbers of an array by numpy.save (NEP 1)."""
    begin = len(_ARRAY) + (6 if data[len(_ARRAY) :][:1] > b"\1" else 4)  # the version, and a length of 4 or 2 bytes
    if len(data) <= begin:
        return
    end = min(len(data), begin + int.from_bytes(data[len(_ARRAY) + 2 : begin], "little"))
    yield (begin + end) // 2, "the header"
    if end < len(data):
        yield (end + len(data)) // 2, "the numbers"


def _of_text(data: bytes) -> Iterator[BytePlace]:
    """Yield the first, the middle and the last digit of a text, in which another one may go unnoticed."""
    try:
        text = len(data) < _TEXT_BYTES and b"\0" not in data and data.decode()
    except UnicodeDecodeError:
        return
    places = [each.start() for each in _DIGITS.finditer(data)] if text else []
    for place in dict.fromkeys((places[0], places[len(places) // 2], places[-1])) if places else ():
        yield place, f"the digit {data[place : place + 1].decode()}"


def _spread(data: bytes) -> Iterator[BytePlace]:
    for number in (4, 8, 12, 15):
        yield min(len(data) - 1, len(data) * number // 16), ""


def _chosen(tensors: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return the first, the largest and the last tensor, without empty tensors."""
    there = [each for each in tensors if each[1]]
    return [*dict.fromkeys((there[0], max(there, key=lambda each: each[1]), there[-1]))] if there else []
