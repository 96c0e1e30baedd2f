"""`taskharbor job`: show, change, retry, cancel and delete single jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from taskharbor.cli import job_output
from taskharbor.cli import options as opt
from taskharbor.cli.commands.list import state_option
from taskharbor.cli.errors import usage_error
from taskharbor.cli.selection import Selection, change_jobs, select
from taskharbor.cli.target import Target, importing, shared
from taskharbor.model.job import State
from taskharbor.store.redaction import Redaction

_UNFINISHED = tuple(state for state in State if not state.terminal)
_job_options = opt.together(state_option, opt.word("--flow", "ID", "Only jobs of this workflow."), opt.many_options)
"""The ids, and the filters for jobs in any state."""


@click.group()
def job() -> None:
    """Show, change, retry, cancel or delete jobs."""


@job.command()
@opt.id_argument
@opt.payload_options
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
@opt.id_argument
@opt.payload_options
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
@opt.keep_attempts_option
@_job_options
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
    _expect_state(selection, (State.DLQ, State.CANCELLED))
    reset: dict[str, Any] = {"reset_attempts": not keep_attempts}
    change_jobs(
        target,
        selection,
        lambda actions, ids: actions.retry(ids, **reset),
        "requeue",
        past="made ready",
        takes=(State.SCHEDULED, State.DLQ, State.CANCELLED),
        **reset,
    )


@job.command()
@_job_options
@shared
def cancel(target: Target, **options: Any) -> None:
    """Cancel jobs that have not ended, by ids or by a filter. Asks for confirmation.

    What waits for a job in its workflow is cancelled with it. A running handler is notified at the next heartbeat. If a
    workflow has taken the place of a job with this id, that workflow is cancelled.

    \b
    Examples:
      taskharbor job cancel 01JQZ5X7T0A8 --yes
      taskharbor job cancel --queue mail --state scheduled --dry-run

    JSON: as for `taskharbor dlq requeue`. Exit 1 if a job was refused, or the operation was stopped or failed.
    """
    selection = select("job cancel", options)
    if selection.given.get("state") is not None:
        _expect_state(selection, _UNFINISHED)
    change_jobs(
        target, selection, lambda actions, ids: actions.cancel(ids), "cancel", past="cancelled", takes=_UNFINISHED
    )


@job.command()
@_job_options
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
    _expect_state(selection, tuple(State))
    change_jobs(
        target, selection, lambda actions, ids: actions.delete(ids), "delete", past="deleted", takes=tuple(State)
    )


def _expect_state(selection: Selection, states: Sequence[State]) -> None:
    """A usage error for a filter whose jobs the command does not take, or that would take more than was wanted."""
    given = selection.given.get("state")
    if not selection.ids and given not in states:
        got = "none" if given is None else f"--state {given}"
        named = " or ".join(state.value for state in states)
        raise usage_error(f"{selection.command}: expected --state with a filter ({named}), got {got}")


@job.command()
@opt.id_argument
@opt.word("--payload-json", "JSON", "Arguments to replace, by name; - reads stdin.")
@opt.word("--run-at", "MOMENT", "Start no earlier, e.g. 2030-01-31T09:00:00Z.", callback=opt.parse_moment)
@opt.duration("--delay", "Start no earlier than this from now.")
@opt.flag("--now", "Start as soon as a worker is free.", "at_once")
@opt.word("--priority", "N", "Higher runs first within the queue.", type=int)
@opt.number("--max-attempts", "After N failures the job is dead.")
@opt.word("--timeout", "DURATION", "Time limit of one attempt, or none.", callback=opt.or_none(opt.parse_duration))
@opt.word("--metadata", "KEY=VALUE", "Set an entry; KEY= removes it (repeatable).", multiple=True)
@opt.yes_option
@shared
@importing
def amend(target: Target, id: str, yes: bool, **options: Any) -> None:
    """Change a job that is neither running nor done. Shows what will change and asks for confirmation.

    If a worker or another operator was faster, nothing changes. With --app the new arguments are checked against the
    task's parameters. A dead or cancelled job stays so: `taskharbor job retry` runs it with its new values. Errors that
    quote a replaced argument are masked once, for good and for everyone.

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
