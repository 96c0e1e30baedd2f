"""Where the jobs of a backend are: a DSN, or a database in memory that only Django's own connection reaches.

The address of a database is read from the connection's settings each time it is needed, because tests change its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from taskharbor.django.settings import BackendOptions

POSTGRES = "postgresql"
SQLITE = "sqlite"

# What Django passes to psycopg and an address may say too. The rest is about Django's own connections.
_SSL = ("mode", "cert", "key", "password", "rootcert", "crl", "crldir", "sni", "certmode", "negotiation")
_OF_LIBPQ = frozenset(
    {
        *(f"ssl{name}" for name in _SSL),
        *("hostaddr", "passfile", "gssencmode", "krbsrvname", "channel_binding", "require_auth"),
        *("target_session_attrs", "load_balance_hosts", "service"),
    }
)


class WrongDatabase(ImproperlyConfigured):  # type: ignore[misc]  # Django has no types
    """The database of a backend cannot hold jobs."""


def address_of(options: BackendOptions) -> str | None:
    """The DSN of a backend's store; None for an SQLite database in memory."""
    if options.dsn is not None:
        return _with(options.dsn, options.store)
    assert options.database is not None
    connection = connections[options.database]
    # Only `manage.py migrate` changes a schema: a web process may have a role that cannot.
    store = {"migrate": "manual", **options.store}
    if connection.vendor == POSTGRES:
        if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):  # Django's word for a pooler of transactions
            store = {"pgbouncer": True, **store}
        return _with(_postgres(connection), store)
    if connection.vendor == SQLITE:
        path = sqlite_path(connection)
        return None if path is None else _with(f"sqlite:///{quote(path)}", store)
    raise WrongDatabase(
        f"TASKS[{options.alias!r}]['OPTIONS']: database {options.database!r}: expected PostgreSQL or SQLite, got "
        f"{connection.display_name}; name another alias, or give a 'dsn'"
    )


def sqlite_path(connection: Any) -> str | None:
    """The file of an SQLite database; None if it is in memory."""
    name = str(connection.settings_dict["NAME"])
    if connection.is_in_memory_db():
        return None
    if name.startswith("file:"):
        raise WrongDatabase(
            f"database {connection.alias!r}: expected the path of a file in NAME, got a URI; give its path"
        )
    return os.path.abspath(name)


def _postgres(connection: Any) -> str:
    """The address of a PostgreSQL database. Host, user and password stand where errors leave them out."""
    given: Mapping[str, Any] = connection.get_connection_params()
    user, password = given.get("user") or "", given.get("password") or ""
    host, port = str(given.get("host") or ""), str(given.get("port") or "")
    more = {name: str(given[name]) for name in sorted(_OF_LIBPQ & given.keys())}
    if "connect_timeout" in given:
        more["connect_timeout"] = f"{given['connect_timeout']}s"
    who = f"{_quoted(user)}{f':{_quoted(password)}' if password else ''}@" if user or password else ""
    if host.startswith("/") or "," in host or ":" in host:
        more |= {"host": host, **({"port": port} if port else {})}
        place = ""
    else:
        place = f"{host}{f':{port}' if port else ''}"
    name = given.get("dbname") or ""
    return f"postgresql://{who}{place}/{_quoted(name)}{f'?{urlencode(more, quote_via=quote)}' if more else ''}"


def _quoted(text: Any) -> str:
    return quote(str(text), safe="")


def _with(dsn: str, options: Mapping[str, Any]) -> str:
    """The DSN with more options. True and False are 1 and 0 there."""
    if not options:
        return dsn
    texts = {name: str(int(value) if isinstance(value, bool) else value) for name, value in options.items()}
    return f"{dsn}{'&' if '?' in dsn else '?'}{urlencode(texts, quote_via=quote)}"


def raw_connection(connection: Any) -> Any:
    """The library's own connection inside Django's, connected."""
    if connection.connection is None:
        connection.ensure_connection()
    return connection.connection


def is_in_memory(connection: Any) -> bool:
    """Whether it leads to an SQLite database in memory."""
    return bool(connection.vendor == SQLITE and connection.is_in_memory_db())


def is_manual(alias: str) -> bool:
    """Whether the program itself begins and commits transactions there: then Django runs nothing after a commit."""
    connection = connections[alias]
    return not connection.in_atomic_block and not connection.get_autocommit()


def is_configured(alias: str) -> bool:
    """Whether there is a database behind this alias. A project without any has an empty "default"."""
    return alias in connections.settings and connections.settings[alias]["ENGINE"] != "django.db.backends.dummy"
