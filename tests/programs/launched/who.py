"""What a process knows of how it was started, each fact as the name of a file; each rank in a directory of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed as dist

_DIFFERENT = {
    "MASTER_ADDR", "MASTER_PORT", "PATH", "PYTHONPATH", "TMPDIR", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID",
}  # fmt: skip
"""The launcher draws these for each start, or racecheck sets them."""

dist.init_process_group("gloo")
place = Path("out", os.environ["RANK"])
place.mkdir(parents=True)
facts = [f"{__name__}:{__file__}:{__spec__ is None}:{__package__}", repr(sys.argv), os.getcwd(), sys.path[0]]
facts += [
    repr(sys.modules["__main__"].__dict__["facts"] is facts),
    repr(getattr(sys.stdout, "write_through", None)),
    repr(sys.stdin.read()),
]
facts += [repr(signal) for signal in (dist.get_rank(), dist.get_world_size(), dist.get_backend())]
launched = ("RANK", "LOCAL", "GROUP", "ROLE", "WORLD", "TORCH", "OMP", "MASTER")
facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(launched)
          if name not in _DIFFERENT]  # fmt: skip
for number, fact in enumerate(facts):
    (place / f"{number} {fact}".replace("/", "|")[:200]).touch()
dist.barrier()
dist.destroy_process_group()
raise SystemExit(dist.is_initialized())
