"""`taskharbor outbox`: the tables beside an application's own."""

from __future__ import annotations

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.options import word
from taskharbor.cli.output import write
from taskharbor.drivers.dsn import redact, scheme_of
from taskharbor.drivers.within import POSTGRES, SQLITE

_DATABASES = {"postgresql": POSTGRES, "postgres": POSTGRES, "sqlite": SQLITE}


@click.group()
def outbox() -> None:
    """Print the tables for a database of your own."""


@outbox.command()
@word("--dsn", "DSN", "Your own database, which need not be the store: postgresql://… or sqlite:///…", required=True)
def sql(dsn: str) -> None:
    """Print the SQL that makes the tables, for a migration of your own. Connects to nothing.

    harbor.outbox.create(connection) makes the same tables.

    \b
    Examples:
      taskharbor outbox sql --dsn postgresql://localhost/shop | psql shop
      taskharbor outbox sql --dsn sqlite:///shop.db | sqlite3 shop.db
    """
    from taskharbor.outbox.tables import statements

    try:
        database = _DATABASES.get(scheme_of(dsn))
    except ValueError as error:
        raise usage_error(f"--dsn: {error}") from None
    if database is None:
        raise usage_error(f"--dsn: expected postgresql://… or sqlite:///…, got {redact(dsn)}")
    for statement in statements(database):
        write(f"{statement};")
