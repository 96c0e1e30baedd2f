"""Asking before something is changed that cannot be taken back."""

from __future__ import annotations

import sys

import click

from taskharbor.cli.errors import EXIT_USAGE, CommandError


def confirm(question: str, yes: bool) -> None:
    """Go on if a person says yes, or `--yes` did; without a person to ask, refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("this asks before it changes anything, and nobody is there to answer: add --yes", EXIT_USAGE)
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")
