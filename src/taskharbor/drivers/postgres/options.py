"""The DSN's options: ours are taken out, the rest of the address goes to PostgreSQL's own library as it is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from taskharbor.drivers.contract import DEFAULT_RETENTION
from taskharbor.drivers.dsn import UNREADABLE, options_of, scheme_of, span
from taskharbor.model.bounds import MAX_PAYLOAD

OURS = frozenset(
    {
        "schema",
        "retention",
        "max_payload",
        "migrate",
        "pool_size",
        "listen_dsn",
        "pgbouncer",
        "reserve",
        "statement_timeout",
        "connect_timeout",
    }
)
# What libpq may be told in the address: how to find, trust and name the server, and nothing that changes how we work.
LIBPQ = frozenset(
    {
        "host",
        "hostaddr",
        "port",
        "user",
        "password",
        "dbname",
        "passfile",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslrootcert",
        "sslcrl",
        "sslcrldir",
        "sslsni",
        "sslcompression",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "gssencmode",
        "krbsrvname",
        "gsslib",
        "channel_binding",
        "require_auth",
        "target_session_attrs",
        "load_balance_hosts",
        "application_name",
        "service",
        "requirepeer",
        "sslcertmode",
        "sslnegotiation",
    }
)
MIGRATE = ("create", "auto", "manual")
RESERVE = ("durable", "unflushed")
# What libpq refuses with a message that repeats it, password or not.
_REFUSED = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, kw_only=True)
class PostgresOptions:
    """What a DSN says."""

    address: str
    schema: str = "taskharbor"
    retention: timedelta = DEFAULT_RETENTION
    max_payload: int = MAX_PAYLOAD
    migrate: str = "create"
    pool_size: int = 10
    listen: str | None = None
    pgbouncer: bool = False
    durable_reserve: bool = True
    statement_timeout: float = 30.0
    connect_timeout: float = 5.0

    def __repr__(self) -> str:
        return f"PostgresOptions(schema={self.schema!r}, …)"


def parse(dsn: str) -> PostgresOptions:
    """The options of a DSN, or ValueError that says what was expected."""
    if scheme_of(dsn) not in {"postgresql", "postgres"} or "://" not in dsn:
        raise ValueError("expected postgresql://user@host:port/database")
    given = options_of(dsn, OURS | LIBPQ)
    parts = urlsplit(dsn)
    if parts.netloc.count("@") > 1 or "#" in dsn:  # libpq would look for a host named after half of the password
        raise ValueError(UNREADABLE)
    if _REFUSED.search(parts.netloc + parts.path):
        raise ValueError("expected no space in it and %25 for each % in a password; write a space as %20")
    rest = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in OURS]
    # Not urlunsplit, which leaves the slashes out where there is no host: the server is found by PGHOST or its socket.
    address = f"postgresql://{parts.netloc}{parts.path}{'?' if rest else ''}{_query(rest)}"
    schema = given.get("schema", "taskharbor")
    if not 1 <= len(schema.encode()) <= 63 or "\x00" in schema or schema.lower().startswith("pg_"):
        raise ValueError("schema: expected 1 to 63 bytes that do not begin with pg_")
    migrate = given.get("migrate", "create")
    if migrate not in MIGRATE:
        raise ValueError(f"migrate: expected one of {', '.join(MIGRATE)}, got {migrate[:40]!r}")
    pgbouncer = given.get("pgbouncer", "0")
    if pgbouncer not in {"0", "1"}:
        raise ValueError(f"pgbouncer: expected 0 or 1, got {pgbouncer[:40]!r}")
    reserve = given.get("reserve", "durable")
    if reserve not in RESERVE:
        raise ValueError(f"reserve: expected one of {', '.join(RESERVE)}, got {reserve[:40]!r}")
    listen = given.get("listen_dsn") or None
    if listen is not None and not listen.startswith(("postgresql://", "postgres://")):
        raise ValueError("listen_dsn: expected postgresql://…, written with %26 for & and %3F for ?")
    return PostgresOptions(
        address=address,
        schema=schema,
        retention=span(given["retention"], "retention") if "retention" in given else DEFAULT_RETENTION,
        max_payload=_number(given.get("max_payload", str(MAX_PAYLOAD)), "max_payload", "a number of bytes"),
        migrate=migrate,
        pool_size=_number(given.get("pool_size", "10"), "pool_size", "a number of connections"),
        listen=listen,
        pgbouncer=pgbouncer == "1",
        durable_reserve=reserve == "durable",
        statement_timeout=span(given.get("statement_timeout", "30s"), "statement_timeout").total_seconds(),
        connect_timeout=span(given.get("connect_timeout", "5s"), "connect_timeout").total_seconds(),
    )


def located(dsn: str) -> str:
    """The DSN with what this process's environment (PGHOST, PGDATABASE …) adds to it, for one that has another."""
    from psycopg import pq

    given = {option.keyword for option in pq.Conninfo.parse(parse(dsn).address.encode()) if option.val is not None}
    added = [
        (option.keyword.decode(), option.val.decode())
        for option in pq.Conninfo.get_defaults()
        if option.val is not None
        and option.keyword not in given
        and option.keyword.decode() in LIBPQ
        and (option.envvar or b"").decode() in os.environ
    ]
    # What a service file says goes before the environment, so nothing of that may be added to it.
    service = b"service" in given or "PGSERVICE" in os.environ
    query = _query([(name, value) for name, value in added if not service or name == "service"])
    return f"{dsn}{'&' if '?' in dsn else '?'}{query}" if query else dsn


def _query(options: list[tuple[str, str]]) -> str:
    return urlencode(options, quote_via=quote)  # to libpq a plus is no space


def _number(text: str, name: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= len(text) <= 9 or int(text) < 1:
        raise ValueError(f"{name}: expected {what}, got {text[:40]!r}")
    return int(text)
