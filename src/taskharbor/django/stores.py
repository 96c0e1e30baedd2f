"""Creating and upgrading stores with `manage.py migrate`, and emptying them after a test that flushes its database.

Not a migration of Django's: the schema has numbers of its own, and an upgrade of TaskHarbor must reach the store
without a new migration in the project. `post_migrate` comes after every `migrate`, also when there was nothing to do.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from django.db import connections, transaction

from taskharbor.django.address import address_of, raw_connection
from taskharbor.django.harbors import our_aliases, tasks_settings
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.drivers.contract import Driver
from taskharbor.drivers.registry import open_driver


def backends_in(database: str) -> list[BackendOptions]:
    """The backends of TASKS whose jobs live in this database."""
    found = (read_options(alias, tasks_settings()[alias]) for alias in our_aliases())
    return [options for options in found if options.database == database]


def after_migrate(using: str, verbosity: int = 1, stdout: Any = None, **told: Any) -> None:
    """Create or upgrade the stores in a database, unless the settings leave that to a person."""
    prepared: set[str | None] = set()
    for options in backends_in(using):
        address = address_of(options)
        if address in prepared:
            continue
        prepared.add(address)
        if options.migrate == "manual":
            continue
        prepare(options)
        if verbosity >= 1 and "plan" in told:
            (stdout or sys.stdout).write(f"  TaskHarbor: the store in database {using!r} is up to date\n")


def prepare(options: BackendOptions) -> None:
    """Create or upgrade the store of a backend."""
    address = address_of(options)
    if address is None:
        from taskharbor.drivers.sqlite import schema

        with transaction.atomic(using=options.database):
            schema.prepare(raw_connection(connections[options.database]), "the database in memory", "auto")
        return
    asyncio.run(_open_and_close(open_driver(f"{address}&migrate=auto")))  # of two options the last one counts


async def _open_and_close(driver: Driver) -> None:
    try:
        await driver.open()
    finally:
        await driver.close()
