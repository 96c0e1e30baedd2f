"""The program `taskharbor`: its commands by name, and how it ends when something goes wrong.

A command's code is imported when the command is called. An error becomes one clear line and a non-zero exit code; see
`taskharbor.cli.errors`.
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
    "explain": "Explain why a job is not running.",
    "job": "Show, change, retry, cancel or delete jobs.",
    "dlq": "Inspect, correct, requeue and delete dead jobs.",
    "queue": "List, pause and resume queues.",
    "flow": "List, show, cancel and requeue workflows.",
    "schedule": "List, add, change, pause and run schedules.",
    "audit": "Show who changed what.",
    "task": "List the tasks of an application.",
    "stats": "Show queues and workers, once or continuously.",
    "dashboard": "Show the store in a browser.",
    "migrate": "Create or upgrade the schema of a store.",
    "outbox": "Print the tables for a database of your own.",
    "doctor": "Check a store and everything needed to use it.",
    "conformance": "Test a driver against the driver contract.",
    "bench": "Measure how fast a store is on this machine.",
    "from": "Report what to write instead of Celery or RQ.",
    "demo": "Run a short tour: no server, under a minute.",
    "completion": "Print a shell completion script.",
}


class Program(LazyGroup):
    """The root of the commands: turns every error into one line and an exit code."""

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
        for stream in (sys.stdout, sys.stderr):  # escape a character that the terminal cannot encode
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
    """Discard output that cannot be written: Python would retry at exit and end with an exit code of its own."""
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
      taskharbor explain 01JQZ5X7T0A8

    Wherever a job's id is expected, a unique prefix of at least 4 characters is enough, unless the application chose
    the id.

    Exit codes: 0 success; 1 not found, refused, or a check failed; 2 usage error; 3 the store cannot be used;
    70 a bug; 130 interrupted.
    """
    # Events and warnings belong in a worker's log; a command prints its own output.
    logging.getLogger("taskharbor").addHandler(logging.NullHandler())
