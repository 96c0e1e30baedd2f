"""`taskharbor job`: retry and cancel single jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from taskharbor.cli.bulk import BulkResult, finish
from taskharbor.cli.confirm import confirm
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import DriverError, JobNotFound, TaskHarborError, WrongState
from taskharbor.model.job import State

DUE_SOON = timedelta(seconds=2)

_WHY_NOT = {
    State.READY: "is already ready: `taskharbor explain` says what it waits for",
    State.INFLIGHT: "is running",
    State.BLOCKED: "waits for other jobs: `taskharbor explain` says for which",
    State.DONE: "is done: enqueue a new job to run it again",
}


@click.group()
def job() -> None:
    """Retry or cancel jobs."""


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option(
    "--keep-attempts", is_flag=True, help="Keep the count of failures, so that the next failure may be final."
)
@shared
def retry(target: Target, ids: tuple[str, ...], keep_attempts: bool) -> None:
    """Make dead, cancelled and scheduled jobs ready to run now.

    A scheduled job is cancelled and requeued: a caller that waits for it at that moment sees it cancelled.

    \b
    Example:
      taskharbor job retry 01JQZ5X7T0A8C2E4G6J8M0P2R4

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """

    async def each(driver: Driver, now: datetime) -> BulkResult:
        result = BulkResult()
        for id in ids:
            result.add(id, await _again(driver, id, now, reset=not keep_attempts))
        return result

    finish(call_store(target, each), "made ready", target)


async def _again(driver: Driver, id: str, now: datetime, *, reset: bool) -> DriverError | None:
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if info.state in _WHY_NOT:
        return WrongState(f"job {id} {_WHY_NOT[info.state]}")
    if info.state is State.SCHEDULED:
        run_at = info.job.run_at
        if run_at is not None and run_at - now < DUE_SOON:
            return None  # it becomes due by itself; cancelling it might hit a job that has just begun to run
        refused = (await driver.cancel([id], now))[0]
        if refused is not None:
            return refused
    return (await driver.requeue([id], now, reset_attempts=reset))[0]


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@shared
def cancel(target: Target, ids: tuple[str, ...], yes: bool) -> None:
    """Cancel jobs that have not ended. A running handler is notified at the next heartbeat. Asks for confirmation.

    If a workflow has taken the job's place, that workflow is cancelled.

    \b
    Example:
      taskharbor job cancel 01JQZ5X7T0A8C2E4G6J8M0P2R4 --yes

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """
    from taskharbor.client.client import Client

    async def each(driver: Driver, now: datetime) -> BulkResult:
        result = BulkResult()
        client = Client(driver)
        for id in ids:
            refused: TaskHarborError | None = None
            try:
                await client.lookup.cancel_job(id, client.budget(client.awaited, None, "cancel"))
            except (JobNotFound, WrongState) as error:
                refused = error
            result.add(id, refused)
        return result

    confirm(f"Cancel {len(ids)} jobs?" if len(ids) > 1 else f"Cancel job {ids[0]}?", yes)
    finish(call_store(target, each), "cancelled", target)
