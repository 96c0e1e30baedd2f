"""`taskharbor job`: show, change, retry, cancel and delete single jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from taskharbor.cli import job_output, time_options
from taskharbor.cli.acting import Operator, act
from taskharbor.cli.bulk import BulkResult, finish, meant, would_change
from taskharbor.cli.commands.inspect import payload_options
from taskharbor.cli.confirm import confirm
from taskharbor.cli.errors import usage_error
from taskharbor.cli.selection import Selection, any_state_options, many_options, select
from taskharbor.cli.target import Target, importing, shared
from taskharbor.model.job import State
from taskharbor.ops.redaction import Redaction

_UNFINISHED = tuple(state for state in State if not state.terminal)


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
@click.option(
    "--keep-attempts", is_flag=True, help="Keep the count of failures, so that the next failure may be final."
)
@any_state_options
@many_options
@shared
def retry(target: Target, keep_attempts: bool, **options: Any) -> None:
    """Make jobs ready to run now: by ids dead, cancelled and scheduled ones, by a filter dead or cancelled ones.

    A scheduled job that has failed before is cancelled and requeued, to get all its attempts again: a caller that waits
    for it at that moment sees it cancelled. A filter needs --state, and asks for confirmation.

    \b
    Examples:
      taskharbor job retry 01JQZ5X7T0A8
      taskharbor job retry --state cancelled --queue mail --dry-run

    JSON: as for `taskharbor dlq requeue`. Exit 1 if a job was refused, or the operation was stopped or failed.
    """
    selection = select("job retry", options)
    if not selection.ids:
        _expect_state(selection, (State.DLQ, State.CANCELLED))
        _change_many(target, selection, "requeue", reset_attempts=not keep_attempts)
        return
    if selection.dry_run:
        would_change(target, selection.ids, (State.SCHEDULED, State.DLQ, State.CANCELLED), "made ready")
        return
    found, result = meant(target, selection.ids)

    async def change(operator: Operator) -> BulkResult:
        return result.plus(found, await operator.actions.retry(found, reset_attempts=not keep_attempts))

    finish(act(target, change), "made ready", target)


@job.command()
@any_state_options
@many_options
@shared
def cancel(target: Target, **options: Any) -> None:
    """Cancel jobs that have not ended, by ids or by a filter. Asks for confirmation.

    A running handler is notified at the next heartbeat. If a workflow has taken the place of a job with this id, that
    workflow is cancelled.

    \b
    Examples:
      taskharbor job cancel 01JQZ5X7T0A8 --yes
      taskharbor job cancel --queue mail --state scheduled --dry-run

    JSON: as for `taskharbor dlq requeue`. Exit 1 if a job was refused, or the operation was stopped or failed.
    """
    selection = select("job cancel", options)
    if not selection.ids:
        if selection.given.get("state") is not None:
            _expect_state(selection, _UNFINISHED)
        _change_many(target, selection, "cancel")
        return
    if selection.dry_run:
        would_change(target, selection.ids, _UNFINISHED, "cancelled")
        return
    found, result = meant(target, selection.ids)
    if found:
        confirm(_question("Cancel", found), selection.yes)

    async def change(operator: Operator) -> BulkResult:
        return result.plus(found, await operator.actions.cancel(found))

    finish(act(target, change), "cancelled", target)


@job.command()
@any_state_options
@many_options
@shared
def delete(target: Target, **options: Any) -> None:
    """Delete jobs for good, by ids in any state, or by a filter with --state. Asks for confirmation.

    A job that an unfinished job depends on is refused. A handler that is running it continues, and its outcome is
    discarded: cancel such a job first.

    \b
    Examples:
      taskharbor job delete 01JQZ5X7T0A8
      taskharbor job delete 01JQZ5X7T0A8 01JQZ5XB31KM --yes
      taskharbor job delete --state cancelled --until 7d --dry-run

    JSON: as for `taskharbor dlq requeue`. Exit 1 if a job was refused, or the operation was stopped or failed.
    """
    selection = select("job delete", options)
    if not selection.ids:
        _expect_state(selection, tuple(State))
        _change_many(target, selection, "delete")
        return
    if selection.dry_run:
        would_change(target, selection.ids, tuple(State), "deleted")
        return
    found, result = meant(target, selection.ids)
    if found:
        confirm(_question("Delete", found), selection.yes)

    async def change(operator: Operator) -> BulkResult:
        return result.plus(found, await operator.actions.delete(found))

    finish(act(target, change), "deleted", target)


def _question(verb: str, ids: list[str]) -> str:
    return f"{verb} {len(ids)} jobs?" if len(ids) > 1 else f"{verb} job {ids[0]}?"


def _expect_state(selection: Selection, states: Sequence[State]) -> None:
    """A usage error for a filter whose jobs the command does not take, or that would take more than was meant."""
    given = selection.given.get("state")
    if given not in states:
        got = "none" if given is None else f"--state {given}"
        named = " or ".join(state.value for state in states)
        raise usage_error(f"{selection.command}: expected --state with a filter ({named}), got {got}")


def _change_many(target: Target, selection: Selection, action: str, **options: Any) -> None:
    from taskharbor.cli.many import change_many

    change_many(target, selection, action, **options)


@job.command()
@click.argument("id", metavar="ID")
@click.option("--payload-json", metavar="JSON", help="Arguments to replace, by name; - reads stdin.")
@click.option(
    "--run-at",
    callback=time_options.parse_moment,
    metavar="MOMENT",
    help="Start no earlier, e.g. 2030-01-31T09:00:00Z.",
)
@click.option(
    "--delay", callback=time_options.parse_duration, metavar="DURATION", help="Start no earlier than this from now."
)
@click.option("--now", "at_once", is_flag=True, help="Start as soon as a worker is free.")
@click.option("--priority", type=int, metavar="N", help="Higher runs first within the queue.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="After N failures the job is dead.")
@click.option(
    "--timeout",
    callback=time_options.parse_duration_or_none,
    metavar="DURATION",
    help="Time limit of one attempt, or none.",
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
