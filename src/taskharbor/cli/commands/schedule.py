"""`taskharbor schedule`: show schedules, and change them at run time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli import options as opt
from taskharbor.cli.asking import confirm
from taskharbor.cli.errors import as_usage_error
from taskharbor.cli.output import Column, write_answer, write_facts, write_json, write_table
from taskharbor.cli.store import Operator, act, actions_of
from taskharbor.cli.target import Target, importing, shared, task_of
from taskharbor.model.bounds import check_name
from taskharbor.store.text import format_duration, format_moment, one_line, relative, with_distance

if TYPE_CHECKING:
    from taskharbor.client.scheduled_step import Scheduled
    from taskharbor.store.schedules import ScheduleInfo

COLUMNS = (
    Column("name", whole=True),
    Column("when"),
    Column("next", times=True),
    Column("last", times=True),
    Column("queue"),
    Column("note"),
)


@click.group()
def schedule() -> None:
    """List, add, change, pause and run schedules."""


_rule_options = opt.together(
    opt.word("--cron", "'M H D M W'", "Minute, hour, day, month and weekday, e.g. '30 2 * * *'."),
    opt.duration("--every", "An interval: 15s, 5m, 2h."),
    opt.word("--tz", "ZONE", "The time zone of --cron, e.g. Europe/Zurich; default: UTC."),
    opt.word(
        "--start-at",
        "MOMENT",
        "No slot before this moment; 'none' removes the limit.",
        callback=opt.or_none(opt.parse_moment),
    ),
    opt.word(
        "--end-at",
        "MOMENT",
        "No slot at or after this moment; 'none' removes the limit.",
        callback=opt.or_none(opt.parse_moment),
    ),
    opt.duration("--jitter", "Delay each job by up to this; a slot keeps its delay."),
    opt.choice(
        "--catch-up",
        ["latest", "none", "all"],
        "Slots that no worker noticed in time: make the newest, none or all.",
    ),
    opt.choice("--overlap", ["skip", "allow"], "While an earlier job has not ended: skip the slot, or not."),
)
"""The options of a schedule. Those that are not given are not passed on."""
_name = click.argument("name")


def _rule(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the word none as None."""
    return {name: None if value == "none" and name.endswith("_at") else value for name, value in options.items()
            if value is not None}  # fmt: skip


# Looking ---------------------------------------------------------------------------------------------------------


@schedule.command("list")
@opt.word("--queue", "NAME", "Only schedules of this queue.")
@shared
@importing
def list_(target: Target, queue: str | None) -> None:
    """List schedules by name: when each is due, when it last made a job, and whether something is wrong.

    With --app it also marks schedules that were declared in code and that the application does not declare any more.

    \b
    Examples:
      taskharbor schedule list
      taskharbor schedule list --app tasks:harbor --output json

    JSON: {"schedules": [{"name", "queue", "type", "status", "cron", "every", "tz", "next_at", "last_at", "last_id",
    "deleted", "paused", "edited", "declared", "fired", "missed", "skipped", "jitter", "catch_up", "overlap",
    "start_at", "end_at", "note"}]}. status: waiting, overdue, paused, deleted, ended or unreadable. every and jitter:
    seconds.
    """
    from taskharbor.ops.schedule_view import facts_of, next_of, note_of, rule_of

    if queue is not None:
        check_name(queue, "queue")

    async def read(operator: Operator) -> tuple[list[ScheduleInfo], datetime]:
        return [info async for info in operator.client.schedules.list(queue=queue)], operator.now

    found, now = act(target, read)
    known: dict[str, Any] = {"declared": _declared(target), "app": target.app or ""}
    if target.json:
        write_json({"schedules": [facts_of(info, now, **known) for info in found]})
        return
    if not found:
        click.echo("no schedules; declare one with harbor.schedule(…), or: taskharbor schedule add", err=True)
        return
    rows = [
        [i.name, rule_of(i), next_of(i, now), relative(i.last_at, now), i.queue, note_of(i, now, **known)]
        for i in found
    ]
    write_table(COLUMNS, rows)


@schedule.command()
@_name
@shared
@importing
def show(target: Target, name: str) -> None:
    """Show one schedule with all its options, and its next slots.

    \b
    Example:
      taskharbor schedule show nightly-eu

    JSON: the keys of `schedule list`, and "upcoming": the next 5 slots, as if it were not paused.
    """
    from taskharbor.ops.schedule_view import facts_of

    info, slots, now = _read(target, name, 5, readable=False)
    facts = {**facts_of(info, now, _declared(target), target.app or ""), "upcoming": slots}
    if target.json:
        write_json(facts)
        return
    write_facts(_lines(facts, now))


@schedule.command()
@_name
@opt.number("--count", "How many slots.", high=1000, default=10, metavar=None)
@shared
def preview(target: Target, name: str, count: int) -> None:
    """Show the next slots of a schedule, as if it were not paused, in UTC and in its own time zone.

    \b
    Example:
      taskharbor schedule preview nightly-eu --count 3

    JSON: {"name", "tz", "slots": ["2030-01-31T01:30:00Z", …]}
    """
    from taskharbor.policy.wall_clock import zone_of

    info, slots, now = _read(target, name, count)
    if target.json:
        write_json({"name": info.name, "tz": info.tz, "slots": slots})
        return
    zone = zone_of(info.tz)
    columns = (Column("slot", whole=True), Column(info.tz, whole=True), Column("from now", times=True))
    rows = [[format_moment(slot), f"{slot.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}", relative(slot, now)]
            for slot in slots]  # fmt: skip
    if rows:
        write_table(columns, rows)
    else:
        click.echo(f"the schedule {one_line(name)} has no more slots", err=True)


# Changing --------------------------------------------------------------------------------------------------------


@schedule.command()
@_name
@opt.word("--job", "TYPE", "The type of its jobs: the name of a task.", required=True)
@opt.arguments_option
@opt.word("--queue", "NAME", "Queue; default: with --app the task's own queue, else 'default'.")
@_rule_options
@shared
@importing
def add(target: Target, name: str, job: str, payload: str, queue: str | None, **options: Any) -> None:
    """Add a schedule. Any worker that serves its queue fires it.

    With --app the arguments are checked against the task's parameters, and the task's own options apply. Adding the
    same schedule again changes nothing.

    \b
    Examples:
      taskharbor schedule add nightly --job report --cron '30 2 * * *'
      taskharbor schedule add ping --job ping --json '{"host": "a"}' --every 15s

    JSON: the keys of `schedule list`.
    """
    from taskharbor.schedules.rule import checked_rule

    what = _what(target, job, opt.read_json(payload, "--json"), queue)
    given = _rule(options)
    with as_usage_error():
        checked_rule(**given)  # before a store is created for it

    async def store(operator: Operator) -> ScheduleInfo:
        if target.harbor is None:
            return await operator.actions.add_schedule(name, what, **given)
        own = target.harbor._store  # its codec encodes the arguments
        try:
            return await actions_of(own).add_schedule(name, what, **given)
        finally:
            await own.aclose()

    _change(target, store, creates=True)


@schedule.command()
@_name
@_rule_options
@shared
def edit(target: Target, name: str, **options: Any) -> None:
    """Change when a schedule is due, without a deployment.

    The edit overrides what the code declares, until the declaration changes or `schedule reset` drops the edit. --cron
    replaces --every, and the reverse. Slots that were due before and got no job are missed.

    \b
    Example:
      taskharbor schedule edit nightly-eu --cron '0 4 * * *'

    JSON: the keys of `schedule list`.
    """
    given = _rule(options)
    _change(target, lambda operator: operator.actions.edit_schedule(name, **given))


@schedule.command()
@_name
@shared
def reset(target: Target, name: str) -> None:
    """Drop the edit of a schedule: it is again as it was declared or added. A pause stays.

    It also brings back a declared schedule that was deleted.

    \b
    Example:
      taskharbor schedule reset nightly-eu

    JSON: the keys of `schedule list`.
    """
    _change(target, lambda operator: operator.actions.reset_schedule(name))


@schedule.command()
@_name
@shared
def pause(target: Target, name: str) -> None:
    """Stop a schedule from making jobs until it is resumed. Slots that pass are missed, unless its catch_up is "all".

    \b
    Example:
      taskharbor schedule pause nightly-eu

    JSON: the keys of `schedule list`.
    """
    _change(target, lambda operator: operator.actions.pause_schedule(name))


@schedule.command()
@_name
@shared
def resume(target: Target, name: str) -> None:
    """Let a schedule make jobs again; with catch_up "all" also those of the slots that passed.

    \b
    Example:
      taskharbor schedule resume nightly-eu

    JSON: the keys of `schedule list`.
    """
    _change(target, lambda operator: operator.actions.resume_schedule(name))


@schedule.command()
@_name
@shared
def run(target: Target, name: str) -> None:
    """Make a job of a schedule now, also while it is paused, and print the job's id. Its slots stay as they are.

    \b
    Example:
      taskharbor schedule run nightly-eu

    JSON: {"name", "id"}
    """
    id = act(target, lambda operator: operator.actions.run_schedule(name))
    write_answer(target, {"name": name, "id": id}, id)


@schedule.command()
@_name
@opt.flag("--yes", "Do not ask.")
@shared
def delete(target: Target, name: str, yes: bool) -> None:
    """Delete a schedule. Jobs that it has made stay.

    One that is declared in code leaves a mark (status deleted), so that no worker stores it again; `schedule reset` and
    a changed declaration end that. Deleting it again removes the mark.

    \b
    Example:
      taskharbor schedule delete sync:acme

    JSON: the keys of `schedule list`, as it was.
    """
    info = act(target, lambda operator: operator.client.schedules.aget(name))
    note = " Only a mark of it is left; without that a worker whose code declares it stores it again."
    confirm(f"Delete the schedule {one_line(name)}?{note if info.deleted else ''}", yes)
    _change(target, lambda operator: operator.actions.delete_schedule(name), done="deleted")


# How -------------------------------------------------------------------------------------------------------------


def _read(
    target: Target, name: str, count: int, *, readable: bool = True
) -> tuple[ScheduleInfo, list[datetime], datetime]:
    """A schedule, its next slots, and the store's time; a usage error if this machine does not know its zone, for one.
    `readable`: refuse a schedule that this program cannot read, also one whose slots need no zone."""
    from taskharbor.policy.wall_clock import zone_of

    async def read(operator: Operator) -> tuple[ScheduleInfo, list[datetime], datetime]:
        schedules = operator.client.schedules
        info = await schedules.aget(name)
        with as_usage_error(f"the schedule {one_line(name)}: ", ValueError, OverflowError):
            if readable:
                zone_of(info.tz)
            slots = await schedules.apreview(name, count) if readable or not info.problem else []
        return info, slots, operator.now

    return act(target, read)


def _change(
    target: Target, call: Callable[[Operator], Awaitable[ScheduleInfo]], *, creates: bool = False, done: str = ""
) -> None:
    """Make a change and print the schedule as it is then."""
    from taskharbor.ops.schedule_view import facts_of, next_of, rule_of

    async def change(operator: Operator) -> tuple[ScheduleInfo, datetime]:
        with as_usage_error():
            return await call(operator), operator.now

    info, now = act(target, change, creates=creates)
    when = done or f"{rule_of(info)}, next {next_of(info, now)}"
    write_answer(target, facts_of(info, now), f"{one_line(info.name)}: {when}")


def _declared(target: Target) -> frozenset[str] | None:
    return None if target.harbor is None else frozenset(target.harbor.declared_schedules)


def _what(target: Target, job: str, payload: bytes, queue: str | None) -> Scheduled:
    """What the schedule makes: a step of the app's task, or a job by the name of its type."""
    from taskharbor.client.request import JobRequest
    from taskharbor.model.codec import JsonCodec
    from taskharbor.tasks.task import step_of_json

    harbor = target.harbor
    given: dict[str, Any] = {} if queue is None else {"queue": queue}
    with as_usage_error():
        if harbor is None:
            return JobRequest(type=job, payload=JsonCodec().decode(payload), **given)
        task = task_of(target, harbor, job, "add")
        return step_of_json(task.options(**given) if given else task, payload)


def _lines(facts: dict[str, Any], now: datetime) -> list[tuple[str, str]]:
    """The facts that are not empty, formatted for a person."""
    lines = []
    for name, value in facts.items():
        shown: str
        if name in ("every", "jitter"):
            shown = format_duration(timedelta(seconds=value)) if value else ""
        elif isinstance(value, datetime):
            shown = with_distance(value, now)
        elif isinstance(value, list):
            shown = "\n".join(with_distance(moment, now) for moment in value)
        elif isinstance(value, bool):
            shown = "yes" if value else ""
        else:
            shown = "" if value is None else one_line(str(value))
        if shown:
            lines.append((name.replace("_", " "), shown))
    return lines
