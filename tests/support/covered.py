"""A process that runs the command line on launch commands, one after another, below one cover and in one session.

Starting Python, the layer, the session and the launcher takes longer than most searches; so the tests of a module
share them.  What a launcher starts is captured once for each command: it depends on nothing that a test changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from racecheck.explore.runs.workers import Workers
from racecheck.frontends import launching
from racecheck.frontends.cli.main import main
from racecheck.model import config
from racecheck.model.config import Config
from racecheck.sessions.launchers import capture, scripts, wrapping
from racecheck.sessions.session import Slot

ROOT = Path(__file__).parents[2]


class Covered:
    """The process, seen from a test; findings are real below one directory."""

    def __init__(self, findings: Path) -> None:
        self._findings = findings
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RACECHECK_FINDINGS": str(findings)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.covered"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, words: Sequence[Any], directory: Path, findings: Path) -> tuple[int, str]:
        """Run a command in a directory; returns its status and its output."""
        assert findings.is_relative_to(self._findings)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"words": [*map(str, words)], "directory": str(directory), "findings": str(findings)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["out"] or answer["err"]

    def close(self) -> None:
        self._process.communicate()


class Captures:
    """What launchers start, captured once for each command."""

    def __init__(self) -> None:
        self._really, self._known = capture.capture, dict[tuple[str, ...], str]()

    def __call__(self, command: Sequence[str], see: capture.See) -> tuple[list[capture.Started], Sequence[str]]:
        if scripts.is_it(command) or wrapping.is_it(command):
            return self._really(command, see)  # the script itself runs
        here, words = os.getcwd(), (*command,)
        if words not in self._known:
            added = [_added(each) for each in self._really(command, see)[0]]
            self._known[words] = json.dumps(added).replace(here, "{here}")
        return [_started(each) for each in json.loads(self._known[words].replace("{here}", here))], command


def _added(one: capture.Started) -> dict[str, Any]:
    """Return a started process without the variables that the launcher itself was started with."""
    own = {name: value for name, value in one.environment.items() if os.environ.get(name) != value}
    return {**asdict(one), "environment": own}


def _started(raw: dict[str, Any]) -> capture.Started:
    environment = {**os.environ, **raw["environment"]}
    return capture.Started(**{**raw, "arguments": tuple(raw["arguments"]), "environment": environment})


class Shared(launching.LastingCover):
    """The cover of all commands: all findings are real, not only those of the first command."""

    def __init__(self, settings: Config) -> None:
        super().__init__(settings)
        self._every = settings.findings

    def _slot(self, watched: Path, kept: Sequence[str], used: Sequence[Path]) -> Slot:
        here, self.findings = self.findings, self._every
        try:
            return super()._slot(watched, kept, used)
        finally:
            self.findings = here

    def of(self, settings: Config, workers: Workers | None = None) -> Shared:
        """In place of `launching.Cover`."""
        del workers
        self.findings = settings.findings.absolute()
        return self

    def lent(self, settings: Config, workers: Workers | None, *, is_asked_twice: bool) -> nullcontext[Shared]:
        """In place of `launching.cover_of`."""
        del workers, is_asked_twice
        return nullcontext(self.of(settings))


def serve() -> None:
    """Answer the commands on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    with closing(Shared(config.read())) as cover:
        launching.Cover, launching.cover_of, capture.capture = cover.of, cover.lent, Captures()
        for line in sys.stdin:
            asked = json.loads(line)
            os.chdir(asked["directory"])
            os.environ["RACECHECK_FINDINGS"] = asked["findings"]
            status, out, err = _caught(partial(main, asked["words"]))
            answers.write(json.dumps({"status": status, "out": out, "err": err}) + "\n")
            answers.flush()
            os.chdir("/")


def _caught(run: Callable[[], int]) -> tuple[int, str, str]:
    """Return the status of a command, its standard output and its standard error."""
    before = os.dup(1), os.dup(2)
    with open(os.memfd_create("out"), "w+") as out, open(os.memfd_create("err"), "w+") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            status = run()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in enumerate(before, 1):
                os.dup2(saved, number)
                os.close(saved)
        texts = []
        for each in (out, err):
            each.seek(0)
            texts.append(each.read())
    return status, texts[0], texts[1]


if __name__ == "__main__":
    serve()
