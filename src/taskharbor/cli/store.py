"""How a command reads and changes the store: open it, read its clock, call, close it. One event loop, no thread.

Commands that only read open an existing store and create nothing: a mistyped address must not become an empty store
that reports "no jobs", nor tables in another program's database.

Commands change a store through `ops.actions`, as the administrator that the user of the shell is. So every change is in
the audit, under $TASKHARBOR_BY or user@host, and nothing is decided in a command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from taskharbor.cli.errors import EXIT_STORE, CommandError, as_usage_error
from taskharbor.cli.target import Target, file_of
from taskharbor.store.text import safe_text

if TYPE_CHECKING:
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.store_calls import StoreCalls
    from taskharbor.drivers.base import Driver
    from taskharbor.ops.actions import Actions
    from taskharbor.store.redaction import Redaction
    from taskharbor.store.session import Store

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


@dataclass(frozen=True)
class Operator:
    """The person at the shell, with the store that they work on."""

    store: Store
    actions: Actions
    driver: Driver
    now: datetime  # of the store

    @property
    def client(self) -> StoreCalls:
        """The store as a harbor shows it: for filters."""
        from taskharbor.client.store_calls import StoreCalls

        return StoreCalls._of(self.store)


def act(target: Target, call: Callable[[Operator], Awaitable[T]], *, creates: bool = False) -> T:
    """Run `call` with the opened store. `creates`: create the store if it does not exist."""
    return call_store(target, lambda driver, now: _with_operator(call, driver, now), creates=creates)


async def _with_operator(call: Callable[[Operator], Awaitable[T]], driver: Driver, now: datetime) -> T:
    operator = operator_on(driver, now)
    await operator.store.awaited.driver(0)  # so that its clock follows the store's
    return await call(operator)


def operator_on(driver: Driver, now: datetime) -> Operator:
    """The user of the shell as the administrator of an opened store."""
    from taskharbor.store.session import Store

    store = Store(driver)
    return Operator(store, actions_of(store), driver, now)


def actions_of(store: Store) -> Actions:
    """What the user of the shell may do with a store: everything."""
    from taskharbor.ops.access import Access
    from taskharbor.ops.actions import Actions
    from taskharbor.store.audit import ACTOR_VARIABLE, actor

    with as_usage_error(f"${ACTOR_VARIABLE}, the name for the audit: "):
        access = Access.admin(actor(None))
    return Actions(store, access)


async def reveal(
    driver: Driver, now: datetime, redaction: Redaction, ids: Sequence[str] = (), jobs: Jobs | None = None
) -> None:
    """Write into the audit that payloads are shown, if they are.

    A person who may only read a store can read its payloads anyway. So an audit that cannot be written is reported, and
    does not keep the command from showing what was asked for.
    """
    if not redaction.show:
        return
    from taskharbor.model.errors import DriverError

    operator = operator_on(driver, now)
    try:
        await operator.actions.reveal(ids, jobs=jobs)
    except DriverError as error:
        click.echo(
            f"note: the audit cannot be written, so it does not show this access: {safe_text(str(error))}", err=True
        )
