"""`taskharbor stats`: queues and workers, once or again and again."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import click

from taskharbor.cli import timefmt
from taskharbor.cli.output import at_terminal, console, rich_table, write, write_json
from taskharbor.cli.overview import Overview, queue_table, read_overview, worker_table, write_queues, write_workers
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.contract import Driver


@click.command()
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--interval",
    callback=timefmt.parse_duration,
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="Time between two refreshes.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --watch: stop after N refreshes.")
@shared
def stats(target: Target, watch: bool, interval: timedelta, count: int | None) -> None:
    """Show what is going on: jobs by queue and state, and the workers heard in the last minute.

    \b
    Examples:
      taskharbor stats
      taskharbor stats --watch --interval 5s
      taskharbor stats --watch --count 10 --output json

    JSON: {"at", "queues": [as of `taskharbor queue list`], "workers": [{"worker", "queues", "running", "concurrency",
    "stuck", "host", "pid", "started_at", "seen_at"}]}; with --watch one line for each refresh.
    """
    if not watch:
        _tell(call_store(target, read_overview), target, one=False)
        return
    try:
        call_store(target, lambda driver, now: _watch(driver, now, target, max(interval.total_seconds(), 0.1), count))
    except KeyboardInterrupt:  # the usual way to end it
        pass


async def _watch(driver: Driver, now: datetime, target: Target, interval: float, count: int | None) -> None:
    live = None
    found = None
    if at_terminal() and not target.json:
        from rich.live import Live

        live = Live(console=console(), auto_refresh=False, screen=True)
        live.start()
    try:
        looks = 0
        while count is None or looks < count:
            if looks:
                await asyncio.sleep(interval)
                now = await driver.server_time()
            looks += 1
            found = await read_overview(driver, now)
            if live is not None:
                live.update(_picture(found, live.console.width), refresh=True)
            else:
                _tell(found, target, one=True)
    finally:
        if live is not None:
            live.stop()
            if found is not None:  # the screen was the watch's own: what it showed last stays
                live.console.print(_picture(found, live.console.width))


def _tell(found: Overview, target: Target, *, one: bool) -> None:
    if target.json:
        write_json({"at": found.at, "queues": found.queues, "workers": found.workers}, one=one)
        return
    if one:
        write(timefmt.format_moment(found.at))
    write_queues(found)
    write("")
    write_workers(found)
    if one:
        write("")


def _picture(found: Overview, width: int) -> Any:
    """The same as one picture that a terminal shows in place of the one before."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(timefmt.format_moment(found.at), style="dim")]
    parts.append(rich_table(*queue_table(found, narrow=True), width) if found.queues else Text("no queues"))
    parts.append(Text(""))
    quiet = Text("no worker was heard in the last minute", style="yellow")
    parts.append(rich_table(*worker_table(found), width) if found.workers else quiet)
    return Group(*parts)
