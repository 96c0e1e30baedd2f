"""The report for a person: file by file, the code there, what to write, and what to know."""

from __future__ import annotations

from itertools import groupby

import click

from taskharbor.cli.moving.findings import Finding, MovingReport
from taskharbor.cli.output import write_hanging
from taskharbor.cli.table import style
from taskharbor.ops.text import one_line

_MARKS = {"same": ("note", "dim"), "differs": ("differs", "yellow"), "missing": ("missing", "red")}
_WIDTH = 9  # of a mark and its gap


def write_report(report: MovingReport) -> None:
    """Print the report."""
    for file, findings in groupby(report.findings, key=lambda finding: finding.file):
        click.echo(style(one_line(file) if file else "Settings, and the rest", bold=True))
        click.echo()
        for finding in findings:
            _write(finding)
    _write_summary(report)


def _write(finding: Finding) -> None:
    label = str(finding.line) if finding.line else ""
    first, *more = finding.theirs.splitlines() or [finding.subject]
    click.echo(f"{style(f'{label:>5}', dim=True)}  {one_line(first)}")
    for line in more:
        click.echo(f"{'':7}{one_line(line)}")
    for number, line in enumerate(finding.ours.splitlines()):
        mark = "write" if number == 0 else ""
        if not line:
            click.echo()
            continue
        click.echo(f"{'':7}{style(f'{mark:<{_WIDTH}}', fg='green')}{style(one_line_kept(line), fg='green')}")
    for advice in finding.advice:
        word, colour = _MARKS[advice.level]
        text = f"{word:<{_WIDTH}}"
        shown = style(text, dim=True) if colour == "dim" else style(text, fg=colour)
        write_hanging(f"{'':7}{shown}", one_line(advice.text))
    click.echo()


def one_line_kept(line: str) -> str:
    """A line of code, cleaned, with its indentation."""
    return line[: len(line) - len(line.lstrip())] + one_line(line.lstrip())


def _write_summary(report: MovingReport) -> None:
    kinds = (("task", "tasks"), ("schedule", "schedules"), ("call", "calls"), ("setting", "settings"))
    counts = ", ".join(f"{report.count(kind)} {words}" for kind, words in kinds)  # type: ignore[arg-type]  # literals
    click.echo(style(f"{one_line(report.program)}: {counts}", bold=True))
    without = [finding for finding in report.findings if finding.level == "missing"]
    other = sum(finding.level == "differs" for finding in report.findings)
    click.echo(f"  {len(report.findings) - len(without) - other} behave alike, {other} work in another way,")
    click.echo(f"  {len(without)} have something without a counterpart{':' if without else '.'}")
    for finding in without:
        texts = [one_line(advice.text) for advice in finding.advice if advice.level == "missing"]
        place = f"{finding.file}:{finding.line}" if finding.line else finding.file or finding.subject
        for text in texts:
            write_hanging(f"  {style(one_line(place), fg='red')}  ", text)
