"""The options of a DSN: ours are taken out, the rest of the address goes to libpq as it is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from taskharbor.drivers.base import DEFAULT_RETENTION
from taskharbor.drivers.dsn import (
    UNREADABLE,
    choice_of,
    flag_of,
    max_payload_of,
    number_of,
    options_of,
    retention_of,
    scheme_of,
    seconds_of,
)
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES

_OURS = """schema retention max_payload migrate pool_size listen_dsn pgbouncer reserve statement_timeout
connect_timeout"""
OURS = frozenset(_OURS.split())
# Parameters for libpq that an address may have: how to find, trust and name the server. Others would change our work.
_LIBPQ = """host hostaddr port user password dbname passfile service requirepeer require_auth application_name
sslmode sslcert sslkey sslpassword sslrootcert sslcrl sslcrldir sslsni sslcompression sslcertmode sslnegotiation
ssl_min_protocol_version ssl_max_protocol_version channel_binding gssencmode krbsrvname gsslib
target_session_attrs load_balance_hosts"""
LIBPQ = frozenset(_LIBPQ.split())
MIGRATE = ("create", "auto", "manual")
RESERVE = ("durable", "unflushed")
# libpq refuses these with a message that repeats the address, password included.
_REFUSED = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, kw_only=True)
class PostgresOptions:
    """What a DSN says.

    `postgresql://user:password@host:5432/database`. `postgres://` is the same. Parameters of libpq that say how to find
    and trust the server, such as `sslmode`, go there as they are; others are refused.

    Options:
        schema: The schema that holds all tables. Default: taskharbor.
        migrate: `create`: make the schema in a database without it, and refuse an older one. `auto`: upgrade it.
            `manual`: change nothing. Default: create.
        pool_size: The largest number of connections of one opened driver, made when needed. Default: 10.
        reserve: `durable`: a reservation is flushed to disk. `unflushed`: it is not. Default: durable.
        pgbouncer: `1` behind pgbouncer in transaction mode. Default: 0.
        listen_dsn: Where LISTEN is done, if not at this address; percent-encoded.
        statement_timeout: When the server gives up a call; `0`: never. Default: 30s.
        connect_timeout: How long connecting may take. Default: 5s.
        retention: How long done and cancelled jobs are kept. Default: 24h.
        max_payload: The largest payload, in bytes. Default: 1048576.
    """

    address: str
    schema: str = "taskharbor"
    retention: timedelta = DEFAULT_RETENTION
    max_payload: int = MAX_PAYLOAD_BYTES
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
    listen = given.get("listen_dsn") or None
    if listen is not None and not listen.startswith(("postgresql://", "postgres://")):
        raise ValueError("listen_dsn: expected postgresql://…, written with %26 for & and %3F for ?")
    return PostgresOptions(
        address=address,
        schema=schema,
        retention=retention_of(given),
        max_payload=max_payload_of(given),
        migrate=choice_of(given, "migrate", *MIGRATE),
        pool_size=number_of(given, "pool_size", 10, "a number of connections"),
        listen=listen,
        pgbouncer=flag_of(given, "pgbouncer", False),
        durable_reserve=choice_of(given, "reserve", *RESERVE) == "durable",
        statement_timeout=seconds_of(given, "statement_timeout", "30s", zero=True),
        connect_timeout=seconds_of(given, "connect_timeout", "5s", zero=True),
    )


def located(dsn: str) -> str:
    """The DSN with what the environment (PGHOST, PGDATABASE …) adds to it, for a process with another environment."""
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
