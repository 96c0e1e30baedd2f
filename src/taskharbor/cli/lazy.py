"""Groups that import a command when it is called, so that a short command does not pay for the others.

Each command is a click command in the file of `taskharbor.cli.commands` that bears its name. A name that Python uses
itself has a trailing underscore there (`list_`), and so has the file of a keyword (`from_.py`).
"""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that holds each command's name and summary, and imports the command on first use."""

    def __init__(self, *args: Any, entries: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return load(name) if name in self.entries else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.entries.items()))


class DefaultGroup(click.Group):
    """A group in which one command may be left out: `dlq operations` is `dlq operations list`."""

    def __init__(self, *args: Any, default: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def load(name: str) -> click.Command:
    """Import and return the command `name`."""
    file = f"{name}_" if keyword.iskeyword(name) else name
    module = importlib.import_module(f"taskharbor.cli.commands.{file}")
    found = getattr(module, name, None)
    command: click.Command = found if isinstance(found, click.Command) else getattr(module, f"{name}_")
    return command
