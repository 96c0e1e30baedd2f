"""Which jobs a command changes: by their ids, or by a filter. Never both, and never all of them by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.time_options import parse_duration, parse_time
from taskharbor.model.job import State
from taskharbor.ops.json_output import STATES
from taskharbor.ops.text import one_line
from taskharbor.ops.timefmt import format_duration, format_moment

if TYPE_CHECKING:
    from taskharbor.cli.acting import Operator
    from taskharbor.client.jobs import Jobs

F = TypeVar("F", bound=Callable[..., Any])

FILTERS = ("state", "queue", "type", "group", "flow", "error", "fingerprint", "since", "until")
ERROR_HELP = (
    "Only jobs whose last error is of this class: zipfile.BadZipFile, or builtins.KeyError for one of Python's own. "
    "A name without a module finds every class of that name; a command that changes jobs refuses it and says which "
    "there are."
)
_PACE = {"spread": "--spread", "canary": "--canary", "max_failures": "--max-failures"}
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
        from taskharbor.ops.ids import flow_id

        given = {**given, "flow": await flow_id(operator.driver, given["flow"], operator.now)}
    times = {name: operator.now - given[name] for name in ("since", "until") if isinstance(given.get(name), timedelta)}
    try:
        return operator.client.jobs(**{**given, **times})
    except (TypeError, ValueError) as error:
        raise usage_error(f"--{error}") from error


def in_words(given: dict[str, Any]) -> str:
    """A filter as a person says it."""
    return " ".join(_in_words(given))


def _in_words(given: dict[str, Any]) -> Iterator[str]:
    state = given.get("state")
    yield "jobs" if state is None else "dead jobs" if state == State.DLQ else f"{state} jobs"
    for name, words in _WORDS.items():
        if given.get(name) is not None:
            yield words.format(one_line(given[name]))
    for name, word in (("since", "since"), ("until", "before")):
        moment = given.get(name)
        if isinstance(moment, datetime):
            yield f"{word} {format_moment(moment)}"
        elif isinstance(moment, timedelta):
            yield (
                f"of the last {format_duration(moment)}" if name == "since" else f"older than {format_duration(moment)}"
            )


def error_options(command: F) -> F:
    """Add the filters that dead jobs are chosen by."""
    for option in (
        click.option("--fingerprint", metavar="TEXT", help="Only jobs whose last error has this fingerprint."),
        click.option("--error", metavar="CLASS", help=ERROR_HELP),
        click.option("--until", callback=parse_time, metavar="TIME", help="The same, before this time."),
        click.option(
            "--since",
            callback=parse_time,
            metavar="TIME",
            help="Only jobs that ended at this time or later; unfinished ones: that were created then. 2h and 1d mean "
            "that long ago; a moment is 2030-01-31T09:00:00Z.",
        ),
        click.option("--group", metavar="NAME", help="Only jobs of this group."),
        click.option("--type", metavar="TYPE", help="Only jobs of this type."),
        click.option("--queue", metavar="NAME", help="Only jobs in this queue."),
    ):
        command = option(command)
    return command


def any_state_options(command: F) -> F:
    """Add the filters of a command for jobs in any state. Place this above `many_options`."""
    flow = click.option("--flow", metavar="ID", help="Only jobs of this workflow.")
    return click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")(flow(command))


def many_options(command: F) -> F:
    """Add the ids, the filters, and how to act on many jobs."""
    for option in (
        click.option("--detach", is_flag=True, help="With a filter: let workers do it, and return at once."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="Show which jobs would be changed, and change nothing."),
        click.option(
            "--limit", type=click.IntRange(1), metavar="N", help="With a filter: at most N jobs, oldest first."
        ),
    ):
        command = option(command)
    return click.argument("ids", nargs=-1, metavar="[ID]…")(error_options(command))


def pace_options(command: F) -> F:
    """Add how jobs are brought back that are many."""
    for option in (
        click.option(
            "--max-failures",
            type=click.IntRange(0),
            metavar="N",
            help="With --canary: go on if at most N of them die again.  [default: 0]",
        ),
        click.option(
            "--canary",
            type=click.IntRange(1, 100),
            metavar="N",
            help="Try N jobs first. If they die again, the others stay as they are.",
        ),
        click.option(
            "--spread", callback=parse_duration, metavar="DURATION", help="Let them start over this time, not at once."
        ),
    ):
        command = option(command)
    return command


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
        extra = [f"--{name}" for name in given]
        extra += [
            flag for flag, is_there in (("--all", everything), ("--limit", limit), ("--detach", detach)) if is_there
        ]
        extra += [flag for name, flag in _PACE.items() if options.get(name) is not None]
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
