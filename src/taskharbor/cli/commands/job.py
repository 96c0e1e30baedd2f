"""`taskharbor job`: look at single jobs, and change, retry, cancel and delete them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from taskharbor.cli import job_output, timefmt
from taskharbor.cli.bulk import BulkResult, finish, meant
from taskharbor.cli.commands.inspect import payload_options
from taskharbor.cli.confirm import confirm
from taskharbor.cli.redaction import Redaction
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, importing, shared
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
    """Show, change, retry, cancel or delete jobs."""


@job.command()
@click.argument("id", metavar="ID")
@payload_options
@shared
def show(target: Target, id: str, show_payload: bool, redact: tuple[str, ...]) -> None:
    """Show one job: the same as `taskharbor inspect`.

    \b
    Example:
      taskharbor job show 01JQZ5X7T0A8

    JSON: as for `taskharbor inspect`.
    """
    job_output.write_job(target, id, Redaction.of(show_payload, redact))


@job.command()
@click.argument("id", metavar="ID")
@payload_options
@shared
def attempts(target: Target, id: str, show_payload: bool, redact: tuple[str, ...]) -> None:
    """Show every execution of a job: when, where, how it ended, and its error.

    kind is one of done, failed, timeout, snoozed, given_back, lost, cancelled, running. The store keeps the first
    three executions and the newest; the numbers of those that it does not keep are missing.

    \b
    Examples:
      taskharbor job attempts 01JQZ5X7T0A8
      taskharbor job attempts 01JQZ5X7T0A8 --output json

    JSON: {"id", "missing", "attempts": [{"number", "kind", "worker", "began_at", "ended_at", "seconds",
    "error_class", "error", "fingerprint"}]}. missing: how many executions are not listed.
    """
    job_output.write_attempts(target, id, Redaction.of(show_payload, redact))


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
      taskharbor job retry 01JQZ5X7T0A8

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """
    found, result = meant(target, ids)

    async def each(driver: Driver, now: datetime) -> BulkResult:
        for id in found:
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
      taskharbor job cancel 01JQZ5X7T0A8 --yes

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """
    from taskharbor.client.client import Client

    found, result = meant(target, ids)

    async def each(driver: Driver, now: datetime) -> BulkResult:
        client = Client(driver)
        for id in found:
            refused: TaskHarborError | None = None
            try:
                await client.lookup.cancel_job(id, client.budget(client.awaited, None, "cancel"))
            except (JobNotFound, WrongState) as error:
                refused = error
            result.add(id, refused)
        return result

    if found:
        confirm(_question("Cancel", found), yes)
    finish(call_store(target, each), "cancelled", target)


@job.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@shared
def delete(target: Target, ids: tuple[str, ...], yes: bool) -> None:
    """Delete jobs for good, in any state. Asks for confirmation.

    A job that an unfinished job depends on is refused. A handler that is running it continues, and its outcome is
    thrown away: cancel such a job first.

    \b
    Examples:
      taskharbor job delete 01JQZ5X7T0A8
      taskharbor job delete 01JQZ5X7T0A8 01JQZ5XB31KM --yes

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """
    found, result = meant(target, ids)

    async def each(driver: Driver, now: datetime) -> BulkResult:
        return result.plus(found, await driver.delete(found) if found else [])

    if found:
        confirm(_question("Delete", found), yes)
    finish(call_store(target, each), "deleted", target)


def _question(verb: str, ids: list[str]) -> str:
    return f"{verb} {len(ids)} jobs?" if len(ids) > 1 else f"{verb} job {ids[0]}?"


@job.command()
@click.argument("id", metavar="ID")
@click.option("--payload-json", metavar="JSON", help="Arguments to replace, by name; - reads stdin.")
@click.option(
    "--run-at", callback=timefmt.parse_moment, metavar="MOMENT", help="Start no earlier, e.g. 2030-01-31T09:00:00Z."
)
@click.option(
    "--delay", callback=timefmt.parse_duration, metavar="DURATION", help="Start no earlier than this from now."
)
@click.option("--now", "at_once", is_flag=True, help="Start as soon as a worker is free.")
@click.option("--priority", type=int, metavar="N", help="Higher runs first within the queue.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="After N failures the job is dead.")
@click.option(
    "--timeout", callback=timefmt.parse_duration_or_none, metavar="DURATION", help="Time limit of one attempt, or none."
)
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Set an entry; KEY= removes it (repeatable).")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@shared
@importing
def amend(target: Target, id: str, yes: bool, **options: Any) -> None:
    """Change a job that is neither running nor done. Shows what will change and asks for confirmation.

    If a worker or another operator was faster, nothing changes. With --app the new arguments are checked against the
    task's parameters. A dead or cancelled job stays so: `taskharbor job retry` runs it with its new values. Errors that
    quote a replaced argument are shown as they are from then on: only stored arguments can be masked in them.

    \b
    Examples:
      taskharbor job amend 01JQZ5X7T0A8 --priority 10 --now
      taskharbor job amend 01JQZ5X7T0A8 --payload-json '{"to": "ada"}' --yes
      taskharbor job amend 01JQZ5X7T0A8 --delay 2h --metadata ticket=4711

    JSON: {"id", "changes": [{"field", "before", "after"}]}. Arguments are not shown: before and after are then the
    sizes in bytes.
    """
    from taskharbor.cli.amending import amend_job

    amend_job(target, id, options, yes=yes)
