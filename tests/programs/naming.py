"""Scenarios whose files have names that differ from run to run.  Not collected by pytest."""

import os
import pickle

from racecheck import Rank, scenario


@scenario(ranks=2)
def process_numbers(rank: Rank) -> list[str]:
    temporary = rank.path / f"save.{os.getpid()}.tmp"
    temporary.write_text("x")
    os.replace(temporary, rank.path / f"done{rank.rank}")
    (rank.path / f"log-{os.getpid()}").touch()
    return sorted(os.listdir(rank.path))


@scenario(ranks=2)
def safetensors_save(rank: Rank) -> list[str]:
    """Written in Rust, under a name that no seed knows."""
    import torch
    from safetensors.torch import save_file

    save_file({"w": torch.ones(8)}, str(rank.path / f"model{rank.rank}.safetensors"))
    return sorted(os.listdir(rank.path))


@scenario(ranks=2)
def names_its_place(rank: Rank) -> None:
    """What is written has the path of the watched directory in it."""
    place = rank.path / f"place{rank.rank}"
    place.write_text(f"saved to {place}, {'x' * 200}")
    (rank.path / f"short{rank.rank}").write_text(str(place))
    (rank.path / f"pickle{rank.rank}").write_bytes(pickle.dumps(place))
    (rank.path / f"link{rank.rank}").symlink_to(place)
    assert place.read_text().endswith("x")
