"""`taskharbor stats`: show queues and workers, once or continuously."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import click

from taskharbor.cli.options import duration, flag, number
from taskharbor.cli.output import (
    Column,
    at_terminal,
    console,
    fitted_lines,
    style,
    terminal_width,
    write,
    write_json,
    write_table,
)
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.base import Driver
from taskharbor.ops import json_output
from taskharbor.ops.overview import Overview, read_overview
from taskharbor.store.queues import MAX_EXACT_JOBS
from taskharbor.store.text import format_duration, format_moment, one_line, relative

ALWAYS_SHOWN = ("ready", "inflight", "dlq")  # columns that are printed even if every count is zero
NO_WORKERS = "no worker sent a heartbeat in the last minute"


@click.command()
@flag("--watch", "Refresh until Ctrl-C.")
@duration("--interval", "Time between refreshes.", default="2s", show_default=True)
@number("--count", "With --watch: stop after N refreshes.")
@shared
def stats(target: Target, watch: bool, interval: timedelta, count: int | None) -> None:
    """Show queues and workers: jobs by state, and the workers that sent a heartbeat in the last minute.

    \b
    Examples:
      taskharbor stats
      taskharbor stats --watch --interval 5s
      taskharbor stats --watch --count 10 --output json

    JSON: {"at", "queues": [as for `taskharbor queue list`], "workers": [{"worker", "queues", "running", "concurrency",
    "stuck", "host", "pid", "started_at", "seen_at"}]}; with --watch one line per refresh.
    """
    if not watch:
        _write(call_store(target, read_overview), target, one=False)
        return
    try:
        call_store(target, lambda driver, now: _watch(driver, now, target, max(interval.total_seconds(), 0.1), count))
    except KeyboardInterrupt:  # the usual way to stop it
        pass


async def _watch(driver: Driver, now: datetime, target: Target, interval: float, count: int | None) -> None:
    live = None
    found = None
    if at_terminal() and not target.json:
        from rich.live import Live
        from rich.text import Text

        live = Live(console=console(), auto_refresh=False, screen=True)
        live.start()
    try:
        refreshes = 0
        while count is None or refreshes < count:
            if refreshes:
                await asyncio.sleep(interval)
                now = await driver.server_time()
            refreshes += 1
            found = await read_overview(driver, now)
            if live is not None:
                live.update(Text.from_ansi("\n".join(_lines(found, live.console.width))), refresh=True)
            else:
                _write(found, target, one=True)
    finally:
        if live is not None:
            live.stop()
            if found is not None:  # the alternate screen is gone: print its last content
                click.echo("\n".join(_lines(found, terminal_width())))


def _write(found: Overview, target: Target, *, one: bool) -> None:
    if target.json:
        write_json({"at": found.at, "queues": found.queues, "workers": found.workers}, one=one)
        return
    if one:
        write(format_moment(found.at))
    write_queues(found)
    write("")
    write_workers(found)
    if one:
        write("")


def _lines(found: Overview, width: int) -> list[str]:
    """The overview as lines for a terminal of this width."""
    queues = fitted_lines(*queue_table(found, narrow=True), width) if found.queues else ["no queues"]
    workers = fitted_lines(*worker_table(found), width) if found.workers else [style(NO_WORKERS, fg="yellow")]
    return [style(format_moment(found.at), dim=True), *queues, "", *workers]


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
