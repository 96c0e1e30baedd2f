"""`taskharbor migrate`: create or upgrade the schema of a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.options import flag, word
from taskharbor.cli.output import write, write_answer
from taskharbor.cli.target import Target, shared

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver


@click.command()
@flag("--sql", "Print the SQL instead of running it; does not connect to the store.")
@word(
    "--from", "N", "With --sql: the schema version that the store has now.", "found", type=click.IntRange(0), default=0
)
@shared
def migrate(target: Target, sql: bool, found: int) -> None:
    """Create or upgrade the schema of a store.

    Safe to run twice, and while another process does the same. --sql prints what would run on an empty store, or on
    one with the version that --from names.

    \b
    Examples:
      taskharbor migrate --dsn postgresql://localhost/app
      taskharbor migrate --dsn postgresql://localhost/app --sql | psql app

    JSON: {"schema"}: "up to date", or "none" if the store needs no schema.
    """
    target.refuse_memory("taskharbor migrate")
    driver = target.driver()
    write_sql = getattr(driver, "migration_sql", None)
    if sql:
        if write_sql is None:
            raise usage_error("migrate --sql: this store has no schema")
        write(write_sql(found).rstrip() or "-- nothing to do")
        return
    if write_sql is not None:
        asyncio.run(_open_and_close(_upgrading(target) or driver))
    if write_sql is None:
        write_answer(target, {"schema": "none"}, "this store needs no schema")
    else:
        write_answer(target, {"schema": "up to date"}, "the schema is up to date")


def _upgrading(target: Target) -> Driver | None:
    """A driver for the same address that upgrades the schema when it is opened."""
    from taskharbor.drivers import open_driver

    dsn = target.dsn
    return None if dsn is None else open_driver(f"{dsn}{'&' if '?' in dsn else '?'}migrate=auto")


async def _open_and_close(driver: Driver) -> None:
    try:
        await driver.open()
    finally:
        await driver.close()
