"""A group of commands that imports a command when it is called: most commands import half of racecheck."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from racecheck.model.errors import UsageError


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant; raises `UsageError`, with the line that works, if there is none."""
        name = args[0]
        if name not in self.known and not name.startswith("-"):
            raise UsageError(
                importlib.import_module("racecheck.frontends.cli.program").unknown_command(args, self.known)
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.known.items()))
