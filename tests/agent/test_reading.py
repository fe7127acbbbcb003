"""Reading real checkpoint files: whole, cut, foreign and hostile ones.

All that needs torch happens in a process of its own, so that the one of the tests stays as it is.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from enum import Enum
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from racecheck.invariants.checkpoints import FOREIGN, TOO_LARGE, UNSUPPORTED

Read = Callable[[Path], dict[str, dict[str, Any]]]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, get_context("spawn")) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(pool: Executor) -> Ask:
    """Calls a function of this module in the process that has torch."""
    return lambda function, *arguments: pool.submit(function, *arguments).result(timeout=120)


@pytest.fixture(scope="module")
def read(ask: Ask) -> Read:
    return lambda root: ask(_read, str(root))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def real(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks with a process group have saved, in all ways."""
    root = tmp_path_factory.mktemp("real")
    ask(_save_with_two_ranks, str(root))
    return root


@pytest.fixture
def root(real: Path, tmp_path: Path) -> Path:
    """A directory with a copy of the checkpoint ``ckpt`` that two ranks have saved."""
    shutil.copytree(real / "plain", tmp_path / "root" / "ckpt")
    return tmp_path / "root"


# In the process that has torch.


def _read(root: str) -> dict[str, dict[str, Any]]:
    from racecheck.agent.contents import reading

    found = reading.read(root)
    assert json.loads(json.dumps(found)) == found, "JSON data"
    return found


def _state(rank: int) -> dict[str, Any]:
    import torch

    return {
        "model": {
            "plain": torch.arange(4),
            "half": torch.ones(2, 3, dtype=torch.bfloat16),
            "scalar": torch.tensor(3.0),
        },
        "empty": torch.empty(0, 3),
        "list": [1, torch.ones(2)],
        "text": "adam",
        f"own{rank}": torch.full((2,), float(rank)),
    }


def _sharded() -> Any:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(torch.arange(15.0).reshape(5, 3), init_device_mesh("cpu", (2,)), [Shard(0)])


def _save_with_two_ranks(root: str) -> None:
    import torch.multiprocessing

    torch.multiprocessing.spawn(_rank, (root,), nprocs=2)


def _rank(rank: int, root: str) -> None:
    import torch.distributed
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    from racecheck.agent.contents.weight_digests import digests

    torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meet", rank=rank, world_size=2)
    whole = _sharded()
    state = {**_state(rank), "whole": whole}
    checkpoint.save(state, checkpoint_id=f"{root}/plain")
    checkpoint.save(state, storage_writer=FileSystemWriter(f"{root}/threads", thread_count=2))
    checkpoint.save(state, storage_writer=FileSystemWriter(f"{root}/many", single_file_per_rank=False))
    checkpoint.async_save(state, checkpoint_id=f"{root}/async").result()
    tensors = {"whole": whole, "plain": torch.arange(4)}
    raw = FileSystemWriter(f"{root}/raw", serialization_format=SerializationFormat.SAFETENSORS)
    checkpoint.save(tensors, storage_writer=raw)
    checkpoint.save(tensors, storage_writer=HuggingFaceStorageWriter(f"{root}/hf", save_distributed=True))
    Path(root, f"said{rank}.json").write_text(json.dumps(digests(state)))
    # gloo's threads may still let go of a tensor while the interpreter ends, which aborts (pytorch issue 190489):
    # the device mesh keeps its group beyond destroy_process_group. So the interpreter is not ended.
    os._exit(0)


def _digests_of_tensors() -> dict[str, dict[str, str]]:
    import torch

    from racecheck.agent.contents.weight_digests import digests

    table = torch.arange(6.0).reshape(2, 3)
    complex_ = torch.tensor([1 + 2j])
    rows = {
        "table": [table, table.clone(), table.t().t(), torch.nn.Parameter(table), table.t().contiguous().t()],
        "turned": [table.t(), table.t().contiguous()],
        "flat": [table.reshape(6)],
        "double": [table.double()],
        "ints": [table.int()],
        "half": [torch.ones(2, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)[::2]],
        "other half": [torch.ones(2, dtype=torch.float16)],
        "scalar": [torch.tensor(1.0)],
        "one": [torch.ones(1)],
        "empty": [torch.empty(0, 3)],
        "other empty": [torch.empty(3, 0)],
        "complex": [complex_, complex_.conj().conj()],
        "conjugate": [complex_.conj(), torch.tensor([1 - 2j])],
        "bool": [torch.tensor([True, False])],
        "zeros": [torch.zeros(2)],
        "other zeros": [torch.zeros(2, dtype=torch.int32)],
        "sparse": [torch.eye(2), torch.eye(2).to_sparse()],
    }
    return {name: {str(number): digests(each)[""] for number, each in enumerate(row)} for name, row in rows.items()}


def _mixed_rows() -> list[list[str]]:
    """Digests of blocks of rows: of a tensor, and of one that has the last quarter of another one."""
    import torch

    from racecheck.agent.contents.weight_digests import digests

    found = []
    for shape in ((128, 3), (10,), (2, 2)):
        one, other = torch.zeros(shape), torch.ones(shape)
        mixed = one.clone()
        mixed[-(shape[0] // 4 or 1) :] = other[-(shape[0] // 4 or 1) :]
        found.append([digests(each)[""] for each in (one, other, mixed)])
    return found


class _Stateful:
    def state_dict(self) -> dict[str, Any]:
        import torch

        return {"w": torch.ones(1), "nested": [torch.zeros(1)]}


def _digests_of_states() -> list[dict[str, str]]:
    import torch

    from racecheck.agent.contents.weight_digests import digests

    one = torch.ones(1)
    return [
        digests({"a": {"b": [one, (one, 2)]}, 3: None, "skipped": object(), "bytes": b"x"}),
        digests({"a.b": one, "a": {"b": one}}),
        digests({"s": _Stateful(), "class": _Stateful}),
        digests(torch.nn.Linear(1, 1)),
        digests([1, 1.0, True, "1", None]),
        digests({"b": one, "a": 1}),
    ]


def _save_files(directory: str) -> None:
    import argparse

    import numpy as np
    import torch
    from safetensors.torch import save_file

    base, weights = Path(directory), {"w": torch.ones(2, 3), "step": 4, "opt": {"m": torch.zeros(3)}}
    torch.save(weights, base / "zip.pt")
    torch.save(weights, base / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(weights, base / "without_suffix")
    torch.save({"numpy": np.random.get_state(), "torch": torch.get_rng_state()}, base / "random_states_0.pkl")
    torch.save({"args": argparse.Namespace(lr=1)}, base / "foreign.bin")
    torch.save(torch.ones(2), base / "bare.ckpt")
    save_file({"w": torch.ones(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)}, base / "model.safetensors")
    torch.serialization.set_crc32_options(compute_crc32=False)
    torch.save(weights, base / "unchecked.pt")
    torch.serialization.set_crc32_options(compute_crc32=True)


@pytest.fixture(scope="module")
def kept(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept")
    ask(_save_files, str(directory))
    return directory


def problems(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By path; those of pieces after their names."""
    return {path: content["problem"] for path, content in found.items()} | {
        f"{path} {piece['name']} {piece['start']}": piece["problem"]
        for path, content in found.items()
        for piece in content["pieces"]
        if piece["problem"]
    }


def broken(found: dict[str, dict[str, Any]]) -> list[str]:
    """All problems there are, each once."""
    return sorted({text for text in problems(found).values() if text})


# Digests.


def test_digests_are_equal_exactly_where_type_shape_and_bytes_are(ask: Ask) -> None:
    rows = ask(_digests_of_tensors)
    assert all(len(set(row.values())) == 1 for row in rows.values())
    assert len({next(iter(row.values())) for row in rows.values()}) == len(rows)


def test_rows_have_digests_of_their_own(ask: Ask) -> None:
    sizes = []
    for each in ask(_mixed_rows):
        rows, one, other, mixed = each[0].split(":")[1], *([*re.findall(".{6}", text.split(":")[2])] for text in each)
        assert {text.split(":")[1] for text in each} == {rows}
        assert len({each_[:16] for each_ in each}) == 3
        changed = [number for number, block in enumerate(mixed) if block != one[number]]
        assert mixed[-1] == other[-1]
        sizes.append((int(rows), len(one), changed))
    assert sizes == [(128, 8, [6, 7]), (10, 5, [4]), (2, 2, [1])]


def test_names_are_joined_with_dots(ask: Ask) -> None:
    nested, same, stateful, module, values, mixed = ask(_digests_of_states)
    assert {*nested} == {"a.b.0", "a.b.1.0", "a.b.1.1", "3"}
    assert [*same] == ["a.b", "a.b'"], "neither hides the other"
    assert {*stateful} == {"s.w", "s.nested.0"}
    assert {*module} == {"weight", "bias"}
    assert len(set(values.values())) == 5, "1, 1.0 and True are three things"
    assert [*mixed] == ["a", "b"], "whatever order a rank made its dict in: whole tensors take a collective each"
    assert all(len(digest) == 16 for digest in nested.values())


# What DCP writes.


@pytest.mark.parametrize("how", ["plain", "threads", "many", "async"])
def test_a_checkpoint_of_two_ranks_is_whole(real: Path, read: Read, how: str) -> None:
    found = read(real / how)
    assert [*found] == [".metadata"]
    assert found[".metadata"]["format"] == "dcp-metadata"
    assert broken(found) == []
    pieces = found[".metadata"]["pieces"]
    assert {piece["name"] for piece in pieces} == {
        "model.plain", "model.half", "model.scalar", "empty", "list.0", "list.1", "text", "own0", "own1", "whole",
    }  # fmt: skip
    assert [(each["shape"], each["start"], each["sizes"]) for each in pieces if each["name"] == "whole"] == [
        ([5, 3], [0, 0], [3, 3]),
        ([5, 3], [3, 0], [2, 3]),
    ]
    assert len({piece["file"] for piece in pieces}) == {"plain": 2, "threads": 4, "many": len(pieces), "async": 2}[how]


def test_pieces_have_the_digests_of_what_was_saved(real: Path, read: Read) -> None:
    said = [json.loads((real / f"said{rank}.json").read_text()) for rank in (0, 1)]
    assert said[0]["whole"] == said[1]["whole"], "of a DTensor the whole counts, on every rank"
    pieces = {piece["name"]: piece["digest"] for piece in read(real / "plain")[".metadata"]["pieces"]}
    for name in ("model.plain", "model.half", "model.scalar", "empty", "list.0", "list.1", "text"):
        assert pieces[name] == said[0][name] == said[1][name]
    assert (pieces["own0"], pieces["own1"]) == (said[0]["own0"], said[1]["own1"])


def test_shards_in_the_form_of_safetensors_are_read(real: Path, read: Read) -> None:
    found = read(real / "raw")
    assert broken(found) == []
    plain = {(each["name"], str(each["start"])): each["digest"] for each in read(real / "plain")[".metadata"]["pieces"]}
    for piece in found[".metadata"]["pieces"]:
        name = "model.plain" if piece["name"] == "plain" else "whole"
        assert piece["digest"] == plain[name, str(piece["start"])]
    shards = read(real / "hf")
    assert [each["format"] for each in shards.values()] == ["safetensors", "safetensors"]
    assert broken(shards) == []


def test_paths_are_relative_to_the_directory_that_is_read(root: Path, read: Read) -> None:
    found = read(root)
    assert [*found] == ["ckpt/.metadata"]
    assert {piece["file"] for piece in found["ckpt/.metadata"]["pieces"]} == {"ckpt/__0_0.distcp", "ckpt/__1_0.distcp"}


def test_a_missing_shard_is_named_once_for_each_piece(root: Path, read: Read) -> None:
    (root / "ckpt" / "__1_0.distcp").unlink()
    found = read(root)
    assert broken(found) == ["__1_0.distcp is missing"]
    pieces = found["ckpt/.metadata"]["pieces"]
    assert all(bool(piece["problem"]) == piece["file"].endswith("__1_0.distcp") for piece in pieces)
    assert all(bool(piece["digest"]) != bool(piece["problem"]) for piece in pieces)


def test_a_cut_shard_keeps_what_comes_before_the_cut(root: Path, read: Read) -> None:
    shard = root / "ckpt" / "__1_0.distcp"
    data = shard.read_bytes()
    for length in (0, 1, 700, 1577, 1578, len(data) - 1):
        shard.write_bytes(data[:length])
        pieces = [each for each in read(root)["ckpt/.metadata"]["pieces"] if each["file"].endswith("__1_0.distcp")]
        for piece in pieces:
            is_whole = piece["offset"] + piece["length"] <= length
            there = max(0, length - piece["offset"])
            said = f"truncated: {there} of the {piece['length']} bytes at {piece['offset']} are present"
            assert piece["problem"] == ("" if is_whole else f"__1_0.distcp: {said}")


def test_a_shard_of_zeros_does_not_pass_for_one(root: Path, read: Read) -> None:
    shard = root / "ckpt" / "__1_0.distcp"
    shard.write_bytes(bytes(shard.stat().st_size))
    assert broken(read(root)) == ["__1_0.distcp: not a torch.save file"]


def test_every_tensor_that_lost_its_bytes_is_noticed(root: Path, read: Read) -> None:
    """torch itself loads a tensor whose block never reached the disk, as zeros."""
    shard = root / "ckpt" / "__1_0.distcp"
    data, tensor = shard.read_bytes(), struct.pack("<6f", *range(9, 15))
    assert data.count(tensor) == 1
    shard.write_bytes(data.replace(tensor, bytes(len(tensor))))
    assert broken(read(root)) == ["__1_0.distcp: data/0 in it has other bytes than were written (wrong checksum)"]


def _save_alone(directory: str, size: int, *, whole: bool) -> None:
    import warnings

    import torch
    from torch.distributed import checkpoint

    state = {"w": torch.arange(float(size)), "n": size} if whole else {"w": torch.arange(size)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(state, checkpoint_id=directory, no_dist=True)


def test_a_shard_of_another_checkpoint_is_noticed(ask: Ask, read: Read, tmp_path: Path) -> None:
    for name, size, whole in (("one", 6, True), ("longer", 9, True), ("ints", 6, False)):
        ask(_save_alone_as, str(tmp_path / name), size, whole)
    for other, problem in (
        ("longer", "__0_0.distcp: it holds a tensor of shape (9,), not (6,)"),
        ("ints", "__0_0.distcp: it holds a tensor of torch.int64, not torch.float32"),
    ):
        piece = _piece_of(read(tmp_path / "one"), "w")
        assert piece["problem"] == ""
        mixed = tmp_path / f"mixed-{other}"
        shutil.copytree(tmp_path / "one", mixed)
        data = (tmp_path / "one" / "__0_0.distcp").read_bytes()
        theirs = _piece_of(read(tmp_path / other), "w")
        start, end = theirs["offset"], theirs["offset"] + theirs["length"]
        patch = (tmp_path / other / "__0_0.distcp").read_bytes()[start:end]
        assert len(patch) == piece["length"]
        at = piece["offset"]
        (mixed / "__0_0.distcp").write_bytes(data[:at] + patch + data[at + len(patch) :])
        assert _piece_of(read(mixed), "w")["problem"] == problem


def _save_alone_as(directory: str, size: int, whole: bool) -> None:
    _save_alone(directory, size, whole=whole)


def _piece_of(found: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    (piece,) = (each for each in found[".metadata"]["pieces"] if each["name"] == name)
    return dict(piece)


def test_what_no_metadata_names_is_left_alone(root: Path, read: Read) -> None:
    (root / "ckpt" / "__7_0.distcp").write_bytes(b"left from a larger world")
    (root / "alone").mkdir()
    (root / "alone" / "__0_0.distcp").write_bytes(b"")
    assert problems(read(root)) == {"ckpt/.metadata": ""}


# Metadata.


class _Early(pickle.Pickler):
    """Pickles the members of enumerations as Python 3.11.2 does."""

    def reducer_override(self, each: object) -> Any:
        return (getattr, (type(each), each.name)) if isinstance(each, Enum) else NotImplemented


def _pickle_early(file: str) -> None:
    data = io.BytesIO()
    _Early(data).dump(pickle.loads(Path(file).read_bytes()))
    Path(file).write_bytes(data.getvalue())


def test_metadata_of_an_early_python_is_read(ask: Ask, read: Read, root: Path) -> None:
    before = read(root)
    ask(_pickle_early, str(root / "ckpt" / ".metadata"))
    assert b"getattr" in (root / "ckpt" / ".metadata").read_bytes()
    assert read(root) == before


def _edit(source: str, target: str, edit: str) -> None:
    """Rewrite metadata; ``edit`` is a statement about ``m``."""
    from torch.distributed.checkpoint import metadata as dcp
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    m = pickle.loads(Path(source).read_bytes())
    exec(edit, {"m": m, "dcp": dcp, "info": _StorageInfo, "whole": m.state_dict_metadata["whole"]})
    Path(target).write_bytes(pickle.dumps(m))


LEADS_OUT = f"it points outside the watched directory; {UNSUPPORTED}"
KEY = "next(k for k in m.storage_data if k.fqn == 'whole' and k.offset[0] == 3)"


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ("del whole.chunks[1]", "tensor whole: elements are missing: chunks cover 9 of 15"),
        (
            "whole.chunks[1] = dcp.ChunkStorageMetadata((2, 0), (2, 3))",
            "tensor whole: the chunks at (0, 0) and (2, 0) overlap",
        ),
        ("whole.size = (4, 3)", "tensor whole: the chunk at (3, 0) goes beyond its shape (4, 3)"),
        (f"del m.storage_data[{KEY}]", "tensor whole: the metadata does not locate the chunk at (3, 0)"),
        (
            "m.storage_data = {k: v for k, v in m.storage_data.items() if k.fqn != 'text'}",
            "object text: the metadata does not locate it",
        ),
        (
            "whole.chunks[1].offsets = (3,)",
            "not DCP metadata: a chunk and its tensor have different numbers of dimensions",
        ),
        ("m.state_dict_metadata = None", "not DCP metadata: NoneType instead of dict"),
        (f"m.storage_data[{KEY}].offset = -1", "not DCP metadata: no number instead of a length"),
        (f"m.storage_data[{KEY}] = 'x'", "not DCP metadata: str instead of _StorageInfo"),
    ],
)
def test_metadata_that_does_not_add_up(root: Path, read: Read, ask: Ask, edit: str, problem: str) -> None:
    path = root / "ckpt" / ".metadata"
    ask(_edit, str(path), str(path), edit)
    assert problem in read(root)["ckpt/.metadata"]["problem"].split("; ")


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (f"m.storage_data[{KEY}].relative_path = '../../out'", f"../../out: {LEADS_OUT}"),
        (f"m.storage_data[{KEY}].relative_path = '/etc/passwd'", f"/etc/passwd: {LEADS_OUT}"),
        (f"m.storage_data[{KEY}].relative_path = 'a\\nb'", "a b is missing"),
        (f"m.storage_data[{KEY}].relative_path = '.'", ".: it cannot be opened: Is a directory"),
        (f"m.storage_data[{KEY}].length = 1 << 40", f"__1_0.distcp: it has {1 << 40} bytes, {TOO_LARGE}"),
        (
            f"m.storage_data[{KEY}].transform_descriptors = ['stream.zstd/1']",
            f"__1_0.distcp: it went through stream.zstd/1; {UNSUPPORTED}",
        ),
        (
            "m.storage_data[dcp.MetadataIndex('new', (0,))] = info('__0_0.distcp', 0, 9)",
            "__0_0.distcp: the metadata does not say what it is",
        ),
    ],
)
def test_items_that_lead_nowhere(root: Path, read: Read, ask: Ask, edit: str, problem: str) -> None:
    path = root / "ckpt" / ".metadata"
    (root.parent / "out").write_bytes(b"outside")
    ask(_edit, str(path), str(path), edit)
    assert broken(read(root)) == [problem]


def test_metadata_that_is_cut_anywhere_is_missing_its_end(real: Path, read: Read, tmp_path: Path) -> None:
    data = (real / "plain" / ".metadata").read_bytes()
    for length in range(len(data)):
        (tmp_path / f"{length}").mkdir()
        (tmp_path / f"{length}" / ".metadata").write_bytes(data[:length])
    found = {path: content["problem"] for path, content in read(tmp_path).items()}
    assert found.pop("0/.metadata") == "it is empty"
    assert len(found) == len(data) - 1
    cut = {path for path, text in found.items() if text.startswith("truncated: ")}
    assert all(text for text in found.values())
    assert all(data[int(path.split("/")[0]) - 1 :][:1] == b"." for path in {*found} - cut), "ends like a pickle"


def test_reading_continues_whatever_byte_of_metadata_is_damaged(real: Path, read: Read, tmp_path: Path) -> None:
    shutil.copy(real / "plain" / "__0_0.distcp", tmp_path)
    data = (real / "plain" / ".metadata").read_bytes()
    for position in range(len(data)):
        raw = bytearray(data)
        raw[position] ^= 0xFF
        (tmp_path / f"__{position}.metadata").write_bytes(raw)
    found = read(tmp_path)
    assert len(found) == len(data)
    assert all(text.isprintable() for text in problems(found).values())


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


NESTED = b")" + b"\x85" * 1_000_000
"""A tuple in a tuple in a tuple: to hash it overflows the stack."""

HOSTILE = {
    "a bound method": (pickle.dumps(Path("x").exists), f"holds builtins.getattr, {FOREIGN}"),
    "a function": (pickle.dumps({"a": sys.exit}), f"holds sys.exit, {FOREIGN}"),
    "an old global": (b"cposixpath\nevil\n.", f"holds posixpath.evil, {FOREIGN}"),
    "a dotted name": (
        b"ctorch.distributed.checkpoint.metadata\nMetadata.__init__\n.",
        f"holds torch.distributed.checkpoint.metadata.Metadata.__init__, {FOREIGN}",
    ),
    "a function of torch": (b"ctorch\nload\n.", f"holds torch.load, {FOREIGN}"),
    "a class given attributes": (b"\x80\x04ctorch\nSize\n}b.", "not DCP metadata: TypeError"),
    "a persistent id": (b"\x80\x04Pid\n.", "not DCP metadata"),
    "another persistent id": (b"\x80\x04\x88Q.", "not DCP metadata"),
    "an extension": (b"\x80\x04\x88\x82\x01.", "not DCP metadata"),
    "a nested key": (b"\x80\x04}" + NESTED + b"K\1s.", "not DCP metadata: a key is neither"),
    "a nested key of several": (b"\x80\x04}(" + NESTED + b"K\1u.", "not DCP metadata: a key is neither"),
    "a nested key of an old dict": (b"\x80\x04(" + NESTED + b"K\1d.", "not DCP metadata"),
    "a nested member": (b"\x80\x04\x8f(" + NESTED + b"\x90.", "not DCP metadata"),
    "a nested frozen member": (b"\x80\x04(" + NESTED + b"\x91.", "not DCP metadata"),
    "a nested key of pairs": (
        b"\x80\x04ccollections\nOrderedDict\n](" + NESTED + b"K\1\x86e\x85R.",
        "not DCP metadata: TypeError",
    ),
    "a far index of the memo": (b"\x80\x04Nr\xff\xff\xff\x7f.", "not DCP metadata: NoneType instead of Metadata"),
    "too long bytes": (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.", "not DCP metadata"),
    "a list": (pickle.dumps([1, 2]), "not DCP metadata: list instead of Metadata"),
    "text": (b"{}", "not DCP metadata"),
    "zeros": (bytes(64), "not DCP metadata"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_foreign_metadata(read: Read, tmp_path: Path, name: str) -> None:
    data, problem = HOSTILE[name]
    (tmp_path / ".metadata").write_bytes(data)
    found = read(tmp_path)[".metadata"]["problem"]
    assert found.startswith(problem)
    assert found.isprintable()


def test_nothing_in_a_pickle_is_run(read: Read, ask: Ask, tmp_path: Path) -> None:
    made = tmp_path / "made"
    ask(_save_evil, str(tmp_path), str(made))
    assert {path.name for path in tmp_path.iterdir()} == {".metadata", "new.pt", "old.pt", "ckpt"}
    found = read(tmp_path)
    refused = f"holds {os.mkdir.__module__}.mkdir, {FOREIGN}"
    assert {path: content["problem"] for path, content in found.items()} == {
        ".metadata": refused,
        "new.pt": refused,
        "old.pt": refused,
        "ckpt/.metadata": "",
    }
    assert _piece_of({".metadata": found["ckpt/.metadata"]}, "evil")["problem"] == f"__0_0.distcp: {refused}"
    assert not made.exists()
    pickle.loads((tmp_path / ".metadata").read_bytes())
    assert made.exists(), "this is what it would have done"


def _save_evil(directory: str, made: str) -> None:
    import warnings

    import torch
    from torch.distributed import checkpoint

    evil, base = _Evil(Path(made)), Path(directory)
    (base / ".metadata").write_bytes(pickle.dumps({"state": evil}))
    torch.save({"w": torch.ones(1), "evil": evil}, base / "new.pt")
    torch.save({"w": torch.ones(1), "evil": evil}, base / "old.pt", _use_new_zipfile_serialization=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save({"evil": evil}, checkpoint_id=base / "ckpt", no_dist=True)


# Files of torch.save and safetensors.


def test_files_are_known_by_name_or_by_how_they_begin(kept: Path, read: Read, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "files")
    (tmp_path / "files" / "notes.txt").write_text("step 4")
    (tmp_path / "files" / "array.npz").write_bytes(_archive("a.npy"))
    found = read(tmp_path / "files")
    assert problems(found) == {
        "bare.ckpt": "",
        "foreign.bin": f"holds argparse.Namespace, {FOREIGN}",
        "legacy.pth": "",
        "model.safetensors": "",
        "random_states_0.pkl": "",
        "unchecked.pt": "",
        "without_suffix": "",
        "zip.pt": "",
    }
    names = {"w", "step", "opt.m"}
    for path in ("legacy.pth", "without_suffix", "zip.pt"):
        assert {*found[path]["tensors"]} == names
        assert found[path]["tensors"] == found["zip.pt"]["tensors"]
    assert found["model.safetensors"]["tensors"]["w"] == found["zip.pt"]["tensors"]["w"]
    assert {*found["bare.ckpt"]["tensors"]} == {""}


def _archive(name: str) -> bytes:
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "x")
    return file.getvalue()


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pth", "model.safetensors"])
def test_a_file_that_is_cut_anywhere_is_missing_its_end(kept: Path, read: Read, tmp_path: Path, name: str) -> None:
    data, suffix = (kept / name).read_bytes(), Path(name).suffix
    for length in range(len(data)):
        (tmp_path / f"{length}{suffix}").write_bytes(data[:length])
    found = problems(read(tmp_path))
    assert len(found) == len(data)
    assert found.pop(f"0{suffix}") == "it is empty"
    said = {text.partition(":")[0] for text in found.values()}
    assert said - {"cannot be loaded"} == {"truncated"}
    assert name == "legacy.pth" or len(said) == 1, "an old file is one pickle after the other: it tells less"


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pth", "model.safetensors"])
def test_reading_continues_whatever_byte_is_damaged(kept: Path, read: Read, tmp_path: Path, name: str) -> None:
    data, suffix = (kept / name).read_bytes(), Path(name).suffix
    for position in range(len(data)):
        raw = bytearray(data)
        raw[position] ^= 0xFF
        (tmp_path / f"{position}{suffix}").write_bytes(raw)
    found = problems(read(tmp_path))
    assert len(found) == len(data)
    assert all(text.isprintable() for text in found.values())
    assert not [text for text in found.values() if UNSUPPORTED in text], "damaged is what it is, and not unknown to us"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("old.pt", b"old", "not a torch.save file"),
        ("a.bin", b"\0" * 100, "not a torch.save file"),
        ("pickle.pt", pickle.dumps({"w": 1}), "not a torch.save file"),
        ("array.pt", _archive("a.npy"), "cannot be loaded: "),
        ("a.safetensors", b"hello safetensors", "not a safetensors file: unreadable header"),
        ("b.safetensors", b"\2\0\0\0\0\0\0\0[]", "not a safetensors file: unreadable header"),
        ("c.safetensors", b"\2\0\0\0\0\0\0\0{}rest", "not a safetensors file: 4 bytes at its end belong to no "),
        ("d.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\x7f{", "truncated: only 9 bytes are there"),
    ],
)  # fmt: skip
def test_what_a_name_promises_and_the_file_does_not_keep(
    read: Read, tmp_path: Path, name: str, data: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path)[name]["problem"].startswith(problem)


def test_a_header_of_safetensors_must_fit_its_bytes(read: Read, tmp_path: Path) -> None:
    for number, about in enumerate(
        (
            {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
            {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]},
            {"shape": [1]},
        )
    ):
        header = json.dumps({"w": about}).encode()
        (tmp_path / f"{number}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert broken(read(tmp_path)) == ["not a safetensors file: unreadable header"]
    assert len(read(tmp_path)) == 4


def test_tensors_of_a_type_that_is_not_known_are_not_a_damage(read: Read, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1))
    assert broken(read(tmp_path)) == [f"it has tensors of type F4; {UNSUPPORTED}"]


# Files that are none, and links.


def test_what_is_no_file_is_not_opened(read: Read, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    os.mkfifo(tmp_path / ".metadata")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory.pt").mkdir()
    assert problems(read(tmp_path)) == {".metadata": "not a file", "pipe.pt": "not a file"}


def test_a_large_file_is_not_read(read: Read, tmp_path: Path) -> None:
    size = (256 << 20) + 1
    for name in ("a.pt", "a.safetensors", ".metadata"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert broken(read(tmp_path)) == [f"it has {size} bytes, {TOO_LARGE}"]


def test_links_are_followed_to_files_below_only(kept: Path, read: Read, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    shutil.copy(kept / "zip.pt", tmp_path / "outside" / "secret.pt")
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(kept / "zip.pt", root / "step_2.pt")
    (root / "latest.pt").symlink_to("step_2.pt")
    (root / "stolen.pt").symlink_to(tmp_path / "outside" / "secret.pt")
    (root / "lost.pt").symlink_to("step_3.pt")
    (root / "loop.pt").symlink_to("loop.pt")
    (root / "up").symlink_to("..")
    (root / "directory.pt").symlink_to(tmp_path / "outside")
    found = read(root)
    assert problems(found) == {
        "latest.pt": "",
        "loop.pt": problems(found)["loop.pt"],
        "lost.pt": "is missing",
        "step_2.pt": "",
        "stolen.pt": f"it points outside the watched directory; {UNSUPPORTED}",
    }
    assert problems(found)["loop.pt"].startswith("it cannot be opened: ")
    assert found["latest.pt"] == found["step_2.pt"]


def test_what_is_not_there_has_no_contents(read: Read, tmp_path: Path) -> None:
    assert read(tmp_path) == read(tmp_path / "nothing") == {}
