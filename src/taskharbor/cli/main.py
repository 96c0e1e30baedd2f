"""The program `taskharbor`: its commands by name, and its way out when something is wrong.

A command's code is loaded when it is called. Errors are one clear line and a non-zero exit: `taskharbor.cli.errors`.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from taskharbor.cli.errors import report
from taskharbor.cli.lazy import LazyGroup
from taskharbor.cli.target import options

COMMANDS = {
    "worker": "Run workers.",
    "enqueue": "Store a job.",
    "inspect": "Show one job.",
    "list": "List jobs.",
    "explain": "Say why a job is not running.",
    "job": "Retry or cancel jobs.",
    "dlq": "Look at dead jobs, and bring them back.",
    "queue": "List, pause and resume queues.",
    "flow": "Show a workflow run.",
    "stats": "Show what is going on, once or again and again.",
    "migrate": "Create a store's schema, or bring it to this version.",
    "doctor": "Check a store and what is needed to use it.",
    "conformance": "Prove that a store keeps the driver contract.",
    "bench": "Measure how fast a store is here.",
    "demo": "See it all at work: one command, no server, under a minute.",
    "completion": "Print what a shell needs to complete this program.",
}


class Program(LazyGroup):
    """The root of the commands: turns whatever ends a command into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character gets its number
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            ended = super().main(args, prog_name or "taskharbor", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except Exception as error:
            _drop_output()
            sys.exit(report(error))
        sys.exit(ended if isinstance(ended, int) else 0)


def _drop_output() -> None:
    """What cannot be written is let go of: Python would try it once more at its end, and complain with its own code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@click.group(
    cls=Program,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND …",
)
@click.version_option(package_name="taskharbor", prog_name="taskharbor")
@options
def main(**_: Any) -> None:
    """Background jobs and durable workflows.

    \b
    Examples:
      taskharbor demo
      taskharbor worker run --app tasks:harbor --queues mail
      taskharbor enqueue --job echo --json '{"text": "hello"}'
      taskharbor explain 01JQZ5X7T0A8C2…

    Exit codes: 0 done, 1 refused or not found, 2 the command line is wrong, 3 the store cannot be used,
    130 interrupted.
    """
    # Events and warnings are for a worker's log; a command says what there is to say itself.
    logging.getLogger("taskharbor").addHandler(logging.NullHandler())
