"""The tour: enqueue jobs, start two worker processes, kill one of them, and follow the progress in the store.

It leaves a file with jobs in several states behind, for the commands that are printed at the end.
"""

from __future__ import annotations

import asyncio
import csv
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskharbor.cli.demo.screen import Screen
from taskharbor.cli.demo.tasks import ATTEMPTS, CHUNK, FAILURES, charge, greet, harbor, newsletter, rate, split
from taskharbor.cli.errors import CommandError
from taskharbor.cli.output import style
from taskharbor.client.handle import JobHandle
from taskharbor.drivers.base import Driver
from taskharbor.model.job import State
from taskharbor.store.text import first_line, plural

APP = "taskharbor.cli.demo.tasks:harbor"
COMMAND = f"taskharbor worker run --app {APP} --processes 2"
CONCURRENCY = 6  # few enough that the bars can be watched
LINES = 2400
CHUNKS = LINES // CHUNK
NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Ken")
GREETINGS = 40
CURRENCIES = ("EUR", "GBP", "JPY", "CHF", "SEK", "NOK")
KILL_AFTER = 4  # chunks
POLL_S = 0.2
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class DemoResult:
    """What the tour leaves behind, for the commands that follow it."""

    dsn: str
    succeeded: int
    retries: int
    again: int
    cents: int
    dead: str
    scheduled: str
    flow: str


@dataclass
class DemoJobs:
    """What the tour enqueued, and the worker that it killed."""

    dead: JobHandle[Any]
    later: JobHandle[Any]
    importing: JobHandle[Any]
    killed: str = ""


async def tour(folder: Path, screen: Screen) -> DemoResult:
    """Run the tour. `folder` is absolute, because the workers get its path."""
    import taskharbor

    dsn = f"sqlite:///{folder}/demo.db"
    harbor._store.use(dsn)
    orders = folder / "orders.csv"
    write_orders(orders)
    screen.say(f"{style('TaskHarbor', bold=True)} {taskharbor.__version__}: a tour of about ten seconds\n")
    screen.say(f"  store    {folder}/demo.db, a SQLite file; no server runs")
    try:
        jobs = await _enqueue(orders)
        screen.say(f"  jobs     {GREETINGS} greetings, {len(CURRENCIES)} exchange rates that fail at first,")
        screen.say(f"           a charge that always fails, a CSV import of {LINES} lines")
        async with demo_workers(dsn, folder / "worker.log") as process:
            screen.say(f"  workers  2 processes under a supervisor, each with {CONCURRENCY} jobs at once\n")
            driver = await harbor._store.drivers.get()
            with screen:
                await asyncio.wait_for(_watch(driver, jobs, screen, process, folder), TIMEOUT_S)
            return await _result(driver, jobs, dsn, screen)
    except TimeoutError:
        text = f"the workers did not finish within {TIMEOUT_S:g} s; their log is {folder}/worker.log"
        raise CommandError(text) from None
    finally:
        await harbor.aclose()


async def _enqueue(orders: Path) -> DemoJobs:
    await harbor.aenqueue_many(greet.s(name=NAMES[number % len(NAMES)]) for number in range(GREETINGS))
    await harbor.aenqueue_many(rate.s(currency=currency) for currency in CURRENCIES)
    dead = await charge.aenqueue(customer="Ada", cents=1250)
    later = await newsletter.options(delay=3600).aenqueue(to="everyone")
    return DemoJobs(dead, later, await split.aenqueue(path=str(orders)))


async def _watch(driver: Driver, jobs: DemoJobs, screen: Screen, process: Process, folder: Path) -> None:
    """Show the progress of each kind until only the newsletter is left. Halfway, kill a worker process."""
    while True:
        counts = await driver.counts(harbor.clock.now())
        done = {queue: states.get("done", 0) for queue, states in counts.items()}
        screen.bar("greetings", done.get("mail", 0), GREETINGS, "succeed at the first attempt")
        waiting = counts.get("rates", {}).get("scheduled", 0)
        ready = done.get("rates", 0)
        note = f"{waiting} wait for a retry" if waiting else "each failed twice, was retried" if ready else ""
        screen.bar("exchange rates", ready, len(CURRENCIES), note)
        dead = (await driver.inspect(jobs.dead.id, harbor.clock.now())).job
        raised = first_line(dead.last_error)
        note = f"dead letter: {raised.rpartition(': ')[2]}" if dead.attempts == ATTEMPTS else raised
        screen.bar("charge", dead.attempts, ATTEMPTS, note, bad=True)
        loaded = done.get("csv", 0)
        steps = done.get("import", 0) + loaded
        note = "the last step waits for all chunks" if loaded else ""
        if steps == CHUNKS + 2:
            note = f"split, {CHUNKS} chunks, their sum {await jobs.importing.aresult(TIMEOUT_S) / 100:.2f}"
        screen.bar("CSV import", steps, CHUNKS + 2, note)
        left = {state for states in counts.values() for state in states}
        if not {"ready", "inflight", "blocked"} & left and not waiting and dead.attempts == ATTEMPTS:
            return
        if process.returncode is not None:
            raise CommandError(f"the workers ended early; their log is {folder}/worker.log")
        if not jobs.killed and loaded >= KILL_AFTER:
            await _kill_one(driver, jobs, screen)
        await asyncio.sleep(POLL_S)


async def _kill_one(driver: Driver, jobs: DemoJobs, screen: Screen) -> None:
    """Kill the worker process with the most running jobs, if there are two processes, as a crash would."""
    busy = Counter([info.worker async for info in harbor.jobs(state="inflight")])
    workers = {info.worker: info for info in await driver.workers(harbor.clock.now())}
    running = [(number, name) for name, number in busy.items() if name in workers]
    if len(workers) < 2 or not running:
        return
    number, jobs.killed = max(running)
    pid = workers[jobs.killed].pid
    with suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)
    screen.say(style(f"  kill -9 {pid}: a worker process dies in the middle of {plural(number, 'job')}", fg="yellow"))


async def _result(driver: Driver, jobs: DemoJobs, dsn: str, screen: Screen) -> DemoResult:
    """Read what became of everything, and say it."""
    cents = await jobs.importing.aresult(TIMEOUT_S)
    counts = await driver.counts(harbor.clock.now())
    succeeded = sum(queue.get("done", 0) for queue in counts.values())
    retries = len(CURRENCIES) * FAILURES + ATTEMPTS - 1
    again = 0  # starts that neither succeeded nor failed
    async for info in harbor.jobs():
        again += info.job.deliveries - info.job.attempts - (info.state is State.DONE)
    ended = style(f"{succeeded} jobs succeeded", fg="green")
    screen.say(f"\n  {ended}, after {retries} failures that were retried.")
    screen.say(f"  {style('1 job is in the dead letter queue', fg='red')} and keeps its arguments and errors.")
    if again:
        screen.say(f"  {plural(again, 'job')} of the killed worker ran again: none was lost.")
    replaced_by = (await jobs.importing.ainfo()).job.handed_to  # the last job of the workflow that `split` returned
    assert replaced_by is not None
    flow = (await harbor.job(replaced_by).ainfo()).job.flow_id or ""
    return DemoResult(dsn, succeeded, retries, again, cents, jobs.dead.id, jobs.later.id, flow)


@asynccontextmanager
async def demo_workers(dsn: str, log: Path) -> AsyncIterator[Process]:
    """Two worker processes under a supervisor, started and stopped as a user would do it."""
    options = ("--dsn", dsn, "--concurrency", str(CONCURRENCY), "--poll-interval", "0.2")
    command = [sys.executable, "-m", "taskharbor", *COMMAND.split()[1:], *options]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file
        )
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
