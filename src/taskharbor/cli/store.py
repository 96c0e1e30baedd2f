"""How a command calls the store: open it, read its clock, call, close it. One event loop, no thread.

Commands that only read open an existing store and create nothing: a mistyped address must not become an empty store
that reports "no jobs", nor tables in another program's database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from taskharbor.cli.errors import EXIT_STORE, CommandError
from taskharbor.cli.target import Target, file_of

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver

T = TypeVar("T")


def call_store(target: Target, call: Callable[[Driver, datetime], Awaitable[T]], *, creates: bool = False) -> T:
    """Run `call` with the opened driver and the store's time. `creates`: create the store if it does not exist."""
    target.refuse_memory(click.get_current_context().command_path)

    async def run() -> T:
        driver = target.driver()
        try:
            await (open_or_create(driver, target) if creates else open_existing_store(driver, target))
            return await call(driver, await driver.server_time())
        finally:
            await driver.close()

    return asyncio.run(run())


async def open_existing_store(driver: Driver, target: Target) -> None:
    """Open an existing store; CommandError if it does not exist."""
    from taskharbor.model.errors import StoreMissing

    try:
        await driver.open_existing()
    except StoreMissing as error:
        raise CommandError(missing(driver, target, str(error)), EXIT_STORE) from error


async def open_or_create(driver: Driver, target: Target) -> None:
    """Open a store, and say so if it had to be created: no worker runs the jobs of a store created by a typo."""
    from taskharbor.model.errors import BackendUnavailable, DriverError, StoreMissing

    created = False
    try:
        await driver.open_existing()
    except StoreMissing:
        created = True
    except BackendUnavailable:
        raise
    except DriverError:  # of another version: the DSN decides whether open() upgrades it
        pass
    await driver.open()
    if created:
        click.echo(f"created a new store: {target.place}", err=True)


def is_absent(driver: Driver) -> bool:
    """Whether the driver keeps its jobs in a file that does not exist."""
    path = file_of(driver)
    return path is not None and not os.path.exists(path)


def missing(driver: Driver, target: Target, error: str) -> str:
    """A message for a store that does not exist, with what to do about it."""
    path = file_of(driver)
    if path is None or not is_absent(driver):
        return f"{target.place}: {error}"
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"there is no store at {path}; its folder does not exist either: create it, or correct the path"
    hint = "`taskharbor enqueue` or `taskharbor worker run` creates one"
    if target.given is None and target.app is None:  # the default path
        hint = "name yours with --dsn, $TASKHARBOR_DSN or --app; `taskharbor enqueue` or `worker run` creates one"
    return f"there is no store at {path}; {hint}"
