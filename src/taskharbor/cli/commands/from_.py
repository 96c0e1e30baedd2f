"""`taskharbor from`: what to write in TaskHarbor instead of what a program of another library says."""

from __future__ import annotations

from pathlib import Path

import click

_OUTPUT = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format: table for people, json for scripts.",
)


@click.group("from")
def from_() -> None:
    """Report what to write instead of Celery or RQ, line by line."""


@from_.command()
@click.option(
    "--app", metavar="MODULE:NAME", required=True, help="The Celery application, for example proj.celery:app."
)
@click.option(
    "--scan",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Also look for calls in this file, or in the Python files below this folder (repeatable).",
)
@_OUTPUT
def celery(app: str, scan: tuple[Path, ...], output: str) -> None:
    """Report what to write instead of a Celery application, task by task and line by line. Changes nothing.

    Imports the application, with the Celery that is installed here, and reads the files in which its tasks are. For
    each place: the code there, what to write, what differs, and what has no counterpart. It contacts no broker.

    \b
    Examples:
      taskharbor from celery --app proj.celery:app
      taskharbor from celery --app proj.celery:app --scan . --output json

    JSON: {"program", "findings": [{"kind", "subject", "file", "line", "theirs", "ours", "advice": [{"level", "text"}],
    "level"}]}. kind: task, schedule, call, setting or other. level: same, differs or missing.
    """
    from taskharbor.cli.moving.celery_app import celery_findings
    from taskharbor.cli.moving.report import write_report

    write_report(app, celery_findings(app, scan), output)


@from_.command()
@click.argument("places", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="PATH...")
@_OUTPUT
def rq(places: tuple[Path, ...], output: str) -> None:
    """Report what to write instead of RQ in these files, or in the Python files below these folders.

    Reads source code only: it imports nothing, contacts no Redis and changes nothing.

    \b
    Examples:
      taskharbor from rq .
      taskharbor from rq jobs.py web/ --output json

    JSON: as of taskharbor from celery.
    """
    from taskharbor.cli.moving.report import write_report
    from taskharbor.cli.moving.rq_calls import rq_findings

    write_report(", ".join(map(str, places)), rq_findings(places), output)
