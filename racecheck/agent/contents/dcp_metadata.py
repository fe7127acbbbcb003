"""Reading the metadata of a DCP checkpoint, which is a pickle, without running anything that is in it.

In place of the few classes that it is made of come inert ones that only keep what the pickle passes to them, and every
other name is refused.  The unpickler is the one written in Python: that in C sets aside memory for whatever index of
its memo a pickle names.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pickle import _Unpickler
from typing import Any, ClassVar

from racecheck.invariants.checkpoints import FOREIGN

_OLD = "torch.distributed._shard.sharded_tensor.metadata"
_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
    _OLD: {"MEM_FORMAT_ENCODING", "TensorProperties"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "collections": {"OrderedDict"},
}  # fmt: skip
_TYPES = frozenset({
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "bfloat16", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
})  # fmt: skip


class Unreadable(Exception):
    """An invalid file; the text is a `Content`'s or `Piece`'s problem."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a tensor: where it begins, and how far it goes."""

    start: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    def overlaps(self, other: Chunk) -> bool:
        sides = zip(self.start, self.sizes, other.start, other.sizes, strict=True)
        return all(max(one, two) < min(one + width, two + height) for one, width, two, height in sides)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as the metadata describes it; ``type`` is "torch.float32"."""

    shape: tuple[int, ...]
    type: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """Where a chunk (the one that begins at ``start``) or an object is stored.

    ``extensions`` name what its bytes have gone through (compression).
    """

    name: str
    start: tuple[int, ...] | None
    file: str
    offset: int
    length: int
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The promises of a checkpoint: tensors, objects (pickled one by one), and where they are."""

    tensors: Mapping[str, Tensor]
    objects: frozenset[str]
    items: tuple[Item, ...]


def parse(data: bytes) -> Metadata:
    """Read the bytes of a file ``.metadata``; raises `Unreadable`."""
    try:
        found = _StrictUnpickler(io.BytesIO(data)).load()
        return _metadata(found)
    except Unreadable:
        raise
    except (EOFError, pickle.UnpicklingError) as error:
        raise Unreadable(_ended(data) or f"not DCP metadata: {error}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("not DCP metadata: it would take too much memory") from None
    except Exception as error:  # noqa: BLE001 (pickle's documentation names no end of what a damaged one may raise)
        raise Unreadable(_ended(data) or f"not DCP metadata: {type(error).__name__}: {error}") from None


def _ended(data: bytes) -> str:
    """Return whether this looks like a pickle: it begins with its protocol and ends with a full stop."""
    is_cut = data[:1] == pickle.PROTO and data[-1:] != pickle.STOP
    return f"truncated: only {len(data)} bytes are there" if is_cut else ""


# What the pickle makes.


class _Record:
    """Stands in for an object: keeps its arguments (``args``) and its ``state``."""

    args: tuple[object, ...] = ()
    state: object = None

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Dict(dict[Any, Any]):
    """Stands in for an OrderedDict, which begins empty."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        raise Unreadable("not DCP metadata: a dict with attributes")


def _stand_ins() -> Iterator[tuple[tuple[str, str], type[Any]]]:
    for module, names in _CLASSES.items():
        for name in names:
            yield (module, name), type(name, (_Dict if name == "OrderedDict" else _Record,), {})


_STAND_INS = dict(_stand_ins())
_ENUMERATIONS = [each for (_, name), each in _STAND_INS.items() if name.endswith("MEM_FORMAT_ENCODING")]


def _member(kind: object, name: object) -> object:
    """Stand in for `getattr`, by which early releases of Python 3.11 pickle a member of an enumeration."""
    for each in _ENUMERATIONS:
        if kind is each:
            return each(name)
    raise Unreadable(f"holds builtins.getattr, {FOREIGN}")


_LOADERS: Mapping[int, Any] = _Unpickler.dispatch
_KEYS = (str, int, _Record)
_REFUSED = (
    pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.DICT, pickle.INST, pickle.OBJ, pickle.EXT1, pickle.EXT2,
    pickle.EXT4, pickle.PERSID, pickle.BINPERSID, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
)  # fmt: skip
"""Opcodes that no DCP metadata has.  (Those that make a key or a member of something would hash it: see `_Reader`.)"""


class _StrictUnpickler(_Unpickler):
    """Refuse keys that are not plain: to hash a million tuples, each in the next, would overflow the stack."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in _LOADERS.items() if bytes([code]) not in _REFUSED
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _TYPES:
            return f"torch.{name}"
        if (module, name) == ("builtins", "getattr"):
            return _member
        if (module, name) not in _STAND_INS:
            raise Unreadable(f"holds {module}.{name}, {FOREIGN}")
        return _STAND_INS[module, name]

    def _set_item(self) -> None:
        _check_keys(vars(self)["stack"][-2:-1])
        _LOADERS[pickle.SETITEM[0]](self)

    def _set_items(self) -> None:
        _check_keys(vars(self)["stack"][::2])
        _LOADERS[pickle.SETITEMS[0]](self)

    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items


def _check_keys(keys: Sequence[object]) -> None:
    if not all(isinstance(key, _KEYS) for key in keys):
        raise Unreadable("not DCP metadata: a key is neither a name nor an index")


# What that means.


def _metadata(found: object) -> Metadata:
    state = _fields(found, "Metadata")
    described = _expect(state.get("state_dict_metadata"), dict)
    stored = _expect(state.get("storage_data") or {}, dict)
    tensors = {
        _expect(name, str): _tensor(each) for name, each in described.items() if not _is(each, "BytesStorageMetadata")
    }
    items = tuple(_item(index, info) for index, info in stored.items())
    return Metadata(tensors, frozenset(_expect(name, str) for name in described if name not in tensors), items)


def _tensor(found: object) -> Tensor:
    state = _fields(found, "TensorStorageMetadata")
    chunks = [_fields(each, "ChunkStorageMetadata") for each in _expect(state.get("chunks"), list)]
    shape = _sizes(state.get("size"))
    parts = tuple(Chunk(_sizes(each.get("offsets")), _sizes(each.get("sizes"))) for each in chunks)
    if any(len(part.start) != len(shape) or len(part.sizes) != len(shape) for part in parts):
        raise Unreadable("not DCP metadata: a chunk and its tensor have different numbers of dimensions")
    return Tensor(shape, _type(state.get("properties")), parts)


def _type(properties: object) -> str:
    state = getattr(properties, "state", None)
    first = state[0] if isinstance(state, tuple) and state else ""
    return first if isinstance(first, str) else ""


def _item(index: object, info: object) -> Item:
    key, value = _fields(index, "MetadataIndex"), _fields(info, "_StorageInfo")
    start = key.get("offset")
    return Item(
        name=_expect(key.get("fqn"), str),
        start=None if start is None else _sizes(start),
        file=_expect(value.get("relative_path"), str),
        offset=_natural(value.get("offset")),
        length=_natural(value.get("length")),
        extensions=tuple(_expect(each, str) for each in _sequence(value.get("transform_descriptors") or ())),
    )


def _is(found: object, name: str) -> bool:
    return isinstance(found, _Record) and type(found).__name__ == name


def _fields(found: object, name: str) -> dict[str, Any]:
    """Return the attributes of an object of the class ``name``."""
    if not _is(found, name):
        raise Unreadable(f"not DCP metadata: {type(found).__name__} instead of {name}")
    assert isinstance(found, _Record)
    fields: dict[str, Any] = _expect(found.state or {}, dict)
    return fields


def _expect(found: object, kind: type[Any]) -> Any:
    if not isinstance(found, kind):
        raise Unreadable(f"not DCP metadata: {type(found).__name__} instead of {kind.__name__}")
    return found


def _sequence(found: object) -> Sequence[object]:
    return _expect(list(found) if isinstance(found, (list, tuple)) else found, list)  # type: ignore[no-any-return]


def _sizes(found: object) -> tuple[int, ...]:
    """Return the numbers of a torch.Size."""
    inner = found.args[0] if _is(found, "Size") and isinstance(found, _Record) and found.args else found
    return tuple(_natural(each) for each in _sequence(inner))


def _natural(found: object) -> int:
    if not isinstance(found, int) or not 0 <= found < 1 << 63:
        raise Unreadable("not DCP metadata: no number instead of a length")
    return int(found)
