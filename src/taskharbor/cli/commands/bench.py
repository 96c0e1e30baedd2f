"""`taskharbor bench`: measure how fast a store is on this machine."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from taskharbor.cli.commands.worker import concurrency_option
from taskharbor.cli.options import number
from taskharbor.cli.output import write_facts, write_json
from taskharbor.cli.target import Target, shared

if TYPE_CHECKING:
    from taskharbor.cli.bench_runner import BenchFigures
    from taskharbor.drivers.base import Driver


@click.command()
@number("--jobs", "How many jobs to run.", high=1_000_000, default=5000)
@concurrency_option("Jobs that the worker runs at once.")
@shared
def bench(target: Target, jobs: int, concurrency: int) -> None:
    """Measure how fast a store is on this machine, with jobs that do nothing and one worker in this process.

    Without --dsn it uses a temporary SQLite file. With --dsn it uses a queue of its own on that store and deletes its
    jobs afterwards. The load is real: think before you run it against production. The figures depend on the machine
    and on what else it is doing.

    \b
    Examples:
      taskharbor bench
      taskharbor bench --dsn postgresql://localhost/app --jobs 20000

    JSON: {"jobs", "enqueue_one", "enqueue_many", "run", "pickup_p50", "pickup_p99"}. Rates in jobs per second,
    pick-up times in milliseconds.
    """
    if target.given is None and target.app is None:
        with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as folder:
            from taskharbor.drivers import open_driver

            figures = _measured(open_driver(f"sqlite:///{folder}/bench.db"), jobs, concurrency)
    else:
        figures = _measured(target.driver(), jobs, concurrency)
    if target.json:
        write_json({name: round(value, 3) for name, value in asdict(figures).items()})
        return
    write_facts(
        [
            ("enqueue, one at a time", f"{figures.enqueue_one:,.0f} jobs per second"),
            ("enqueue, a thousand at a time", f"{figures.enqueue_many:,.0f} jobs per second"),
            ("run", f"{figures.run:,.0f} jobs per second ({jobs:,} jobs, {concurrency} at once)"),
            ("pick-up by an idle worker", f"{figures.pickup_p50:.1f} ms (p50), {figures.pickup_p99:.1f} ms (p99)"),
        ]
    )


def _measured(driver: Driver, jobs: int, concurrency: int) -> BenchFigures:
    from taskharbor.cli.bench_runner import run_bench

    return asyncio.run(run_bench(driver, jobs, concurrency, lambda what: click.echo(f"{what} …", err=True)))
