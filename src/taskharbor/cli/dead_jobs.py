"""Dead jobs as `dlq summary`, `dlq show` and `dlq export` print them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from taskharbor.cli.job_output import is_raw, job_lines, write_executions
from taskharbor.cli.output import Column, at_terminal, style, write, write_facts, write_hanging, write_json, write_table
from taskharbor.cli.selection import as_options, filtered, in_words
from taskharbor.cli.store import Operator, act, call_store, reveal
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo
from taskharbor.ops import json_output
from taskharbor.ops.dead_kinds import DeadKind, read_kinds
from taskharbor.ops.job_view import tries_of
from taskharbor.store.diagnose import dead_commands, effects
from taskharbor.store.redaction import Redaction
from taskharbor.store.situation import Situation, read_dead
from taskharbor.store.text import command, first_line, one_line, plural, relative, was, with_distance

if TYPE_CHECKING:
    from taskharbor.store.summary import Summary

NONE = "(none)"
_TIMES = (
    Column("newest", whole=True, times=True),
    Column("oldest", whole=True, times=True),
    Column("sample", whole=True, ids=True),
)
_SHOWN = (
    "id", "type", "queue", "group", "flow_id", "priority", "attempts", "max_attempts", "timeout", "metadata",
    "created_at", "error_class", "fingerprint", "lost", "edits", "payload", "payload_bytes", "result_bytes", "hidden",
)  # fmt: skip
"""What `dlq show` prints of the facts that `inspect` knows: the executions and the reason have their own places."""
_EXPORTED = (
    "id", "type", "queue", "state", "priority", "group", "flow_id", "idempotency_key", "created_at", "run_at",
    "began_at", "failed_at", "finished_at", "attempts", "max_attempts", "deliveries", "lost", "edits", "timeout",
    "metadata", "reason", "error_class", "fingerprint", "last_error", "payload_bytes",
)  # fmt: skip
"""What `dlq export` prints of them, before the payload."""


# `dlq summary`: what kinds of dead jobs there are, in words that a person understands, and what to type next


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
    lines = ["", *_totals(summary, kinds, given), *(f"try: {each}" for each in _next(by, kinds[0], given))]
    click.echo("\n".join(lines), err=not at_terminal())  # a pipe gets rows only


def _write_table(by: str, kinds: Sequence[DeadKind], now: datetime) -> None:
    columns: tuple[Column, ...] = (Column("jobs", right=True), Column(by), *_TIMES)
    if by == "fingerprint":
        columns = (Column("jobs", right=True), Column("error"), Column("type", tail=True), *_TIMES)
    rows = []
    for kind in kinds:
        job, row = kind.sample.job, kind.row
        value = [job.error_class or NONE, job.type] if by == "fingerprint" else [first_line(kind.value(by)) or NONE]
        rows.append([f"{row.n:,}", *value, relative(row.newest, now), relative(row.oldest, now), job.id])
    if by == "fingerprint" and not at_terminal():
        columns = (*columns, Column("fingerprint"))
        rows = [[*row, kind.row.value] for row, kind in zip(rows, kinds, strict=True)]
    write_table(columns, rows, below=[kind.error for kind in kinds], title="sample error")


def _totals(summary: Summary, kinds: Sequence[DeadKind], given: dict[str, Any]) -> list[str]:
    """How many jobs and kinds there are."""
    newest = "" if summary.complete else "the newest "
    total = f"{newest}{in_words(given, summary.jobs)}"
    count = len(summary.rows)
    left_out = [f"shown: the largest {len(kinds):,}; --limit {count} shows all"] if len(kinds) < count else []
    there_are = "" if summary.complete else "; there are more jobs"
    return [f"{total}, of {plural(count, 'kind', ',')}{there_are}", *left_out]


def _next(by: str, kind: DeadKind, given: dict[str, Any]) -> list[str]:
    """What to type next about the largest kind."""
    show = command("dlq show", kind.sample.job.id)
    if by == "reason" or not kind.row.value:
        return [show]
    chosen = as_options({**given, by: kind.chosen_by(by)})
    return [show, command("dlq requeue", options=[*chosen, "--canary", "5", "--dry-run"])]


# `dlq show`: a dead job with all that a person needs to decide about it


def write_dead(target: Target, typed: str, redaction: Redaction) -> None:
    """Print a dead job: its record, why it died, every execution, what a requeue would do, and what to type next."""
    declared = None if target.harbor is None else frozenset(target.harbor.tasks)

    async def read(driver: Driver, now: datetime) -> tuple[Situation, datetime]:
        dead = await read_dead(driver, typed, now, app=target.app or "", declared=declared)
        await reveal(driver, now, redaction, [dead.info.job.id])
        return dead, now

    dead, now = call_store(target, read)
    facts = json_output.whole(dead.info, redaction, now)
    if target.json:
        would = json_output.findings(effects(dead))
        write_json({**facts, "requeue": would, "next": dead_commands(dead.info.job)}, one=is_raw(facts))
        return
    shown: dict[str, Any] = {name: facts[name] for name in _SHOWN}
    write_facts(job_lines(shown, tries_of(dead.info), now, first=()))
    write("")
    why = redaction.why(dead.info.job) or "no reason was recorded"
    write_hanging("", f"It has been dead since {with_distance(dead.info.job.finished_at, now)}: {why}")
    if facts["executions"]:
        write("")
        write_executions(facts["executions"], facts["missing"], now)
    write("")
    write(style("If it is requeued:", bold=True))
    for each in effects(dead):
        write_hanging("  - ", one_line(each.text))
        if each.hint:
            write(f"    try: {each.hint}")
    write("")
    for suggested in dead_commands(dead.info.job):
        write(f"try: {suggested}")


# `dlq export`: dead jobs as JSON lines, one record a line, always with the same keys


def write_export(target: Target, redaction: Redaction, limit: int | None, given: dict[str, Any]) -> None:
    """Print dead jobs, one a line; how many there were goes to stderr."""

    async def export(operator: Operator) -> int:
        jobs = await filtered(operator, given)
        await reveal(operator.driver, operator.now, redaction, jobs=jobs)
        number = 0
        async for info in jobs:
            write_json(record(info, redaction, operator.now), one=True)
            number += 1
            if number == limit:
                break
        return number

    number = act(target, export)
    click.echo(f"{in_words(given, number)} {was(number)} exported", err=True)


def record(info: JobInfo, redaction: Redaction, now: datetime) -> dict[str, Any]:
    """One record. `payload` is null if it is hidden; one that is not JSON is in `payload_base64`."""
    facts = json_output.whole(info, redaction, now)
    payload, encoded = _payload(info.job.payload, redaction)
    return {**{name: facts[name] for name in _EXPORTED}, "payload": payload, "payload_base64": encoded}


def _payload(data: bytes, redaction: Redaction) -> tuple[Any, str | None]:
    """The payload as JSON, with its numbers as they are written; or as base64 if it is not JSON."""
    if not redaction.show or not data:
        return None, None
    if redaction.fields:
        return redaction.value(data), None
    try:
        msgspec.json.decode(data)
        return msgspec.Raw(msgspec.json.format(data, indent=-1)), None
    except (ValueError, RecursionError):
        return None, base64.b64encode(data).decode()
