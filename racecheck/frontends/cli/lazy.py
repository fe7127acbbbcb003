"""A group of commands that imports a command when it is called: most commands import half of racecheck."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands are in modules of their names, in ``racecheck.frontends.cli``.

    ``known``: the first line of each command's help, by name.
    """

    def __init__(self, *given: Any, known: Mapping[str, str], **named: Any) -> None:
        super().__init__(*given, **named)
        self.known = known

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(self.known)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in self.known:
            return None
        module = importlib.import_module(f"racecheck.frontends.cli.{cmd_name}")
        commands = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in commands if each.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.known.items()))
