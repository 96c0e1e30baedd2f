"""Ask for confirmation before a change that cannot be undone."""

from __future__ import annotations

import sys

import click

from taskharbor.cli.errors import EXIT_USAGE, CommandError


def confirm(question: str, yes: bool) -> None:
    """Return if the user agrees or passed `--yes`; raise CommandError otherwise, or if stdin is not a terminal."""
    if yes:
        return
    expect_person(yes)
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")


def expect_person(yes: bool) -> None:
    """CommandError if a question would have to be asked, and stdin is not a terminal."""
    if not yes and not sys.stdin.isatty():
        raise CommandError("confirmation required, but stdin is not a terminal; pass --yes", EXIT_USAGE)
