"""The DSN: which file, and how it is to be treated."""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import quote, unquote, urlsplit

import msgspec

from taskharbor.drivers.contract import DEFAULT_RETENTION
from taskharbor.drivers.dsn import options_of, scheme_of, span
from taskharbor.model.bounds import MAX_PAYLOAD

_OPTIONS = frozenset({"retention", "max_payload", "synchronous", "migrate"})


class SqliteOptions(msgspec.Struct, frozen=True):
    """Where the jobs are. The path is absolute and has no symbolic links: a later change of directory changes nothing,
    and all processes lock the same file, whatever name they use."""

    path: str
    retention: timedelta = DEFAULT_RETENTION
    max_payload: int = MAX_PAYLOAD
    synchronous: str = "full"
    migrate: str = "auto"


def parse(dsn: str) -> SqliteOptions:
    """The address in a DSN, or ValueError that says what was expected.

    >>> parse("sqlite:////var/lib/shop/jobs.db?synchronous=normal").path
    '/var/lib/shop/jobs.db'
    """
    if scheme_of(dsn) != "sqlite":
        raise ValueError("expected sqlite:///relative.db or sqlite:////absolute.db")
    parts = urlsplit(dsn)
    path = unquote(parts.path[1:])
    if ":memory:" in (path, unquote(parts.netloc)) or (not path and not parts.netloc):
        raise ValueError(
            "sqlite:// needs a file, such as sqlite:///jobs.db: jobs in memory are lost with their process, "
            "and memory:// is made for that"
        )
    if parts.netloc or not dsn[len("sqlite:") :].startswith("//"):
        raise ValueError("expected three slashes before a relative path and four before an absolute one")
    if parts.fragment or "\x00" in path or path.endswith("/"):
        raise ValueError("expected the path of a file, such as sqlite:///jobs.db")
    options = options_of(dsn, _OPTIONS)
    retention = span(options["retention"], "retention") if "retention" in options else DEFAULT_RETENTION
    max_payload = options.get("max_payload", str(MAX_PAYLOAD))
    if not max_payload.isascii() or not max_payload.isdigit() or int(max_payload) < 1:
        raise ValueError(f"max_payload: expected a number of bytes, got {max_payload!r}")
    return SqliteOptions(
        os.path.realpath(path),
        retention,
        int(max_payload),
        _choice(options, "synchronous", "full", "normal"),
        _choice(options, "migrate", "auto", "manual"),
    )


def located(dsn: str, options: SqliteOptions) -> str:
    """The DSN with the path that it had when it was read.

    >>> located("sqlite:///jobs.db?synchronous=normal", SqliteOptions("/var/lib/shop/my jobs.db"))
    'sqlite:////var/lib/shop/my%20jobs.db?synchronous=normal'
    """
    query = urlsplit(dsn).query
    return f"sqlite:///{quote(options.path)}{'?' if query else ''}{query}"


def _choice(options: dict[str, str], name: str, default: str, other: str) -> str:
    value = options.get(name, default)
    if value not in (default, other):
        raise ValueError(f"{name}: expected {default} or {other}, got {value!r}")
    return value
