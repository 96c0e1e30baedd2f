"""`taskharbor conformance`: the cases of taskharbor.conformance against a store."""

from __future__ import annotations

import sys

import click

from taskharbor.cli.fault import wrong
from taskharbor.cli.target import Target, shared


@click.command()
@click.option("--theme", "themes", multiple=True, help="Only this theme of cases (repeatable).")
@click.option("--namespace", help="For a store that is not empty: what the names of the cases begin with.")
@shared
def conformance(target: Target, themes: tuple[str, ...], namespace: str | None) -> None:
    """Prove that a store keeps the driver contract.

    Runs the cases of taskharbor.conformance, one for each sentence of the contract. Never deletes what it did not
    create. Exit 0: every case passed; 1: one failed; 2: nothing could be run.

    Example: taskharbor conformance --dsn memory://
    """
    from taskharbor.conformance import StoreNotEmpty, run

    dsn = target.dsn
    if dsn is None:
        raise wrong("the app was made with a driver of its own; give the store's address with --dsn")
    try:
        report = run(dsn, themes=list(themes) or None, namespace=namespace)
    except (StoreNotEmpty, ValueError, ModuleNotFoundError) as error:
        raise wrong(str(error)) from error
    click.echo(str(report))
    sys.exit(0 if report.ok else 1)
