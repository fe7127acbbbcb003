"""pytest, run by a test on a project of its own."""

from __future__ import annotations

import importlib.metadata

import pytest

INSTALLED = importlib.metadata.entry_points(group="pytest11", name="racecheck")
PLUGIN = () if INSTALLED else ("-p", "racecheck.frontends.pytest_plugin")
"""From a checkout that is not installed the plugin has to be named."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, *arguments, timeout=180)
