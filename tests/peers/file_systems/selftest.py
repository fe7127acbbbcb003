"""Check the models of crashes against this machine's file systems; needs root.

    python -m tests.peers.file_systems.selftest [--programs N] [--fs NAME]... [--seed N]

Exit status 1: a crash left what the model does not allow; 2: something could not be tried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from racecheck.model.nouns import Verdict
from tests.peers.file_systems.realfs import FILE_SYSTEMS, Certificate, certify

__all__ = ["FILE_SYSTEMS", "Selftest", "selftest"]

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Selftest:
    """The result: FAIL if a crash left what the model does not allow, UNKNOWN if something could not be tried."""

    verdict: Verdict
    certificates: tuple[Certificate, ...]

    @property
    def text(self) -> str:
        """Return the result as text."""
        return "\n".join([line for each in self.certificates for line in _lines(each)] + [self.verdict.name])


def selftest(
    file_systems: Sequence[str] = FILE_SYSTEMS,
    programs: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
    directory: str | None = None,
) -> Selftest:
    """Crash file systems after random programs, and compare what is left with the models.

    ``progress`` gets the file system and how many programs have been run; images are in ``directory`` (default: where
    temporary files are).  Raises `ValueError` for a file system that there is no model of.
    """
    every = file_systems or FILE_SYSTEMS
    found = [certify(fs, programs, seed, _of(fs, progress), directory) for fs in every]
    return Selftest(max(map(_verdict, found)), tuple(found))


def _of(fs: str, progress: Progress | None) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(fs, done)


def _verdict(certificate: Certificate) -> Verdict:
    if certificate.outside:
        return Verdict.FAIL
    return Verdict.UNKNOWN if certificate.reason else Verdict.PASS


def _lines(certificate: Certificate) -> list[str]:
    outside = len(certificate.outside)
    counts = f"{certificate.programs} programs, {certificate.lossy} lossy crashes, {outside} outside the model"
    lines = [f"{certificate.fs} (model {certificate.model}): {counts}"]
    lines += [f"  {certificate.reason}"] if certificate.reason else []
    if certificate.outside:
        lines += ["  first state that the model does not allow:"]
        lines += [f"  {line}" for line in certificate.outside[0].splitlines()]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100, metavar="N", help="for each file system (100)")
    parser.add_argument("--fs", action="append", choices=FILE_SYSTEMS, help="repeatable (all)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the programs (0)")
    given = parser.parse_args()

    def tell(fs: str, number: int) -> None:
        if number % 10 == 0:
            print(f"{fs}: {number} of {given.programs} programs", file=sys.stderr)

    done = selftest(given.fs or (), given.programs, given.seed, tell)
    print(done.text)
    return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 2}[done.verdict]


if __name__ == "__main__":
    sys.exit(main())
