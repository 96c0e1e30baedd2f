"""The DSN of a SQLite store: which file, and how it is used."""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import quote, unquote, urlsplit

import msgspec

from taskharbor.drivers.base import DEFAULT_RETENTION
from taskharbor.drivers.dsn import choice_of, max_payload_of, options_of, retention_of, scheme_of
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES

_OPTIONS = frozenset({"retention", "max_payload", "synchronous", "migrate"})

IN_MEMORY = ":memory:"
"""Stands for the path of a database in memory, which only `SqliteOnConnection` reaches."""


class SqliteOptions(msgspec.Struct, frozen=True):
    """What a DSN says. The path is absolute and has no symbolic links: a later change of directory changes nothing, and
    all processes lock the same file, whatever name they use.

    Three slashes and a relative path, `sqlite:///jobs.db`, or four and an absolute one, `sqlite:////var/lib/jobs.db`.

    Options:
        synchronous: `full`: what was acknowledged survives a power cut. `normal`: the last transactions before one may
            be lost. Default: full.
        migrate: `auto`: upgrade an older schema when the file is opened. `manual`: refuse it, and name
            `taskharbor migrate`. Default: auto.
        retention: How long done and cancelled jobs are kept. Default: 24h.
        max_payload: The largest payload, in bytes. Default: 1048576.
    """

    path: str
    retention: timedelta = DEFAULT_RETENTION
    max_payload: int = MAX_PAYLOAD_BYTES
    synchronous: str = "full"
    migrate: str = "auto"


def parse(dsn: str) -> SqliteOptions:
    """The options in a DSN; ValueError that says what was expected.

    >>> parse("sqlite:////var/lib/shop/jobs.db?synchronous=normal").path
    '/var/lib/shop/jobs.db'
    """
    if scheme_of(dsn) != "sqlite":
        raise ValueError("expected sqlite:///relative.db or sqlite:////absolute.db")
    parts = urlsplit(dsn)
    path = unquote(parts.path[1:])
    if IN_MEMORY in (path, unquote(parts.netloc)) or (not path and not parts.netloc):
        raise ValueError(
            "sqlite:// needs a file, such as sqlite:///jobs.db: jobs in memory are lost with their process, "
            "and memory:// is made for that"
        )
    if parts.netloc or not dsn[len("sqlite:") :].startswith("//"):
        raise ValueError("expected three slashes before a relative path and four before an absolute one")
    if parts.fragment or "\x00" in path or path.endswith("/"):
        raise ValueError("expected the path of a file, such as sqlite:///jobs.db")
    options = options_of(dsn, _OPTIONS)
    return SqliteOptions(
        os.path.realpath(path),
        retention_of(options),
        max_payload_of(options),
        choice_of(options, "synchronous", "full", "normal"),
        choice_of(options, "migrate", "auto", "manual"),
    )


def located(dsn: str, options: SqliteOptions) -> str:
    """The DSN with the absolute path that it had when it was read.

    >>> located("sqlite:///jobs.db?synchronous=normal", SqliteOptions("/var/lib/shop/my jobs.db"))
    'sqlite:////var/lib/shop/my%20jobs.db?synchronous=normal'
    """
    query = urlsplit(dsn).query
    return f"sqlite:///{quote(options.path)}{'?' if query else ''}{query}"
