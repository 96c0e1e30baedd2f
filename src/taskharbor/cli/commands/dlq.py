"""`taskharbor dlq`: show, edit, requeue, delete and export dead jobs."""

from __future__ import annotations

from typing import Any

import click

from taskharbor.cli import options as opt
from taskharbor.cli.commands.dlq_operations import operations
from taskharbor.cli.commands.list import more, read_page, tries
from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import Column, write_json, write_table
from taskharbor.cli.selection import change_jobs, select
from taskharbor.cli.target import Target, importing, shared
from taskharbor.model.job import State
from taskharbor.ops import json_output
from taskharbor.store.redaction import HIDDEN, Redaction
from taskharbor.store.text import relative

COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("type", tail=True),
    Column("queue"),
    Column("tries", whole=True),
    Column("died", whole=True, times=True),
)
KEYS = ("fingerprint", "error", "type", "reason", "queue")


@click.group()
def dlq() -> None:
    """Inspect, correct, requeue and delete dead jobs."""


dlq.add_command(operations)


@dlq.command()
@opt.choice(
    "--by",
    KEYS,
    "What the jobs of a kind have in common. Failures with the same cause have the same fingerprint.",
    default="fingerprint",
)
@opt.error_options
@opt.number("--limit", "At most N kinds.", high=1000, default=20)
@shared
def summary(target: Target, by: str, limit: int, **given: Any) -> None:
    """Count the dead jobs by kind, the largest kind first: where to begin.

    It reads the newest 10,000 dead jobs at most, and says so if there are more. Each kind has a sample: the newest of
    its jobs.

    \b
    Examples:
      taskharbor dlq summary
      taskharbor dlq summary --by type --since 2h
      taskharbor dlq summary --by error --queue mail --output json

    JSON: {"by", "jobs", "complete", "rows": [{"value", "jobs", "newest", "oldest", "sample": {"id", "type", "queue",
    "error_class", "fingerprint", "reason", "last_error"}}], "more"}. complete: false if there are more jobs than were
    read. more: how many kinds are not listed.
    """
    from taskharbor.cli.dead_jobs import write_summary

    write_summary(target, by, limit, _dead(given))


@dlq.command("list")
@opt.place_options
@opt.newest_option
@opt.ended_options
@opt.page_options
@shared
def list_(target: Target, **query: Any) -> None:
    """List the dead jobs and why they died.

    \b
    Examples:
      taskharbor dlq list --newest --since 1d
      taskharbor dlq list --queue mail --error ConnectionError
      taskharbor dlq list --queue mail --output json

    JSON: as for `taskharbor list`, with "last_error" for each job.
    """
    page, now = read_page(target, payloads=True, state=State.DLQ, **query)
    if target.json:
        write_json({"jobs": [json_output.dead(info) for info in page.items], "cursor": page.cursor})
        return
    if not page.items:
        more(page, "dead jobs")
        return
    rows = [
        [info.job.id, info.job.type, info.job.queue, tries(info), relative(info.job.finished_at, now)]
        for info in page.items
    ]
    write_table(COLUMNS, rows, below=[HIDDEN.why(info.job) for info in page.items], title="reason")
    more(page)


@dlq.command()
@opt.id_argument
@opt.payload_options
@shared
@importing
def show(target: Target, id: str, show_payload: bool, redact: tuple[str, ...]) -> None:
    """Show a dead job: why it died, every execution, what a requeue would do, and what to type next.

    With --app it also checks that the app declares a task of its type.

    \b
    Examples:
      taskharbor dlq show 01JQZ5X7T0A8
      taskharbor dlq show 01JQZ5X7T0A8 --redact card

    JSON: as for `taskharbor inspect`, with "requeue": [{"code", "text", "hint"}] and "next": commands to type. code:
    one of attempts, flow, blocked, paused, unknown_type, no_worker, served.
    """
    from taskharbor.cli.dead_jobs import write_dead

    write_dead(target, id, Redaction.of(show_payload, redact))


@dlq.command()
@opt.id_argument
@opt.word("--json", "JSON", "The new payload, whole; - reads stdin. Without it: $EDITOR.", "json_")
@opt.flag("--requeue", "Requeue the job as well, with all attempts available again.")
@shared
@importing
def edit(target: Target, id: str, json_: str | None, requeue: bool) -> None:
    """Change the payload of a dead job: in $VISUAL or $EDITOR, or with --json. Its type cannot be changed.

    With --app the new payload is checked against the task's parameters. If the job was changed meanwhile by another
    operator, nothing happens, and the edited text is kept in a file that the error names. The old payload is not kept.

    \b
    Examples:
      taskharbor dlq edit 01JQZ5X7T0A8 --requeue --app tasks:harbor
      taskharbor dlq edit 01JQZ5X7T0A8 --json '{"to": "ada@example.com"}'

    JSON: {"id", "requeued", "payload_bytes_before", "payload_bytes"}
    """
    from taskharbor.cli.amending import edit_dead

    edit_dead(target, id, json_, requeue=requeue)


@dlq.command()
@opt.flag("--all", "All dead jobs, or all that the filter names.", "everything")
@opt.keep_attempts_option
@opt.flag("--fresh", "Forget the steps of the jobs, which are done again. With ids.")
@opt.pace_options
@opt.many_options
@shared
def requeue(target: Target, keep_attempts: bool, fresh: bool, **options: Any) -> None:
    """Requeue dead jobs, by ids or by a filter, with all attempts available again.

    With a filter it shows what it found and asks. Then it begins an operation and carries it out, together with the
    workers. Jobs that die after the question was asked are not touched. After Ctrl-C the workers go on: see
    `taskharbor dlq operations`.

    \b
    Examples:
      taskharbor dlq requeue 01JQZ5X7T0A8
      taskharbor dlq requeue 01JQZ5X7T0A8 --fresh
      taskharbor dlq requeue --error ConnectionError --canary 5 --spread 10m
      taskharbor dlq requeue --queue mail --dry-run
      taskharbor dlq requeue --all --yes

    JSON: with ids {"done": [ID], "refused": [{"id", "error"}]}; with a filter {"operation": as for `taskharbor dlq
    operations show`}. With --dry-run and a filter {"action", "jobs", "capped", "cut", "limit", "sample", "notes"}; with
    ids "would" instead of "done". Exit 1 if a job was refused, or the operation was held, stopped or failed.
    """
    selection = select("dlq requeue", options, state=State.DLQ)
    given = {name: value for name, value in options.items() if value is not None}
    if "max_failures" in given and "canary" not in given:
        raise usage_error("dlq requeue: --max-failures needs --canary N, the number of jobs to try first")
    if fresh and not selection.ids:
        raise usage_error("dlq requeue: --fresh needs the ids of the jobs, not a filter")
    reset: dict[str, Any] = {"reset_attempts": not keep_attempts}
    change_jobs(
        target,
        selection,
        lambda actions, ids: actions.requeue(ids, fresh=fresh, **reset),
        "requeue",
        past="requeued",
        takes=(State.DLQ, State.CANCELLED),
        **reset,
        **given,
    )


@dlq.command()
@opt.duration("--older-than", "Only jobs that died longer ago, e.g. 30d.")
@opt.many_options
@shared
def delete(target: Target, **options: Any) -> None:
    """Delete dead jobs for good, by ids or by a filter. Asks for confirmation.

    A job that an unfinished job depends on is not deleted. Jobs that die after the question was asked are not touched.

    \b
    Examples:
      taskharbor dlq delete 01JQZ5X7T0A8
      taskharbor dlq delete --older-than 30d --type tasks.send_email --dry-run
      taskharbor dlq delete --older-than 30d --yes

    JSON: as for `taskharbor dlq requeue`. Exit 1 if a job was refused, or the operation was stopped or failed.
    """
    selection = select("dlq delete", options, state=State.DLQ)
    change_jobs(
        target,
        selection,
        lambda actions, ids: actions.delete(ids, state=State.DLQ),
        "delete",
        past="deleted",
        takes=(State.DLQ,),
    )


@dlq.command()
@opt.error_options
@opt.newest_option
@opt.number("--limit", "At most N jobs.")
@opt.payload_options
@shared
def export(target: Target, show_payload: bool, redact: tuple[str, ...], limit: int | None, **given: Any) -> None:
    """Print dead jobs as JSON lines, one record a line, for other programs.

    Payloads are left out unless --show-payload or --redact is given; then the audit has an entry. A payload that is not
    JSON is in payload_base64.

    \b
    Examples:
      taskharbor dlq export --error ConnectionError > dead.jsonl
      taskharbor dlq export --queue mail --redact card --since 1d

    JSON: on each line {"id", "type", "queue", "state", "priority", "group", "flow_id", "idempotency_key", "created_at",
    "run_at", "began_at", "failed_at", "finished_at", "attempts", "max_attempts", "deliveries", "lost", "edits",
    "timeout", "metadata", "reason", "error_class", "fingerprint", "last_error", "payload_bytes", "payload",
    "payload_base64"}
    """
    from taskharbor.cli.dead_jobs import write_export

    write_export(target, Redaction.of(show_payload, redact), limit, _dead(given))


def _dead(given: dict[str, Any]) -> dict[str, Any]:
    """The filter for dead jobs that was typed."""
    return {"state": State.DLQ, **{name: value for name, value in given.items() if value not in (None, False)}}
