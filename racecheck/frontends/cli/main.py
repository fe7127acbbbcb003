"""The command line.

Exit status: 0 PASS, 1 FAIL (of a replay: reproduced), 2 wrong usage or input, 3 UNKNOWN, 130 interrupted.
The verdict goes to standard output, with ``--json`` as one object; everything else goes to standard error.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from racecheck.frontends.cli import streams
from racecheck.frontends.cli.lazy import LazyGroup
from racecheck.frontends.cli.output import EXIT, INTERRUPTED, WRONG, complain, unknown
from racecheck.frontends.interrupts import Interrupted, as_interrupt
from racecheck.frontends.printing import printable, say
from racecheck.model import config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Verdict
from racecheck.model.package import VERSION

_OF_PATHS = frozenset({
    errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS
})  # fmt: skip
"""The errors of a path that this user cannot use."""
_OF_THE_MACHINE = frozenset({
    errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC
})  # fmt: skip
"""The errors of a full disk or a limit that is reached."""


def entry() -> int:
    """Run the command of this process and return the exit status, whatever state its standard streams are in."""
    streams.secure()
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.  SIGTERM ends it as Ctrl-C does, so that it leaves nothing behind.

    Nothing that goes wrong with racecheck itself may look like a FAIL, which is status 1.
    """
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    try:
        with as_interrupt(signal.SIGTERM):
            return int(commands.main(arguments, prog_name="racecheck", standalone_mode=False) or 0)
    except (UsageError, click.ClickException) as error:
        return complain(_message(error), WRONG)
    except CannotRun as error:
        data = {"verdict": Verdict.UNKNOWN.name, "reasons": [str(error)]}
        return unknown(data, as_json=as_json)
    except Interrupted as far:
        return complain(str(far), INTERRUPTED)
    except (click.Abort, KeyboardInterrupt):
        return complain("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        if isinstance(error, OSError) and _is_of_the_user(error, words):
            return complain(f"{error.filename}: {error.strerror}", WRONG)
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            reason = f"{error.filename or 'this machine'}: {error.strerror}; free some, or set RACECHECK_RUNS"
            return unknown({"verdict": Verdict.UNKNOWN.name, "reasons": [reason]}, as_json=as_json)
        click.echo(printable(traceback.format_exc()), err=True)
        return complain(str(InternalError(f"{type(error).__name__}: {error}")), EXIT[Verdict.UNKNOWN])


def _is_of_the_user(error: OSError, arguments: Sequence[str]) -> bool:
    """Return whether an error is about a path in the arguments, or one that leads there or to a directory of settings.

    Files below the directories of settings are racecheck's own.
    """
    if error.errno not in _OF_PATHS or not isinstance(error.filename, str | bytes | os.PathLike):
        return False
    settings = config.read()
    given = [Path(os.path.abspath(part)) for word in arguments for part in re.split("=|::", word) if part]
    path = Path(os.path.abspath(os.fsdecode(error.filename)))
    leads = any(each.is_relative_to(path) for each in (*given, settings.findings.absolute(), settings.runs.absolute()))
    return leads or any(path.is_relative_to(each) for each in given)


def _message(error: UsageError | click.ClickException) -> str:
    if isinstance(error, UsageError):
        return str(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "racecheck"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


_START = """\
racecheck finds, explains and replays race conditions in distributed checkpoint code.

  racecheck doctor       Can this machine run it?
  racecheck list         Which scenarios are below ./scenarios?
  racecheck run TARGET   Explore a scenario; TARGET is path/to/file.py::name.
  racecheck run --watch DIR -- torchrun ...
                         Explore what your launch command does in DIR.
  racecheck guide        How do I write my own?
  racecheck --help       All commands."""


_COMMANDS = {
    "completion": "Print the completion script of a shell.",
    "doctor": "Check whether this machine can run controlled worlds.",
    "explain": "Explain a name that a report prints.",
    "gate": "Run the conformance suite on a checkpointer.",
    "guide": "Show a page of the guide.",
    "merge": "Join the shards of a gate.",
    "list": "List the scenarios in files and directories.",
    "predict": "Find the races of one passing run.",
    "replay": "Run a finding again and count how often it reproduces.",
    "report": "Draw a finding as one HTML file.",
    "run": "Explore a scenario or a launch command.",
    "trace": "Write a finding as a trace for Perfetto.",
}


@click.group(cls=LazyGroup, known=_COMMANDS, invoke_without_command=True)
@click.version_option(VERSION)
@click.pass_context
def commands(context: click.Context) -> int:
    """Find, explain and replay race conditions in distributed checkpoint code."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists: change to another one") from None
    if context.invoked_subcommand is None:
        say(_START)
    return 0
