"""`dlq summary`: what kinds of dead jobs there are, in words that a person understands, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.acting import Operator, act
from taskharbor.cli.output import at_terminal, write_json, write_table
from taskharbor.cli.selection import filtered, in_words
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target
from taskharbor.ops import json_output
from taskharbor.ops.dead_kinds import DeadKind, read_kinds
from taskharbor.ops.text import first_line
from taskharbor.ops.timefmt import relative

if TYPE_CHECKING:
    from taskharbor.client.summary import Summary

NONE = "(none)"
_TIMES = (
    Column("newest", whole=True, times=True),
    Column("oldest", whole=True, times=True),
    Column("sample", whole=True, ids=True),
)


def write_summary(target: Target, by: str, limit: int, given: dict[str, Any]) -> None:
    """Count dead jobs by what they have in common, and print the largest kinds."""

    async def read(operator: Operator) -> tuple[Summary, list[DeadKind], datetime]:
        key: Any = by
        summary = await (await filtered(operator, given)).asummary(key)
        return summary, await read_kinds(operator.driver, operator.now, summary, limit), operator.now

    summary, kinds, now = act(target, read)
    if target.json:
        write_json(json_output.dead_summary(summary, kinds, by))
        return
    if not kinds:
        click.echo(f"no {in_words(given)}", err=True)
        return
    _write_table(by, kinds, now)
    told = [*_totals(summary, kinds, given), *(f"try: {command}" for command in _next(by, kinds[0], given))]
    click.echo("\n".join(["", *told]), err=not at_terminal())  # a pipe gets rows only


def _write_table(by: str, kinds: Sequence[DeadKind], now: datetime) -> None:
    columns: tuple[Column, ...] = (Column("jobs", right=True), Column(by), *_TIMES)
    if by == "fingerprint":
        columns = (Column("jobs", right=True), Column("error"), Column("type", tail=True), *_TIMES)
    rows = []
    for kind in kinds:
        job, row = kind.sample.job, kind.row
        value = [job.error_class or NONE, job.type] if by == "fingerprint" else [first_line(kind.value(by)) or NONE]
        rows.append([f"{row.n:,}", *value, relative(row.newest, now), relative(row.oldest, now), job.id])
    errors = [kind.error for kind in kinds]
    if at_terminal():
        write_table(columns, rows, below=errors)
        return
    extra = [
        [kind.row.value, error] if by == "fingerprint" else [error] for kind, error in zip(kinds, errors, strict=True)
    ]
    titles = [Column("fingerprint"), Column("sample error")] if by == "fingerprint" else [Column("sample error")]
    write_table((*columns, *titles), [[*row, *more] for row, more in zip(rows, extra, strict=True)])


def _totals(summary: Summary, kinds: Sequence[DeadKind], given: dict[str, Any]) -> list[str]:
    """How many jobs and kinds there are."""
    newest = "" if summary.complete else "the newest "
    total = f"{newest}{summary.jobs:,} {in_words(given)}"
    if summary.jobs == 1:
        total = total.replace("jobs", "job", 1)
    count = len(summary.rows)
    left_out = [f"shown: the largest {len(kinds):,}; --limit {count} shows all"] if len(kinds) < count else []
    there_are = "" if summary.complete else "; there are more jobs"
    return [f"{total}, of {count:,} kind{'' if count == 1 else 's'}{there_are}", *left_out]


def _next(by: str, kind: DeadKind, given: dict[str, Any]) -> list[str]:
    """What to type next about the largest kind."""
    show = f"taskharbor dlq show {kind.sample.job.id}"
    if by == "reason" or not kind.row.value:
        return [show]
    chosen = options_of({**given, by: kind.chosen_by(by)})
    return [show, f"taskharbor dlq requeue {chosen} --canary 5 --dry-run"]


def options_of(given: dict[str, Any]) -> str:
    """A filter as options to type."""
    words = []
    for name, value in given.items():
        if name == "state":
            continue
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, timedelta):
            value = f"{value.total_seconds():g}s"
        words += [f"--{name.replace('_', '-')}", shlex.quote(value)]
    return " ".join(words)
