"""The comparison of a real launcher with racecheck's, as text and as data for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from racecheck.explore.launcher_check import LauncherCheck

_SHOWN = 20
"""The most differences that are shown; the rest is counted."""


def text(check: LauncherCheck) -> str:
    """Return the comparison for people: one line, and one for each difference."""
    both, size = f"{check.launcher} and racecheck", f"{check.ranks} ranks, {check.ops} ops in the watched directory"
    killed = ", ".join(f"rank {each}" for each in check.killed)
    luck = f"; {killed} ended by a signal in the first of two runs by {check.launcher}" if killed else ""
    if not check.differences:
        return f"PASS  {both} run this program alike: {size}, their results, the exit statuses{luck}"
    count = len(check.differences)
    counted = f"{count} difference{'s' * (count > 1)}"
    lines = [f"FAIL  {both} do not run this program alike: {size}, {counted}{luck}"]
    width = max(len(check.launcher), len("racecheck"))
    for each in check.differences[:_SHOWN]:
        lines.append(f"      rank {each.rank}  {check.launcher:{width}}  {each.real or '-'}")
        lines.append(f"              {'racecheck':{width}}  {each.emulated or '-'}")
    if count > _SHOWN:
        lines.append(f"      {count - _SHOWN} more")
    return "\n".join(lines)


def data(check: LauncherCheck) -> dict[str, Any]:
    """Return the data that ``racecheck run --check-launcher --json`` prints."""
    return {"verdict": check.verdict.name, **asdict(check)}
