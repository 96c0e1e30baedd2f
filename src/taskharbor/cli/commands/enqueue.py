"""`taskharbor enqueue`: store one job, by the name of its type."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.errors import as_usage_error, usage_error
from taskharbor.cli.options import arguments_option, duration, number, parse_moment, read_json, word
from taskharbor.cli.output import write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, importing, shared, task_of
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_job
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.times import moment, round_up, to_ms
from taskharbor.tasks.flow_metadata import check_type

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor
    from taskharbor.tasks.prepare import TaskCall

MAX_CALLS = 4
FIRST_PAUSE_S = 0.1  # doubled each time


@click.command()
@word("--job", "TYPE", "The job's type: the name of a task or handler.", "name", required=True)
@arguments_option
@word("--queue", "NAME", "Queue; default: with --app the task's own queue, else 'default'.")
@word("--run-at", "MOMENT", "Start no earlier than this, e.g. 2030-01-31T09:00:00Z.", callback=parse_moment)
@duration("--delay", "Start no earlier than this from now: 90, 90s, 15m, 2h.")
@word("--idempotency-key", "KEY", "If the queue already has a job with this key, return that job.")
@number("--max-attempts", "After N failures the job is dead.")
@duration("--timeout", "Time limit of one attempt.")
@word("--priority", "N", "Higher runs first within the queue; default 0.", type=int)
@word("--group", "NAME", "Jobs with the same group start in order, at most --group-limit at once.")
@number("--group-limit", "Limit of the group, if it has none yet.")
@shared
@importing
def enqueue(target: Target, name: str, payload: str, **options: Any) -> None:
    """Store a job and print its id.

    With --app the arguments are checked against the task's parameters, and the task's own options apply.

    \b
    Examples:
      taskharbor enqueue --job echo --json '{"text": "hello"}'
      taskharbor enqueue --app tasks:harbor --job tasks.mail --json "{}"
      taskharbor enqueue --job report --delay 15m --idempotency-key report:1
      produce | taskharbor enqueue --job load --json -

    JSON: {"id", "type", "queue", "existed"}. existed: true if the queue already had a job
    with this idempotency key; the id is that job's.
    """
    given = {option: value for option, value in options.items() if value is not None}
    data = read_json(payload, "--json")
    harbor = target.harbor
    if harbor is None:
        job = _record(name, data, given)
        target.refuse_memory(click.get_current_context().command_path)
        type_, queue = job.type, job.queue
        id, existed = call_store(target, lambda driver, now: _store(driver, now, job, given.get("delay")), creates=True)
    else:
        call = _call(target, harbor, name, data, given)
        target.refuse_memory(click.get_current_context().command_path)
        type_, queue = call.type, call.options.queue or harbor._store.default_queue
        id, existed = call_store(target, lambda driver, now: _send(harbor, call), creates=True)
    if target.json:
        write_json({"id": id, "type": type_, "queue": queue, "existed": existed})
        return
    click.echo(id)
    if existed:
        click.echo("not stored again: the queue already has a job with this idempotency key", err=True)


# Without --app: the client and tasks are not imported, so that this command starts as fast as one that only reads


def _record(name: str, payload: bytes, given: dict[str, Any]) -> JobRecord:
    """The job, checked as a store would check it; its id and times are set later."""
    if "delay" in given and "run_at" in given:
        raise usage_error("--delay and --run-at: expected only one of them")
    fields = {option: value for option, value in given.items() if option != "delay"}
    with as_usage_error("", ValueError):
        if "run_at" in fields:
            fields["run_at"] = moment(fields["run_at"], "run_at")
        check_type(name)
        job = JobRecord(id="to-be-made", type=name, payload=payload, **fields)
    check_job(job)
    return job


async def _store(driver: Driver, now: datetime, job: JobRecord, delay: timedelta | None) -> tuple[str, bool]:
    job = replace(job, id=new_id(to_ms(now)), created_at=now)
    if delay is not None:
        job = replace(job, run_at=round_up(now + delay))
    for tried in range(MAX_CALLS):
        try:
            (stored,) = await driver.enqueue([job], now)
            # Our own id, after a failed call: that call stored the job, but its reply was lost.
            return stored.id, stored.existed and not (tried and stored.id == job.id)
        except BackendUnavailable:
            if tried + 1 == MAX_CALLS:
                raise
        await asyncio.sleep(FIRST_PAUSE_S * 2**tried)
    raise AssertionError("not reached")


# With --app


def _call(target: Target, harbor: Harbor, name: str, payload: bytes, options: dict[str, Any]) -> TaskCall:
    """The call, checked against the task's parameters."""
    from taskharbor.tasks.task import step_of_json

    task = task_of(target, harbor, name, "enqueue")
    with as_usage_error():
        return step_of_json(task.options(**options), payload)._call()


async def _send(harbor: Harbor, call: TaskCall) -> tuple[str, bool]:
    """Enqueue through the app's own client, so that its enqueue middleware and observers run."""
    try:
        (handle,) = await harbor.client._aenqueue_calls([call])
        return handle.id, handle.existed
    finally:
        await harbor._store.aclose()
