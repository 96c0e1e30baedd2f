"""Groups whose commands are loaded when they are called, not before: a short command pays for itself alone.

Each command is a click command in a file of `taskharbor.cli.commands`, named after the file; one whose name means
something else to Python has an underscore behind it there (`list_`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that knows the names of its commands and one line about each, and imports a command at its first use."""

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


def load(name: str) -> click.Command:
    """The command of that name."""
    module = importlib.import_module(f"taskharbor.cli.commands.{name}")
    found = getattr(module, name, None)
    command: click.Command = found if isinstance(found, click.Command) else getattr(module, f"{name}_")
    return command
