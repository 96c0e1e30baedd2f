"""`taskharbor demo`: a short tour."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taskharbor.cli.options import flag, number, output_option
from taskharbor.cli.output import style, write, write_json

if TYPE_CHECKING:
    from taskharbor.cli.demo.tour import DemoResult


@click.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files of the tour; default: a new temporary folder.",
)
@output_option
@flag("--dashboard", "Show a living system in the browser instead, until Ctrl-C.")
@number("--port", "With --dashboard.", low=0, high=65535, default=8420)
def demo(folder: Path | None, output: str, dashboard: bool, port: int) -> None:
    """Run a short tour: no server, under a minute.

    Starts two worker processes and runs jobs that succeed, jobs that fail and are retried, a job that ends in the dead
    letter queue, and a CSV import whose chunks run in parallel. Halfway it kills one of the processes. Then it prints
    commands that inspect the SQLite file that it leaves behind. It ignores --dsn and $TASKHARBOR_DSN, so it never
    touches a store of yours.

    \b
    Examples:
      taskharbor demo
      taskharbor demo --dashboard

    JSON: {"dsn", "succeeded", "retries", "again", "cents", "dead", "scheduled", "flow"}: the last three are ids. again:
    how many jobs of the killed process were run again.
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
    from taskharbor.cli.demo import tasks
    from taskharbor.cli.demo.tour import APP

    def head(text: str) -> str:
        return style(text, bold=True)

    own = _command()
    source = os.path.relpath(tasks.__file__)
    return f"""
{head("Look at what it left behind:")}

  export TASKHARBOR_DSN={left.dsn}
  {own} dlq list
  {own} inspect {left.dead}
  {own} explain {left.scheduled}
  {own} flow show {left.flow}

{head("Bring the dead job back; a worker tries it again (Ctrl-C stops it):")}

  {own} dlq requeue {left.dead}
  {own} worker run --app {APP}

{head("Open the dashboard, with a living system in it:")}

  {_dashboard(own)}

{head("Read the tasks that just ran:")}

  {source if len(source) < len(tasks.__file__) else tasks.__file__}"""


def _command() -> str:
    """How to type this program: its name if the shell finds it, else where it is."""
    here = Path(sys.executable).with_name("taskharbor")
    if not here.exists():
        return "python -m taskharbor"
    found = shutil.which("taskharbor")
    if found is not None and Path(found).absolute() == here.absolute():
        return "taskharbor"
    return shlex.quote(min(os.path.relpath(here), str(here), key=len))


def _dashboard(own: str) -> str:
    """The command for the dashboard, with what installs it where it is missing."""
    from importlib.util import find_spec

    if all(find_spec(name) for name in ("starlette", "jinja2", "uvicorn")):
        return f"{own} demo --dashboard"
    if "MAKELEVEL" in os.environ:  # `make demo` in a clone; `make dashboard` installs it there
        return "make dashboard"
    return f"pip install 'taskharbor[dashboard]' && {own} demo --dashboard"
