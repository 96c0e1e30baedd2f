"""`taskharbor migrate`: the store's schema."""

from __future__ import annotations

import asyncio

import click

from taskharbor.cli.fault import wrong
from taskharbor.cli.target import Target, shared


@click.command()
@shared
def migrate(target: Target) -> None:
    """Create a store's schema, or bring it to this version.

    Safe to run twice, and while another process does the same.

    Example: taskharbor migrate --dsn sqlite:///harbor.db
    """
    from taskharbor.drivers import open_driver

    dsn = target.dsn
    if dsn is None:
        raise wrong("the app was made with a driver of its own; give the store's address with --dsn")

    async def run() -> None:
        driver = open_driver(f"{dsn}{'&' if '?' in dsn else '?'}migrate=auto")
        try:
            await driver.open()
        finally:
            await driver.close()

    try:
        asyncio.run(run())
    except (ValueError, ModuleNotFoundError) as error:
        raise wrong(str(error)) from error
    click.echo("the schema is up to date")
