"""Digests of weights, to compare a saved state with a loaded one without keeping either.

Runs in ranks, and in the process that reads checkpoint files; nothing else imports it, for it imports torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from racecheck.model.training_parts import OPAQUE

PART = " at "
"""Stands before the part of a tensor that is spread over ranks, in its name."""
_DIGITS = 16
_BLOCKS, _BLOCK_DIGITS = 8, 6


def digests(state: Any) -> dict[str, str]:
    """Return the digest of each leaf of a nested state, by its name: keys and indices joined with dots.

    Dicts, lists and tuples are gone into, and an object with a method ``state_dict`` counts as what that returns.  Two
    digests of tensors are equal exactly when type, shape and bytes are; of a number, a text, a bool or None its JSON
    counts.  Other leaves are left out.  That of a tensor of several rows goes on with the number of rows, and digests
    of up to eight blocks of rows: "16 digits:rows:6 digits for each block".

    Of a tensor that is spread over ranks (DTensor, ShardedTensor) the whole counts, which takes a collective: so all
    ranks of its mesh have to call this, with the same names.
    """
    found: dict[str, str] = {}
    for name, leaf in _leaves(state, ""):
        digest = _digest(leaf)
        if digest:
            found[_unused(name, found)] = digest
    return found


def all_digests(state: Any) -> dict[str, str]:
    """Return the digests as `digests` does, also of bytes and numpy arrays; those of other leaves name their type."""
    found: dict[str, str] = {}
    for name, leaf in _leaves(state, ""):
        found[_unused(name, found)] = _digest(leaf) or _of_bytes(leaf) or f"{OPAQUE}{type(leaf).__qualname__}"
    return found


def own_digests(state: Any) -> dict[str, str]:
    """Return the digests of the leaves in dicts, lists and tuples, without a call of any code but torch's own.

    Of a tensor that is spread over ranks the part of this rank counts; its name says which part that is.
    """
    found: dict[str, str] = {}
    with unset_fake_temporarily():
        for name, leaf in _leaves(state, "", calling=False):
            for part, own in own_parts(leaf):
                digest = _digest(own)
                if digest:
                    found[_unused(f"{name}{part}", found)] = digest
    return found


def digest_of_parts(*leaves: Any) -> str:
    """Return one digest of this rank's own parts of tensors, and of other leaves, in their order.

    It is quicker than `own_digests`: it knows no blocks of rows.
    """
    whole = hashlib.sha256()
    with unset_fake_temporarily():
        for part, own in (each for leaf in leaves for each in own_parts(leaf)):
            if isinstance(own, bytes):
                whole.update(own)
            elif isinstance(own, torch.Tensor):
                plain = _plain(own)
                whole.update(json.dumps([part, str(own.dtype), list(own.shape)]).encode())
                if plain is not None and plain.numel():
                    size = plain.numel() * plain.element_size()
                    whole.update((ctypes.c_char * size).from_address(plain.data_ptr()))
            else:
                whole.update(_digest(own).encode())
    return whole.hexdigest()[:_DIGITS]


def digest_of_own(state: Any) -> str:
    """Return one digest of the leaves in dicts, lists and tuples; "" if none is a tensor or a plain value."""
    leaves = [leaf for _, leaf in _leaves(state, "", calling=False)]
    is_known = any(isinstance(each, torch.Tensor) or _digest(each) for each in leaves)
    return digest_of_parts(*leaves) if is_known else ""


def names_of_tensors(state: Any) -> frozenset[str]:
    """Return the names of the tensors in dicts, lists and tuples."""
    found = _leaves(state, "", calling=False)
    return frozenset(name for name, leaf in found if isinstance(leaf, torch.Tensor) or hasattr(leaf, "local_shards"))


def own_parts(leaf: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rank's own parts of a leaf, each with the words that tell it from the parts of others."""
    shards = getattr(leaf, "local_shards", None)
    if callable(shards):
        yield from ((f"{PART}{each.metadata.shard_offsets}", each.tensor) for each in shards())
    elif isinstance(leaf, torch.Tensor) and hasattr(leaf, "to_local") and hasattr(leaf, "placements"):
        mesh: Any = leaf.device_mesh
        if any(each.is_partial() for each in leaf.placements):
            return
        cut = any(each.is_shard() for each in leaf.placements)
        place = f"{PART}{mesh.get_coordinate()} of {tuple(mesh.shape)} {tuple(leaf.placements)}" if cut else ""
        yield place, leaf.to_local()
    else:
        yield "", leaf


def _unused(name: str, found: Mapping[str, str]) -> str:
    """Return ``name``, marked where another leaf has it: {"a.b": 1, "a": {"b": 2}}."""
    return name if name not in found else _unused(f"{name}'", found)


def digest_of(state: Any) -> str:
    """Return one digest of a nested state: of a bare leaf the leaf's own."""
    found = digests(state)
    return found[""] if [*found] == [""] else _short(json.dumps(found, sort_keys=True).encode())


def _leaves(state: Any, name: str, *, calling: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its name, in the order of names: ranks may have filled their dicts in different orders.

    ``calling``: an object with a method ``state_dict`` counts as what that returns, else as a leaf.
    """
    if isinstance(state, torch.Tensor):
        yield name, state
    elif isinstance(state, Mapping):
        for key, each in sorted(state.items(), key=lambda item: str(item[0])):
            yield from _leaves(each, f"{name}.{key}" if name else str(key), calling=calling)
    elif isinstance(state, (list, tuple)):
        for index, each in enumerate(state):
            yield from _leaves(each, f"{name}.{index}" if name else str(index), calling=calling)
    elif calling and not isinstance(state, type) and callable(getattr(state, "state_dict", None)):
        yield from _leaves(state.state_dict(), name)
    else:
        yield name, state


def _digest(leaf: Any) -> str:
    """Return the digest of a leaf, "" for one that is neither a tensor nor a plain value."""
    if callable(getattr(leaf, "local_shards", None)) and callable(getattr(leaf, "gather", None)):
        leaf = _gathered(leaf)
    if isinstance(leaf, torch.Tensor):
        return _of_tensor(leaf)
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return _short(json.dumps(leaf).encode())
    return ""


def _of_bytes(leaf: Any) -> str:
    """Return the digest of bytes, or of an array or number of numpy; "" for others."""
    if isinstance(leaf, (bytes, bytearray)):
        return _short(b"bytes", bytes(leaf))
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "tobytes") and not leaf.dtype.hasobject:
        return _short(json.dumps([str(leaf.dtype), list(leaf.shape)]).encode(), leaf.tobytes())
    return ""


def _plain(tensor: Any) -> Any:
    """Return a tensor as one block of memory, None if it has no bytes."""
    tensor = tensor.detach()
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return None
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.cpu().resolve_conj().resolve_neg().contiguous()


def _of_tensor(tensor: Any) -> str:
    plain = _plain(tensor.full_tensor() if callable(getattr(tensor, "full_tensor", None)) else tensor)
    if plain is None:
        return ""
    about = json.dumps([str(plain.dtype), list(plain.shape)]).encode()
    data = ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
    rows = plain.shape[0] if plain.dim() else 0
    return _short(about, data) + (_of_rows(data, rows) if rows > 1 and data else "")


def _of_rows(data: bytes, rows: int) -> str:
    """Return the digests of blocks of rows, all of the same size but the last."""
    size = -(-rows // _BLOCKS) * (len(data) // rows)
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    return f":{rows}:" + "".join(hashlib.sha256(each).hexdigest()[:_BLOCK_DIGITS] for each in blocks)


def _gathered(sharded: Any) -> torch.Tensor:
    """Return the whole of a ShardedTensor on every rank; torch returns it on one rank only."""
    whole = torch.empty(sharded.size(), dtype=sharded.dtype)
    group = getattr(sharded, "_process_group", None)
    first = dist.get_global_rank(group, 0) if group is not None else 0
    sharded.gather(0, whole if dist.get_rank() == first else None)
    dist.broadcast(whole, first, group=group)
    return whole


def _short(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:_DIGITS]
