"""The program `taskharbor`: what there is of it so far. Errors are one clear line and a non-zero exit."""

from __future__ import annotations

import sys

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="taskharbor", prog_name="taskharbor")
def main() -> None:
    """Background jobs and durable workflows."""


@main.command()
@click.option("--dsn", required=True, envvar="TASKHARBOR_DSN", help="The store, for example sqlite:///harbor.db.")
def migrate(dsn: str) -> None:
    """Create a store's schema, or bring it to this version.

    Safe to run twice, and while another process does the same. Exit 0: the schema is up to date; 2: it could not be
    brought there.

    Example: taskharbor migrate --dsn sqlite:///harbor.db
    """
    import asyncio

    from taskharbor.drivers import DriverError, open_driver

    async def run() -> None:
        driver = open_driver(f"{dsn}{'&' if '?' in dsn else '?'}migrate=auto")
        try:
            await driver.open()
        finally:
            await driver.close()

    try:
        asyncio.run(run())
    except (DriverError, ValueError, OSError, ModuleNotFoundError) as error:
        click.echo(f"taskharbor: {error}", err=True)
        sys.exit(2)
    click.echo("the schema is up to date")


@main.command()
@click.option("--dsn", required=True, envvar="TASKHARBOR_DSN", help="An EMPTY store, for example memory://.")
@click.option("--theme", "themes", multiple=True, help="Only this theme of cases (repeatable).")
@click.option("--namespace", help="For a store that is not empty: what the names of the cases begin with.")
def conformance(dsn: str, themes: tuple[str, ...], namespace: str | None) -> None:
    """Prove that a store keeps the driver contract.

    Runs the cases of taskharbor.conformance, one for each sentence of the contract. Never deletes what it did not
    create. Exit 0: every case passed; 1: one failed; 2: nothing could be run.

    Example: taskharbor conformance --dsn memory://
    """
    from taskharbor.conformance import StoreNotEmpty, run

    try:
        report = run(dsn, themes=list(themes) or None, namespace=namespace)
    except (StoreNotEmpty, ValueError, ModuleNotFoundError) as error:
        click.echo(f"taskharbor: {error}", err=True)
        sys.exit(2)
    click.echo(str(report))
    sys.exit(0 if report.ok else 1)
