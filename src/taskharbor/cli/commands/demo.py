"""`taskharbor demo`: a short tour."""

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
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files of the tour; default: a new temporary folder.",
)
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format: table for people, json for scripts.",
)
@click.option("--dashboard", is_flag=True, help="Show a living system in the browser instead, until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", default=8420, show_default=True, help="With --dashboard."
)
def demo(folder: Path | None, output: str, dashboard: bool, port: int) -> None:
    """Run a short tour: no server, under a minute.

    Starts workers and runs jobs that succeed, jobs that fail and are retried, a job that ends in the dead letter queue,
    and a CSV import whose chunks run in parallel. Then prints commands that inspect the SQLite file it leaves behind.
    Ignores --dsn and $TASKHARBOR_DSN, so it never touches a store of yours.

    \b
    Examples:
      taskharbor demo
      taskharbor demo --dashboard

    JSON: {"dsn", "succeeded", "retries", "cents", "dead", "scheduled", "flow"}: the last three are ids.
    """
    from taskharbor.cli.demo.screen import Screen
    from taskharbor.cli.demo.tour import tour

    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="taskharbor-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if dashboard:
        from taskharbor.cli.demo.living import live

        live(folder.resolve(), port)
        return
    left = asyncio.run(tour(folder.resolve(), Screen(quiet=output == "json")))
    if output == "json":
        write_json(asdict(left))
    else:
        write(_next(left))


def _next(left: DemoResult) -> str:
    return f"""
Inspect what it left behind:

  export TASKHARBOR_DSN={left.dsn}
  taskharbor queue list
  taskharbor dlq list
  taskharbor inspect {left.dead}
  taskharbor explain {left.scheduled}
  taskharbor flow show {left.flow}

Requeue the dead job, and let a worker try it again (Ctrl-C stops the worker):

  taskharbor dlq requeue {left.dead}
  taskharbor worker run --app taskharbor.cli.demo.tasks:harbor

See it in a browser, or a living system:

  taskharbor dashboard
  taskharbor demo --dashboard"""
