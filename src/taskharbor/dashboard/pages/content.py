"""What a page returns, and what it may ask of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.dsn import span
from taskharbor.model.errors import TaskHarborError
from taskharbor.ops.schedule_edit import FIELDS

MAX_QUOTED_CHARS = 40  # of input, in an error
QUERY_NAMES = (
    "state", "queue", "type", "group", "flow", "error", "fingerprint", "since", "until",
    "action", "by", "cursor", "limit", "q", "span", "status",
    *(prefix + field for field in FIELDS for prefix in ("", "was_")),
)  # fmt: skip
MAX_DIGITS = 9  # of a number in an address


class BadQuery(TaskHarborError):
    """The address of a page asks for something that makes no sense."""


@contextmanager
def as_bad_query(*kinds: type[Exception]) -> Iterator[None]:
    """A BadQuery for a value in a page's address, or in a form, that the core refuses: with one of these errors, or
    with a ValueError. The core's own errors stay as they are."""
    refusals = kinds or (ValueError,)
    try:
        yield
    except TaskHarborError:
        raise
    except refusals as error:
        raise BadQuery(str(error)) from error


def quoted(text: str) -> str:
    """Input in an error: its beginning, however long it is.

    >>> quoted("zombie"), len(quoted("z" * 5000))
    ("'zombie'", 43)
    """
    return repr(text) if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]!r}…"


@dataclass(frozen=True, repr=False)
class PageQuery:
    """What the address of a page says. `json`: a script asks, which gets the command line's keys."""

    values: Mapping[str, str]
    path: Mapping[str, str] = field(default_factory=dict)
    json: bool = False

    def text(self, name: str) -> str | None:
        """A value of the address; None if it is not given or empty. Pages ask only for QUERY_NAMES."""
        return self.values.get(name, "").strip() or None

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """The value of this name, which must be one of `allowed`."""
        value = self.text(name) or default
        if value not in allowed:
            raise BadQuery(f"{name}: expected one of {', '.join(allowed)}, got {quoted(value)}")
        return value

    def whole(self, name: str, default: int, most: int, least: int = 1) -> int:
        """A whole number in its limits."""
        value = self.text(name)
        if value is None:
            return default
        found = int(value) if len(value) <= MAX_DIGITS and value.isascii() and value.isdigit() else None
        if found is None or not least <= found <= most:
            raise BadQuery(f"{name}: expected a whole number from {least} to {most}")
        return found

    def moment(self, name: str, now: datetime) -> datetime | None:
        """A moment, or a duration, which means that long ago."""
        value = self.text(name)
        return None if value is None else moment_of(value, name, now)


@dataclass(frozen=True, repr=False)
class PageContent:
    """A page: the template that draws `view`, and `data` for scripts, with the command line's keys."""

    template: str
    title: str
    data: Any
    view: dict[str, Any]
    topics: tuple[str, ...] = ()  # what makes it read again
    job: str | None = None  # the job that it shows whole
    status: int = 200
    redirect: str | None = None  # another page of the dashboard, in place of this one


def moment_of(text: str, name: str, now: datetime) -> datetime:
    """A moment that a person typed: ISO 8601 with a time zone, or how long ago."""
    try:
        if text[:1].isdigit() and "-" not in text and ":" not in text:
            found: timedelta = span(text, name)
            return now - found
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadQuery(f"{name}: expected a duration such as 15m, 2h or 1d, or a moment such as 2030-01-31T09:00:00Z")
    return moment
