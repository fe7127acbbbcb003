"""The command line, whose searches return a canned report at once: FAIL for a scenario ``bad``, else PASS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext

from racecheck.explore import search
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.frontends.cli.main import entry
from racecheck.model.nouns import Verdict
from racecheck.sessions.doctor.examination import Starting
from tests.support.reports import report


def explore(_session: object, asked: Search, _tell: object, announce: Callable[[Report], None], _: object) -> Report:
    if asked.scenario.name != "bad":
        return report(verdict=Verdict.PASS, violations=[])
    announce(report())
    return report()


if __name__ == "__main__":
    Starting.lent = lambda _: nullcontext(None)
    search.explore = explore
    sys.exit(entry())
