"""``racecheck completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from racecheck.frontends.cli.options import Command
from racecheck.frontends.printing import say


@click.command(
    "completion",
    cls=Command,
    examples=('eval "$(racecheck completion bash)"', "racecheck completion fish > FILE  # in ~/.config/fish"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script of a SHELL: bash, zsh or fish."""
    found = get_completion_class(shell)
    assert found is not None
    say(found(context.find_root().command, {}, "racecheck", "_RACECHECK_COMPLETE").source())
    return 0
