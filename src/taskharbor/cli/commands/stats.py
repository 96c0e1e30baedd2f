"""`taskharbor stats`: show queues and workers, once or continuously."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import click

from taskharbor.cli.options import duration, flag, number
from taskharbor.cli.output import at_terminal, console, terminal_width, write, write_json
from taskharbor.cli.overview import NO_WORKERS, queue_table, worker_table, write_queues, write_workers
from taskharbor.cli.store import call_store
from taskharbor.cli.table import fitted_lines, style
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.base import Driver
from taskharbor.ops.overview import Overview, read_overview
from taskharbor.store.timefmt import format_moment


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
