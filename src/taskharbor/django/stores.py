"""Creating and upgrading stores with `manage.py migrate`, and emptying them after a test that flushes its database.

Not a migration of Django's: the schema has numbers of its own, and an upgrade of TaskHarbor must reach the store
without a new migration in the project. `post_migrate` comes after every `migrate`, also when there was nothing to do.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from django.core import mail
from django.db import connections, transaction

from taskharbor.django.address import POSTGRES, address_of, raw_connection
from taskharbor.django.harbors import our_aliases, tasks_settings
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.drivers.base import Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.errors import DriverError

_OF_POSTGRES = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename <> 'meta'"
_OF_SQLITE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'taskharbor\\_%' ESCAPE '\\'"


def backends_in(database: str) -> list[BackendOptions]:
    """The backends of TASKS whose jobs live in this database."""
    found = (read_options(alias, tasks_settings()[alias]) for alias in our_aliases())
    return [options for options in found if options.database == database]


def after_migrate(using: str, verbosity: int = 1, stdout: Any = None, **signal: Any) -> None:
    """Create or upgrade the stores in a database, unless the settings leave that to a person.

    Django sends `post_migrate` after `flush` as well, then without a plan. In a test (Django has replaced the outbox of
    mail there) that is the end of a `TransactionTestCase`: its jobs go with its rows.
    """
    is_flush = "plan" not in signal
    done: set[str | None] = set()
    for options in backends_in(using):
        address = address_of(options)
        if address in done:
            continue
        done.add(address)
        if is_flush:
            if hasattr(mail, "outbox"):
                empty(options)
        elif options.migrate == "auto":
            prepare(options)
            if verbosity >= 1:
                (stdout or sys.stdout).write(f"  TaskHarbor: the store in database {using!r} is up to date\n")


def prepare(options: BackendOptions) -> None:
    """Create or upgrade the store of a backend."""
    address = address_of(options)
    if address is None:
        from taskharbor.drivers.sqlite import schema

        with transaction.atomic(using=options.database):
            schema.prepare(raw_connection(connections[options.database]), "the database in memory", "auto")
        return
    asyncio.run(_open(open_driver(f"{address}&migrate=auto")))  # of two equal options the last one counts


def problem_of(options: BackendOptions) -> DriverError | None:
    """Why the store of a backend cannot be used as it is; None if it can. Changes nothing."""
    address = address_of(options)
    if address is None:
        return None
    try:
        asyncio.run(_open(open_driver(address), only_existing=True))
    except DriverError as error:
        return error
    return None


async def _open(driver: Driver, only_existing: bool = False) -> None:
    try:
        await (driver.open_existing() if only_existing else driver.open())
    finally:
        await driver.close()


def empty(options: BackendOptions) -> None:
    """Delete every job of a store, on Django's connection."""
    connection = connections[options.database]
    with transaction.atomic(using=options.database), connection.cursor() as cursor:
        if connection.vendor == POSTGRES:
            schema = options.store.get("schema", "taskharbor")
            cursor.execute(_OF_POSTGRES, [schema])
            quote = connection.ops.quote_name
            tables = [f"{quote(schema)}.{quote(name)}" for (name,) in cursor.fetchall()]
        else:
            cursor.execute(_OF_SQLITE)
            tables = [connection.ops.quote_name(name) for (name,) in cursor.fetchall() if name != "taskharbor_meta"]
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")
