"""`taskharbor demo`: the tour."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taskharbor.cli.output import write, write_json

if TYPE_CHECKING:
    from taskharbor.cli.demo.tour import DemoResult


@click.command()
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to put it; default: a new temporary one."
)
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", help="For people, or JSON for scripts."
)
def demo(folder: Path | None, output: str) -> None:
    """See it all at work: one command, no server, under a minute.

    Starts workers, runs jobs that succeed, jobs that fail and are retried, one that ends in the dead letter queue and a
    CSV import whose chunks run side by side; then names the commands to look at what it left in its SQLite file. Takes
    no --dsn and no $TASKHARBOR_DSN: it touches no store of yours.

    \b
    Example:
      taskharbor demo

    JSON: {"dsn", "succeeded", "retries", "cents", "dead", "scheduled", "flow"}: the last three are ids.
    """
    from taskharbor.cli.demo.screen import Screen
    from taskharbor.cli.demo.tour import tour

    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="taskharbor-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    left = asyncio.run(tour(folder.resolve(), Screen(quiet=output == "json")))
    if output == "json":
        write_json(asdict(left))
    else:
        write(_next(left))


def _next(left: DemoResult) -> str:
    return f"""
Look at what it left:

  export TASKHARBOR_DSN={left.dsn}
  taskharbor queue list
  taskharbor dlq list
  taskharbor inspect {left.dead}
  taskharbor explain {left.scheduled}
  taskharbor flow show {left.flow}

Bring the dead job back, and let a worker try it again (Ctrl-C ends it):

  taskharbor dlq requeue {left.dead}
  taskharbor worker run --app taskharbor.cli.demo.tasks:harbor"""
