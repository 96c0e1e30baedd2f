"""Which jobs a command changes: by their ids, or by a filter. Never both, and never all of them by accident.

Of jobs with ids: which were changed, and which were refused and why.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.asking import confirm
from taskharbor.cli.errors import EXIT_REFUSED, as_usage_error, usage_error
from taskharbor.cli.options import choose_time
from taskharbor.cli.output import write, write_json
from taskharbor.cli.store import Operator, act, call_store
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound, TaskHarborError, WrongState
from taskharbor.model.job import State
from taskharbor.store.ids import is_prefix, job_id
from taskharbor.store.text import format_duration, format_moment, one_line, safe_text

if TYPE_CHECKING:
    from taskharbor.client.jobs import Jobs
    from taskharbor.ops.actions import Actions

FILTERS = ("state", "queue", "type", "group", "flow", "error", "fingerprint", "since", "until")
_WORDS = {
    "queue": "in the queue {}",
    "type": "of type {}",
    "group": "of the group {}",
    "flow": "of the flow {}",
    "error": "with the error {}",
    "fingerprint": "with the fingerprint {}",
}


@dataclass(frozen=True)
class Selection:
    """What was typed: ids, or a filter with a limit. `given`: the options of the filter, as they were typed."""

    command: str  # "dlq requeue"
    ids: tuple[str, ...]
    given: dict[str, Any]
    limit: int | None
    dry_run: bool
    yes: bool
    detach: bool

    async def jobs(self, operator: Operator) -> Jobs:
        """The filter. "That long ago" is counted from the store's clock."""
        return await filtered(operator, self.given)

    def __str__(self) -> str:
        """The jobs in words.

        >>> str(Selection("dlq requeue", (), {"state": State.DLQ, "queue": "mail"}, None, False, False, False))
        'dead jobs in the queue mail'
        """
        return in_words(self.given)


async def filtered(operator: Operator, given: dict[str, Any]) -> Jobs:
    """The filter that was typed; a usage error names the option that is wrong."""
    if "flow" in given:
        from taskharbor.store.ids import flow_id

        given = {**given, "flow": await flow_id(operator.driver, given["flow"], operator.now)}
    with as_usage_error("--"):
        return operator.client.jobs(**choose_time(given, operator.now))


def in_words(given: dict[str, Any], number: int | None = None, capped: bool = False) -> str:
    """A filter as a person says it; with the number of its jobs, if that is known. `capped`: there may be more."""
    words = " ".join(_in_words(given))
    if number == 1 and not capped:
        words = words.replace("jobs", "job", 1)
    return words if number is None else f"{number:,}{'+' if capped else ''} {words}"


def _in_words(given: dict[str, Any]) -> Iterator[str]:
    state = given.get("state")
    yield "jobs" if state is None else "dead jobs" if state == State.DLQ else f"{state} jobs"
    for name, words in _WORDS.items():
        if given.get(name) is not None:
            yield words.format(one_line(given[name]))
    for name, before in (("since", "since"), ("until", "before")):
        moment = given.get(name)
        if isinstance(moment, datetime):
            yield f"{before} {format_moment(moment)}"
        elif isinstance(moment, timedelta):
            yield (
                f"of the last {format_duration(moment)}" if name == "since" else f"older than {format_duration(moment)}"
            )


def as_options(given: dict[str, Any]) -> list[str]:
    """A filter as the words to type for it; without the state, which the command may imply."""
    words: list[str] = []
    for name, value in given.items():
        if name == "state":
            continue
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, timedelta):
            value = f"{value.total_seconds():g}s"
        words += [f"--{name.replace('_', '-')}", value]
    return words


def select(command: str, options: dict[str, Any], *, state: State | None = None) -> Selection:
    """Take the selection out of the options of a command. `state`: the only one that it is for.

    An empty value is not the absence of one: --queue "$UNSET" must not mean every queue.
    """
    ids, everything = options.pop("ids"), options.pop("everything", None)  # None: the command has no --all
    typed = {name: options.pop(name) for name in FILTERS if name in options}
    older = options.pop("older_than", None)
    given = {name: value for name, value in typed.items() if value is not None}
    if older is not None:
        if "until" in given:
            raise usage_error(f"{command}: expected only one of --until and --older-than")
        given["until"] = older
    limit, detach = options.pop("limit"), options.pop("detach")
    if ids:
        more = {"all": everything or None, "limit": limit, "detach": detach or None}
        more |= {name.replace("_", "-"): options.get(name) for name in ("spread", "canary", "max_failures")}
        extra = [f"--{name}" for name in (*given, *(name for name, value in more.items() if value is not None))]
        if extra:
            raise usage_error(
                f"{command}: expected ids or a filter, got ids and {', '.join(extra)}; {extra[0]} is for a filter"
            )
    elif not given and not everything:
        raise usage_error(
            f"{command}: expected ids, or a filter such as --queue mail{'' if everything is None else ', or --all'}"
        )
    if state is not None:
        given["state"] = state
    elif "state" in given:
        given["state"] = State(given["state"])
    return Selection(command, ids, given, limit, options.pop("dry_run"), options.pop("yes"), detach)


# Jobs with ids


@dataclass
class BulkResult:
    """Ids that succeeded, and ids that were refused with their errors."""

    done: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, id: str, error: TaskHarborError | None) -> None:
        """Record the outcome for one more job."""
        if error is None:
            self.done.append(id)
        else:
            self.refused.append((id, str(error)))


def change_jobs(
    target: Target,
    selection: Selection,
    call: Callable[[Actions, list[str]], Awaitable[Sequence[TaskHarborError | None]]],
    action: str,
    *,
    past: str,
    takes: Collection[State],
    **options: Any,
) -> None:
    """Change the selected jobs: those of a filter by an operation for this `action`, those with ids by `call`.

    `past`: the action as a person says that it was done. `takes`: jobs in these states. `options`: of the operation.
    """
    if not selection.ids:
        from taskharbor.cli.many import change_many

        change_many(target, selection, action, **options)
        return
    if selection.dry_run:
        would_change(target, selection.ids, takes, past)
        return
    ids, result = full_ids(target, selection.ids)
    if ids and action != "requeue":
        what = f"{len(ids)} jobs" if len(ids) > 1 else f"job {ids[0]}"
        confirm(f"{action.capitalize()} {what}?", selection.yes)

    async def change(operator: Operator) -> None:
        for id, error in zip(ids, await call(operator.actions, ids), strict=True):
            result.add(id, error)

    act(target, change)
    finish(result, past, target)


def full_ids(target: Target, typed: Sequence[str]) -> tuple[list[str], BulkResult]:
    """The ids that a command was given, each whole and once; and those refused because no job, or several, fit."""
    result = BulkResult()
    if not any(map(is_prefix, typed)):
        return list(dict.fromkeys(typed)), result

    async def read(driver: Driver, now: datetime) -> list[str]:
        found: dict[str, None] = {}
        for each in typed:
            try:
                found[await job_id(driver, each, now)] = None
            except JobNotFound as error:
                result.add(each, error)
        return list(found)

    return call_store(target, read), result


def would_change(target: Target, typed: Sequence[str], states: Collection[State], what: str) -> None:
    """Print what a command would do with the jobs of these ids; exit with code 1 if it would refuse one."""
    found, result = full_ids(target, typed)

    async def read(driver: Driver, now: datetime) -> BulkResult:
        for id in found:
            try:
                info = await driver.inspect(id, now)
            except JobNotFound as error:
                result.add(id, error)
                continue
            takes = " and ".join(state.value for state in State if state in states)
            wrong = WrongState(f"job {id} is {info.state}; this takes {takes}")
            result.add(id, None if info.state in states else wrong)
        return result

    finish(call_store(target, read), what, target, dry_run=True)


def finish(result: BulkResult, what: str, target: Target, *, dry_run: bool = False) -> None:
    """Print the result; exit with code 1 if a job was refused."""
    one, many = ("would be", "would be") if dry_run else ("was", "were")
    if target.json:
        refused = [{"id": id, "error": error} for id, error in result.refused]
        write_json({"would" if dry_run else "done": result.done, "refused": refused})
    elif len(result.done) == 1:
        write(f"{one_line(result.done[0])} {one} {what}")
    elif result.done or not result.refused:
        write(f"{len(result.done)} jobs {many} {what}")
    if not target.json:
        for _, error in result.refused:
            click.echo(f"taskharbor: {safe_text(error)}", err=True)
    if result.refused:
        sys.exit(EXIT_REFUSED)
