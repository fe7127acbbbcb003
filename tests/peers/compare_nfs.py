"""Play a storage model's programs on real mounts, and say where they differ.  Run by hand; nfs_in_uml.sh does it all.

    mount -t nfs -o vers=3,nosharecache 127.0.0.1:/export /mnt/a
    mount -t nfs -o vers=3,nosharecache 127.0.0.1:/export /mnt/b
    python tests/peers/compare_nfs.py /mnt/a /mnt/b 'nfs(vers=3)'

The two directories are mounts of one export by two clients; on one machine ``nosharecache`` gives each mount caches of
its own, and ``sysctl fs.leases-enable=0`` keeps the server from handing out delegations, which the model leaves out.

Between lines there is a pause, for version 3 sees a change only by its time, which a server may count in jiffies.

Each line's answer has to be one of those that the program has.  Where it is another one of them than the program goes
on with, the rest of that program does not apply.  Exit status 1: a line gave what the model does not have.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

from tests.storage.conformance.programs import Program, act, programs

_PAUSE = 0.05
"""Seconds between two lines: longer than a tick of the kernel's clock, by which the server tells that a directory has
changed.  On real mounts time is real, and so are the waits of the programs.
"""


def main(arguments: list[str]) -> int:
    mounts, storage = arguments[:2], arguments[2]
    model = storage.partition("(")[0]
    chosen = [each for each in programs(model) if each.storage == storage]
    return max([_compare(program, mounts, number) for number, program in enumerate(chosen)], default=2)


def _compare(program: Program, mounts: list[str], number: int) -> int:
    name = f"racecheck-{os.getpid()}-{number}"
    os.mkdir(os.path.join(mounts[0], name))
    os.listdir(mounts[1])
    files: list[dict[str, int]] = [{}, {}]
    try:
        return _play(program, [os.path.join(each, name) for each in mounts], files)
    finally:
        for descriptor in [each for held in files for each in held.values()]:
            try:
                os.close(descriptor)
            except OSError as error:
                print(f"      (closing what is left: {error.strerror})")
        shutil.rmtree(os.path.join(mounts[0], name), ignore_errors=True)


def _play(program: Program, bases: list[str], files: list[dict[str, int]]) -> int:
    for step in program.steps():
        if step.node < 0:
            time.sleep(float(step.path))
            continue
        time.sleep(_PAUSE)
        answer = act(step, bases[step.node], files[step.node])
        if not step.may or answer == step.may[step.taken]:
            continue
        if answer in step.may:
            print(f"other {program.storage}: {program.name}: {step.text!r} gave {answer!r}; the rest was left out")
            return 0
        print(f"DIFFERS {program.storage}: {program.name}: {step.text!r} gave {answer!r}")
        return 1
    print(f"same  {program.storage}: {program.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
