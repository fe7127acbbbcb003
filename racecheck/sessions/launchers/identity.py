"""The variables by which a launcher tells a process which rank it is, and of how many.

Read from the environment of ranks of Open MPI 4.1, MPICH 5.0 (Hydra) and DeepSpeed 0.19 (``launcher/launch.py``), and
from the manual of srun(1), "OUTPUT ENVIRONMENT VARIABLES".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "RANK", "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_NODE_RANK": "LOCAL_RANK",
    "OMPI_UNIVERSE_SIZE": "WORLD_SIZE", "PMIX_RANK": "RANK",
}  # fmt: skip
_MPICH = {
    "PMI_RANK": "RANK", "PMI_SIZE": "WORLD_SIZE", "MPI_LOCALRANKID": "LOCAL_RANK",
    "MPI_LOCALNRANKS": "LOCAL_WORLD_SIZE",
}  # fmt: skip
_SLURM = {
    "SLURM_PROCID": "RANK", "SLURM_NTASKS": "WORLD_SIZE", "SLURM_NPROCS": "WORLD_SIZE", "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_STEP_NUM_TASKS": "WORLD_SIZE", "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE", "SLURM_NODEID": "GROUP_RANK",
    "SLURM_NNODES": "GROUP_WORLD_SIZE", "SLURM_JOB_NUM_NODES": "GROUP_WORLD_SIZE",
    "SLURM_STEP_NUM_NODES": "GROUP_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE": "LOCAL_WORLD_SIZE",
    "SLURM_TASKS_PER_NODE": "LOCAL_WORLD_SIZE",
}  # fmt: skip
_DEEPSPEED = {
    "RANK": "RANK", "WORLD_SIZE": "WORLD_SIZE", "LOCAL_RANK": "LOCAL_RANK", "LOCAL_SIZE": "LOCAL_WORLD_SIZE",
    "CROSS_RANK": "GROUP_RANK", "CROSS_SIZE": "GROUP_WORLD_SIZE",
}  # fmt: skip
_ALL = (_OPEN_MPI, _MPICH, _SLURM)
RANKS = ("RANK", *(next(iter(each)) for each in _ALL))
"""The variables that hold the number of a rank."""
_OF_ONE_START = re.compile(r"(OMPI|PMIX|PMI|PRTE|ORTE|HYDI|HYDRA|MPIR|MPI)_")
"""Variables by which a process finds the MPI that has started it: they are others at each start."""


def names(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that say which rank a process is, each with the one of torchrun's that it equals.

    {} for torchrun's own, or if there are none.
    """
    if "RANK" in environment:
        return _DEEPSPEED if "CROSS_RANK" in environment else {}
    found = next((each for each in _ALL if next(iter(each)) in environment), {})
    return {name: meaning for name, meaning in found.items() if name in environment}


def rank(environment: Mapping[str, str]) -> int | None:
    """Return which rank a process is, None if nothing says so."""
    name = next(iter(names(environment)), "RANK")
    return int(environment[name]) if environment.get(name, "").isdigit() else None


def size(environment: Mapping[str, str]) -> int | None:
    """Return the number of ranks, None if nothing says so."""
    own = names(environment)
    name = next((name for name, meaning in own.items() if meaning == "WORLD_SIZE"), "WORLD_SIZE")
    return int(environment[name]) if environment.get(name, "").isdigit() else None


def is_of_one_start(name: str) -> bool:
    """Return whether a variable belongs to one start of a launcher, and to no other."""
    return bool(_OF_ONE_START.match(name))
