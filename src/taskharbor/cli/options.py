"""Options that several commands have, and what a person types in them: moments, durations, numbers, JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import click

from taskharbor.cli.errors import usage_error

F = TypeVar("F", bound=Callable[..., Any])


class OptionDecorator(Protocol):
    """Takes a command, or its function, and returns the same with more options."""

    def __call__(self, function: F, /) -> F:
        """The function with the options."""


# What is typed


def parse_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse an option: an ISO 8601 moment with a time zone."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            "expected a moment such as 2030-01-31T09:00:00Z or 2030-01-31T09:00+01:00", ctx, param
        ) from None
    if found.tzinfo is None:
        typed = value if len(value) > len("2030-01-31") else f"{value}T00:00:00"  # a date alone takes no zone
        raise click.BadParameter(
            f"expected a time zone: {typed}Z for UTC, or an offset such as {typed}+01:00", ctx, param
        )
    return found


def parse_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Parse an option: seconds, or a number with ms, s, m, h or d."""
    if value is None:
        return None
    from taskharbor.drivers.dsn import span as read

    try:
        return read(value, "a duration")
    except ValueError:
        raise click.BadParameter("expected a duration such as 90, 90s, 15m, 2h or 1d", ctx, param) from None


def parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | timedelta | None:
    """Parse an option: a moment, or a duration, which means that long ago."""
    if value is None or not value[:1].isdigit() or "-" in value or ":" in value:
        return parse_moment(ctx, param, value)
    try:
        return parse_duration(ctx, param, value)
    except click.BadParameter:
        raise click.BadParameter(
            "expected a duration such as 90s, 15m, 2h or 1d, for that long ago, or a moment such as "
            "2030-01-31T09:00:00Z",
            ctx,
            param,
        ) from None


def or_none(parse: Callable[..., Any]) -> Callable[..., Any]:
    """The same, or the word none."""
    return lambda ctx, param, value: "none" if value == "none" else parse(ctx, param, value)


def choose_time(query: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The query with "that long ago" as a moment."""
    times = {name: now - query[name] for name in ("since", "until") if isinstance(query.get(name), timedelta)}
    return {**query, **times}


def read_json(text: str, option: str) -> bytes:
    """The JSON text, checked; `-` reads it from stdin. No error message repeats the text, which may be secret."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")
    return checked_json(data, f'{option}: expected JSON such as \'{{"to": "ada"}}\'')


def checked_json(data: bytes, expected: str) -> bytes:
    """JSON that was typed or edited, or a usage error that begins with what was expected."""
    import msgspec  # not at the start of every command

    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(":")[-1].strip()
        if isinstance(error, UnicodeDecodeError):
            why = "not UTF-8"
        raise usage_error(f"{expected}, got invalid JSON ({why})") from None
    return data.strip()


# One option. `to`: the name of its parameter, if that is not the option's own


def word(name: str, metavar: str | None, help: str, to: str = "", **more: Any) -> OptionDecorator:
    """`--name METAVAR`: a text."""
    return click.option(*filter(None, (name, to)), metavar=metavar, help=help, **more)


def flag(name: str, help: str, to: str = "") -> OptionDecorator:
    """`--name`: yes or no."""
    return click.option(*filter(None, (name, to)), is_flag=True, help=help)


def number(
    name: str, help: str, low: int = 1, high: int | None = None, default: int | None = None, metavar: str | None = "N"
) -> OptionDecorator:
    """`--name N`: a whole number of at least `low`."""
    return word(name, metavar, help, type=click.IntRange(low, high), default=default, show_default=default is not None)


def choice(name: str, values: Sequence[str], help: str, default: str | None = None) -> OptionDecorator:
    """`--name WORD`: one of these words."""
    return click.option(name, type=click.Choice(values), default=default, show_default=default is not None, help=help)


def duration(name: str, help: str, metavar: str = "DURATION", **more: Any) -> OptionDecorator:
    """`--name DURATION`."""
    return word(name, metavar, help, callback=parse_duration, **more)


def time(name: str, help: str) -> OptionDecorator:
    """`--name TIME`: a moment, or that long ago."""
    return word(name, "TIME", help, callback=parse_time)


def since(what: str) -> OptionDecorator:
    """`--since TIME`."""
    return time("--since", f"{what}. 2h and 1d mean that long ago; a moment is 2030-01-31T09:00:00Z.")


# Several options


def together(*options: OptionDecorator) -> OptionDecorator:
    """Several options as one decorator, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


id_argument: OptionDecorator = click.argument("id", metavar="ID")
yes_option: OptionDecorator = flag("--yes", "Do not ask for confirmation.")
newest_option: OptionDecorator = flag("--newest", "The newest job first.")
page_options: OptionDecorator = together(
    number("--limit", "Rows per page.", high=10_000, default=50),
    word("--cursor", "CURSOR", "Continue after the previous page."),
)
payload_options: OptionDecorator = together(
    flag("--show-payload", "Show what is hidden: the payload, the result, and their values in errors."),
    word("--redact", "FIELD", "Show it, but mask this field at any depth (repeatable).", multiple=True),
)
"""For a command that can show what a job carries."""
output_option: OptionDecorator = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format: table for people, json for scripts.",
)
"""For a command that uses no store of the user's."""
arguments_option: OptionDecorator = word(
    "--json", "JSON", "Arguments by name; - reads them from stdin.", "payload", default="{}"
)
queue_option: OptionDecorator = word("--queue", "NAME", "Only jobs in this queue.")
type_option: OptionDecorator = word("--type", "TYPE", "Only jobs of this type.")
group_option: OptionDecorator = word("--group", "NAME", "Only jobs of this group.")
place_options: OptionDecorator = together(queue_option, type_option, group_option)
ended_options: OptionDecorator = together(
    since("Only jobs that ended at this time or later; unfinished ones: that were created then"),
    time("--until", "The same, before this time."),
    word(
        "--error",
        "CLASS",
        "Only jobs whose last error is of this class: zipfile.BadZipFile, or builtins.KeyError for one of Python's "
        "own. A name without a module finds every class of that name; a command that changes jobs refuses it and "
        "says which there are.",
    ),
    word("--fingerprint", "TEXT", "Only jobs whose last error has this fingerprint."),
)
"""When jobs ended, and with which error."""
error_options: OptionDecorator = together(place_options, ended_options)
"""The filters that dead jobs are chosen by."""
many_options: OptionDecorator = together(
    click.argument("ids", nargs=-1, metavar="[ID]…"),
    error_options,
    number("--limit", "With a filter: at most N jobs, oldest first."),
    flag("--dry-run", "Show which jobs would be changed, and change nothing."),
    yes_option,
    flag("--detach", "With a filter: let workers do it, and return at once."),
)
"""The ids, the filters, and how to act on many jobs."""
keep_attempts_option: OptionDecorator = flag(
    "--keep-attempts", "Keep the count of failures, so that the next failure may be final."
)
pace_options: OptionDecorator = together(
    duration("--spread", "Let them start over this time, not at once."),
    number("--canary", "Try N jobs first. If they die again, the others stay as they are.", high=100),
    number("--max-failures", "With --canary: go on if at most N of them die again.  [default: 0]", low=0),
)
"""How many jobs are brought back."""
