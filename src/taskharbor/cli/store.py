"""A command's way to the store: open it, learn its time, ask, close it. One event loop, no thread.

Commands that only look open what is there and change nothing: a mistyped address must not become an empty store that
answers "no jobs", nor tables in somebody's database.
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
    from taskharbor.drivers.contract import Driver

T = TypeVar("T")


def call_store(target: Target, call: Callable[[Driver, datetime], Awaitable[T]], *, creates: bool = False) -> T:
    """Run a call with the opened driver and the store's time. `creates`: a store that is not there yet is made."""
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
    """Open a store that is there; CommandError, in words, where there is none."""
    from taskharbor.drivers.contract import open_existing
    from taskharbor.model.errors import StoreMissing

    try:
        await open_existing(driver)
    except StoreMissing as error:
        raise CommandError(missing(driver, target, str(error)), EXIT_STORE) from error


async def open_or_create(driver: Driver, target: Target) -> None:
    """Open a store. One that had to be made is told: a job in a store that nobody meant is never run."""
    from taskharbor.drivers.contract import open_existing
    from taskharbor.model.errors import BackendUnavailable, DriverError, StoreMissing

    made = False
    try:
        await open_existing(driver)
    except StoreMissing:
        made = True
    except BackendUnavailable:
        raise
    except DriverError:  # of another version: whether it is brought to this one is the address' choice
        pass
    await driver.open()
    if made:
        click.echo(f"made a new store: {target.place}", err=True)


def is_absent(driver: Driver) -> bool:
    """Whether the driver keeps its jobs in a file, and that is not there."""
    path = file_of(driver)
    return path is not None and not os.path.exists(path)


def missing(driver: Driver, target: Target, said: str) -> str:
    """What to say where there is no store, and how one comes to be."""
    path = file_of(driver)
    if path is None or not is_absent(driver):
        return f"{target.place}: {said}"
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"there is no store at {path}; its folder is missing as well: make it, or correct the path"
    hint = "`taskharbor enqueue` or `taskharbor worker run` makes one"
    if target.given is None and target.app is None:  # nobody named it: it is where we look by default
        hint = "name yours with --dsn, $TASKHARBOR_DSN or --app; `taskharbor enqueue` or `worker run` makes one"
    return f"there is no store at {path}; {hint}"
