"""A stand-in for srun(1): start each task of a step here, with the variables that srun sets on one node.

The real one would have its tasks started by a daemon, out of reach of the layer.  Only the standard library is here:
it is run by the path of this file.
"""

from __future__ import annotations

import os
import subprocess
import sys

_SHORT_FLAGS = "EHIKOQWXklsuv"
"""The short options of srun without a value in the next word."""
_LONG_FLAGS = frozenset({
    "contiguous", "disable-status", "exact", "exclusive", "external-launcher", "hold", "immediate", "kill-on-bad-exit",
    "label", "multi-prog", "no-allocate", "no-kill", "overcommit", "overlap", "oversubscribe", "preserve-env", "pty",
    "quiet", "quit-on-interrupt", "reboot", "spread-job", "unbuffered", "use-min-nodes", "verbose", "whole",
})  # fmt: skip
_LETTERS = {"n": "ntasks", "N": "nodes", "D": "chdir", "J": "job-name"}


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options of srun by their long names, and the command of each task."""
    rest, found = [*words], dict[str, str]()
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals or name in _LONG_FLAGS or not rest else rest.pop(0)
        elif word[1] not in _SHORT_FLAGS:
            value = word[2:] or (rest.pop(0) if rest else "")
            found[_LETTERS.get(word[1], word[1])] = value
    return found, rest


def tasks(options: dict[str, str]) -> int:
    """Return how many tasks a step has; raises `SystemExit` for one on several nodes."""
    nodes = options.get("nodes", "1")
    if nodes not in {"1", "1-1"}:
        sys.exit(f"srun --nodes={nodes}: racecheck starts all ranks here; give --nodes N before the -- in its place")
    given = [options.get("ntasks"), options.get("ntasks-per-node"), os.environ.get("SLURM_NTASKS")]
    return next((int(each) for each in given if each and each.isdigit()), 1)


def variables(options: dict[str, str], task: int, count: int) -> dict[str, str]:
    """Return the variables of a task: srun's own, and the values in ``--export``."""
    found = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE"), str(count))
    found |= dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), str(count))
    found |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), "1")
    found |= {"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task), "SLURM_NODEID": "0", "SLURM_STEP_ID": "0"}
    found |= {"SLURM_JOB_NAME": options.get("job-name", "racecheck")}
    named = {"SLURM_JOB_ID": "1", "SLURM_JOBID": "1", "SLURM_STEPID": "0", "SLURMD_NODENAME": "localhost"}
    named |= dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), "localhost")
    found |= {name: os.environ.get(name, value) for name, value in named.items()}
    for each in options.get("export", "").split(","):
        name, equals, value = each.partition("=")
        found |= {name: value} if equals else {}
    return found


def main(words: list[str]) -> int:
    """Start the tasks, wait for them, and return the highest of their exit statuses."""
    options, command = parse(words)
    if not command:
        sys.exit("srun: no command to run")
    count, directory = tasks(options), options.get("chdir")
    started = [
        subprocess.Popen(command, env={**os.environ, **variables(options, each, count)}, cwd=directory)
        for each in range(count)
    ]
    return max(each.wait() for each in started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
