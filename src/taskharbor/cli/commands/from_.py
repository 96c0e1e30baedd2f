"""`taskharbor from`: what to write in TaskHarbor instead of what a program of another library says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.errors import as_usage_error, usage_error
from taskharbor.cli.options import output_option, word
from taskharbor.cli.output import style, write_hanging, write_json
from taskharbor.store.text import one_line

if TYPE_CHECKING:
    from taskharbor.moving.findings import Finding

_MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "same": ("note", {"dim": True}),
    "differs": ("differs", {"fg": "yellow"}),
    "missing": ("missing", {"fg": "red"}),
}
"""The word and the colour for a level of advice."""
_WIDTH = 9  # of a mark and its gap
_COUNTED = ("task", "schedule", "call", "setting")


@click.group("from")
def from_() -> None:
    """Report what to write instead of Celery or RQ, line by line."""


@from_.command()
@word("--app", "MODULE:NAME", "The Celery application, for example proj.celery:app.", required=True)
@word(
    "--scan",
    "PATH",
    "Also look for calls in this file, or in the Python files below this folder (repeatable).",
    type=click.Path(path_type=Path),
    multiple=True,
)
@output_option
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
    from taskharbor.moving.celery_app import celery_findings

    _write_report(app, celery_findings(_celery_app(app), app.partition(":")[0], scan), output)


def _celery_app(path: str) -> Any:
    """The application that `module:name` names, with its tasks imported."""
    from taskharbor.cli.app import broken_import, named

    app: Any = named(path, "proj.celery:app")
    # Asked of the class: reading app.tasks would finalize an application whose tasks are not imported yet.
    if not all(hasattr(type(app), name) for name in ("tasks", "conf", "finalize")):
        raise usage_error(f"--app {path}: expected a Celery application, found a {type(app).__name__}")
    try:
        app.loader.import_default_modules()
        app.finalize()
    except Exception as error:
        raise broken_import(f"--app {path}", "its tasks", error) from error
    return app


@from_.command()
@click.argument("places", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="PATH...")
@output_option
def rq(places: tuple[Path, ...], output: str) -> None:
    """Report what to write instead of RQ in these files, or in the Python files below these folders.

    Reads source code only: it imports nothing, contacts no Redis and changes nothing.

    \b
    Examples:
      taskharbor from rq .
      taskharbor from rq jobs.py web/ --output json

    JSON: as of taskharbor from celery.
    """
    from taskharbor.moving.rq_calls import rq_findings

    _write_report(", ".join(map(str, places)), rq_findings(places), output)


def _write_report(program: str, findings: Iterable[Finding], output: str) -> None:
    """Print the findings in the order of files and lines; `json` for scripts, else for people."""
    import msgspec

    from taskharbor.moving.source import CannotRead

    here = os.path.join(os.getcwd(), "")
    with as_usage_error("", CannotRead):
        moved = [
            msgspec.structs.replace(each, file=os.path.relpath(each.file, here)) if each.file.startswith(here) else each
            for each in findings
        ]
    ordered = sorted(moved, key=lambda finding: (not finding.file, finding.file, finding.line))
    if output == "json":
        rows: list[Any] = [{**msgspec.to_builtins(finding), "level": finding.level} for finding in ordered]
        write_json({"program": program, "findings": rows})
        return
    for file, group in groupby(ordered, key=lambda finding: finding.file):
        click.echo(style(one_line(file) if file else "Settings, and the rest", bold=True))
        click.echo()
        for finding in group:
            _write(finding)
    _write_summary(program, ordered)


def _write(finding: Finding) -> None:
    label = str(finding.line) if finding.line else ""
    first, *more = finding.theirs.splitlines() or [finding.subject]
    click.echo(f"{style(f'{label:>5}', dim=True)}  {one_line(first)}")
    for line in more:
        click.echo(f"{'':7}{one_line(line)}")
    mark = "write"
    for line in finding.ours.splitlines():
        kept = line[: len(line) - len(line.lstrip())] + one_line(line.lstrip())  # with its indentation
        click.echo(f"{'':7}{style(f'{mark:<{_WIDTH}}', fg='green')}{style(kept, fg='green')}" if line else "")
        mark = ""
    for advice in finding.advice:
        word, colour = _MARKS[advice.level]
        write_hanging(f"{'':7}{style(f'{word:<{_WIDTH}}', **colour)}", one_line(advice.text))
    click.echo()


def _write_summary(program: str, findings: list[Finding]) -> None:
    counts = ", ".join(f"{sum(each.kind == kind for each in findings)} {kind}s" for kind in _COUNTED)
    click.echo(style(f"{one_line(program)}: {counts}", bold=True))
    without = [finding for finding in findings if finding.level == "missing"]
    other = sum(finding.level == "differs" for finding in findings)
    click.echo(f"  {len(findings) - len(without) - other} behave alike, {other} work in another way,")
    click.echo(f"  {len(without)} have something without a counterpart{':' if without else '.'}")
    for finding in without:
        place = f"{finding.file}:{finding.line}" if finding.line else finding.file or finding.subject
        for advice in finding.advice:
            if advice.level == "missing":
                write_hanging(f"  {style(one_line(place), fg='red')}  ", one_line(advice.text))
