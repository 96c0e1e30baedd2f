"""The overview of a store as tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from taskharbor.cli.output import at_terminal, write, write_table
from taskharbor.cli.table import Column
from taskharbor.ops import json_output
from taskharbor.ops.overview import Overview
from taskharbor.store.queues import MAX_EXACT_JOBS
from taskharbor.store.text import one_line
from taskharbor.store.timefmt import format_duration, relative

ALWAYS_SHOWN = ("ready", "inflight", "dlq")  # columns that are printed even if every count is zero

NO_WORKERS = "no worker sent a heartbeat in the last minute"


def queue_table(found: Overview, *, narrow: bool) -> tuple[list[Column], list[list[str]]]:
    """The queues as a table. `narrow`: omit states that no job is in."""
    states = [
        state
        for state in json_output.STATES
        if not narrow or state in ALWAYS_SHOWN or any(row["jobs"][state] for row in found.queues)
    ]
    columns = [Column("queue"), *(Column(state, right=True) for state in states)]
    columns += [Column("workers", right=True), Column("paused", whole=True), Column("oldest wait", right=True)]
    rows = [
        [
            one_line(row["queue"]),
            *(_number(row["jobs"][state]) for state in states),
            str(row["workers"]),
            "paused" if row["paused"] else "",
            _wait(row, found.at),
        ]
        for row in found.queues
    ]
    return columns, rows


def _number(count: int) -> str:
    return f"{count}+" if count >= MAX_EXACT_JOBS else str(count)


def _wait(row: dict[str, Any], now: datetime) -> str:
    """How long the oldest ready job has waited."""
    if not row["oldest_known"]:
        return "?"
    since: datetime | None = row["oldest_ready_at"]
    return "-" if since is None else format_duration(max(now - since, timedelta()))


def worker_table(found: Overview) -> tuple[list[Column], list[list[str]]]:
    """The workers as a table."""
    columns = [Column("worker"), Column("queues"), Column("running", right=True), Column("started", whole=True)]
    columns.append(Column("last seen", whole=True))
    rows = [
        [
            one_line(row["worker"]),
            one_line(", ".join(row["queues"])),
            f"{row['running']}/{row['concurrency']}" + (f", {row['stuck']} stuck" if row["stuck"] else ""),
            relative(row["started_at"], found.at),
            relative(row["seen_at"], found.at),
        ]
        for row in found.workers
    ]
    return columns, rows


def write_queues(found: Overview) -> None:
    """Print the queues, for a person or a pipe."""
    if found.queues:
        write_table(*queue_table(found, narrow=at_terminal()))
    else:
        write("no queues")


def write_workers(found: Overview) -> None:
    """Print the workers, for a person or a pipe."""
    if found.workers:
        write_table(*worker_table(found))
    else:
        write(NO_WORKERS)
