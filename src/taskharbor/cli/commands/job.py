"""`taskharbor job`: deciding over single jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from taskharbor.cli.bulk import BulkResult, end
from taskharbor.cli.confirm import confirm
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import DriverError, JobNotFound, TaskHarborError, WrongState
from taskharbor.model.job import State

SOON = timedelta(seconds=2)

_WHY_NOT = {
    State.READY: "is due already: `taskharbor explain` says what it waits for",
    State.INFLIGHT: "is being run",
    State.BLOCKED: "waits for other jobs: `taskharbor explain` says for which",
    State.DONE: "is done: enqueue a new one to run it again",
}


@click.group()
def job() -> None:
    """Retry or cancel jobs."""


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--keep-attempts", is_flag=True, help="Keep the count of failures; the next may be the last.")
@shared
def retry(target: Target, ids: tuple[str, ...], keep_attempts: bool) -> None:
    """Run jobs again: dead and cancelled ones, and scheduled ones now instead of later.

    A scheduled job is cancelled and brought back at once: a caller who waits for it at that moment sees it cancelled.

    \b
    Example:
      taskharbor job retry 01JQZ5X7T0A8C2E4G6J8M0P2R4

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if one was refused.
    """

    async def each(driver: Driver, now: datetime) -> BulkResult:
        many = BulkResult()
        for id in ids:
            many.add(id, await _again(driver, id, now, reset=not keep_attempts))
        return many

    end(call_store(target, each), "made due", target)


async def _again(driver: Driver, id: str, now: datetime, *, reset: bool) -> DriverError | None:
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if info.state in _WHY_NOT:
        return WrongState(f"job {id} {_WHY_NOT[info.state]}")
    if info.state is State.SCHEDULED:
        run_at = info.job.run_at
        if run_at is not None and run_at - now < SOON:
            return None  # it becomes due by itself; cancelling might meet it when it has just begun to run
        refused = (await driver.cancel([id], now))[0]
        if refused is not None:
            return refused
    return (await driver.requeue([id], now, reset_attempts=reset))[0]


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared
def cancel(target: Target, ids: tuple[str, ...], yes: bool) -> None:
    """Cancel jobs that have not ended. A handler that runs learns it at its next heartbeat. Asks first.

    If a workflow has taken the job's place, that workflow is cancelled.

    \b
    Example:
      taskharbor job cancel 01JQZ5X7T0A8C2E4G6J8M0P2R4 --yes

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if one was refused.
    """
    from taskharbor.client.client import Client

    async def each(driver: Driver, now: datetime) -> BulkResult:
        many = BulkResult()
        client = Client(driver)
        for id in ids:
            refused: TaskHarborError | None = None
            try:
                await client.lookup.cancel_job(id, client.budget(client.awaited, None, "cancel"))
            except (JobNotFound, WrongState) as error:
                refused = error
            many.add(id, refused)
        return many

    confirm(f"Cancel {len(ids)} jobs?" if len(ids) > 1 else f"Cancel job {ids[0]}?", yes)
    end(call_store(target, each), "cancelled", target)
