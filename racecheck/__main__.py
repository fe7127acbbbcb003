"""The command ``racecheck``, also as ``python -m racecheck``.  Ctrl-C ends it while it imports as at any other time."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def entry() -> int:
    """Run the command of this process and return the exit status (`racecheck.frontends.cli.main`)."""
    try:
        from racecheck.frontends.cli.main import entry as run  # noqa: PLC0415  (an import may be interrupted)

        status = run()
    except KeyboardInterrupt:
        sys.stderr.write("racecheck: interrupted\n")
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        # An interrupt within exec(), which dataclasses call, is remembered, and Python would end by SIGINT after all.
        # The next exec() forgets it (run_eval_code_obj in CPython).
        exec("")  # noqa: S102  (an empty text)
    return status


if __name__ == "__main__":
    sys.exit(entry())
