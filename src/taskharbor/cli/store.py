"""A command's way to the store: open it, learn its time, ask, close it. One event loop, no thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from taskharbor.cli.fault import STORE, Refusal
from taskharbor.cli.target import Target

if TYPE_CHECKING:
    from taskharbor.drivers.contract import Driver

T = TypeVar("T")


def ask(target: Target, call: Callable[[Driver, datetime], Awaitable[T]], *, creates: bool = False) -> T:
    """Run a call with the opened driver and the store's time.

    `creates`: a store that is not there yet may be made. Commands that only look refuse it: a mistyped path must not
    become an empty store that answers "no jobs".
    """
    target.refuse_memory(click.get_current_context().command_path)

    async def run() -> T:
        driver = target.driver()
        if not creates:
            refuse_missing(driver, target)
        try:
            await driver.open()
            return await call(driver, await driver.server_time())
        finally:
            await driver.close()

    return asyncio.run(run())


def refuse_missing(driver: Driver, target: Target) -> None:
    """Refuse a file that does not exist."""
    path = getattr(getattr(driver, "address", None), "path", None)
    if isinstance(path, str) and not os.path.exists(path):
        hint = "`taskharbor enqueue` or `taskharbor worker run` makes one"
        if target.given is None and target.app is None:  # nobody named it: it is where we look by default
            hint = "name yours with --dsn, $TASKHARBOR_DSN or --app; `taskharbor enqueue` or `worker run` makes one"
        raise Refusal(f"there is no store at {path}; {hint}", STORE)
