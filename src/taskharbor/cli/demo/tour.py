"""The tour: enqueue jobs, start two worker processes, and follow the progress in the store.

It leaves a file with jobs in several states behind, for the commands that it prints at the end.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskharbor.cli.demo.screen import Screen
from taskharbor.cli.demo.tasks import CHUNK, FAILURES, charge, greet, harbor, newsletter, rate, split
from taskharbor.cli.errors import CommandError
from taskharbor.client.handle import JobHandle
from taskharbor.drivers.contract import Driver
from taskharbor.ops.text import first_line

APP = "taskharbor.cli.demo.tasks:harbor"
LINES = 2400
NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Ken")
GREETINGS = 40
CURRENCIES = ("EUR", "GBP", "JPY", "CHF", "SEK", "NOK")
POLL_S = 0.2
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class DemoResult:
    """What the tour leaves behind, for the commands that follow it."""

    dsn: str
    succeeded: int
    retries: int
    cents: int
    dead: str
    scheduled: str
    flow: str


async def tour(folder: Path, screen: Screen) -> DemoResult:
    """Run the tour. `folder` is absolute, because the workers get its path."""
    dsn = f"sqlite:///{folder}/demo.db"
    harbor.client.use(dsn)
    orders = folder / "orders.csv"
    write_orders(orders)
    screen.say(f"The store is an SQLite file: {folder}/demo.db")
    with screen:
        try:
            dead, scheduled, importing = await _enqueue(orders)
            screen.say(f"Enqueued: {GREETINGS} greetings, {len(CURRENCIES)} exchange rates that fail at first,")
            screen.say(f"a charge that always fails, a CSV import of {LINES} lines, a newsletter for later.")
            async with demo_workers(dsn, folder / "worker.log", screen) as process:
                driver = await harbor.client._drivers.get()
                await asyncio.wait_for(_watch(driver, screen, process, folder), TIMEOUT_S)
                cents = await importing.aresult(TIMEOUT_S)
                info = await driver.inspect(dead, harbor.clock.now())
                counts = await driver.counts(harbor.clock.now())
                budget = harbor.client.budget(harbor.client.awaited, None, "status")
                flow = (await harbor.client.lookup.job(importing.id, budget)).job.flow_id or ""
        except TimeoutError:
            text = f"the workers did not finish within {TIMEOUT_S:g} s; their log is {folder}/worker.log"
            raise CommandError(text) from None
        finally:
            await harbor.aclose()
    succeeded = sum(queue.get("done", 0) for queue in counts.values())
    retries = len(CURRENCIES) * FAILURES + info.job.attempts - 1
    screen.say()
    screen.say(f"{succeeded} jobs succeeded, {retries} attempts were retried.")
    screen.say(f"The import added up to {cents / 100:.2f}: {LINES // CHUNK} chunks in parallel, then one job that")
    screen.say("waited for all of them.")
    screen.say(f"The charge is dead after {info.job.attempts} attempts: {first_line(info.job.last_error)}")
    return DemoResult(dsn, succeeded, retries, cents, dead, scheduled, flow)


async def _enqueue(orders: Path) -> tuple[str, str, JobHandle[Any]]:
    """Enqueue everything; return the ids of the job that will die and of the scheduled one, and the import's handle."""
    await harbor.aenqueue_many(greet.s(name=NAMES[number % len(NAMES)]) for number in range(GREETINGS))
    await harbor.aenqueue_many(rate.s(currency=currency) for currency in CURRENCIES)
    dead = await charge.aenqueue(customer="Ada", cents=1250)
    later = await newsletter.options(delay=3600).aenqueue(to="everyone")
    importing = await split.aenqueue(path=str(orders))
    return dead.id, later.id, importing


async def _watch(driver: Driver, screen: Screen, process: Process, folder: Path) -> None:
    """Show the progress of each queue until only the newsletter is left."""
    while True:
        counts = await driver.counts(harbor.clock.now())
        done = {queue: states.get("done", 0) for queue, states in counts.items()}
        all_of = {queue: sum(states.values()) for queue, states in counts.items()}
        waiting = counts.get("rates", {}).get("scheduled", 0)
        dead = counts.get("billing", {}).get("dlq", 0)
        screen.bar("greetings", done.get("mail", 0), GREETINGS)
        note = f"{waiting} wait for a retry" if waiting else ""
        screen.bar("exchange rates", done.get("rates", 0), len(CURRENCIES), note)
        screen.bar("CSV chunks", done.get("csv", 0), max(all_of.get("csv", 0), LINES // CHUNK))
        screen.bar("charge", dead, 1, "dead after its last attempt" if dead else "")
        left = {state: number for states in counts.values() for state, number in states.items()}
        if not {"ready", "inflight", "blocked"} & left.keys() and not waiting and dead:
            return
        if process.returncode is not None:
            raise CommandError(f"the workers ended early; their log is {folder}/worker.log")
        await asyncio.sleep(POLL_S)


@asynccontextmanager
async def demo_workers(dsn: str, log: Path, screen: Screen) -> AsyncIterator[Process]:
    """Two worker processes under a supervisor, started and stopped as a user would do it."""
    shown = f"taskharbor worker run --app {APP} --processes 2"
    command = [sys.executable, "-m", "taskharbor", *shown.split()[1:], "--dsn", dsn, "--poll-interval", "0.2"]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file
        )
    screen.say(f"Started:\n  {shown}\n")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


def write_orders(path: Path) -> None:
    """Write the file that the import reads."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["order", "cents"])
        writer.writerows([f"A{number:05}", number * 37 % 10_000] for number in range(1, LINES + 1))
