"""Stores for tests of what the Postgres driver's calls do to each other."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres


def store() -> str:
    """The address of an empty database in which a deadlock is noticed at once."""
    server = postgres.shared()
    name = server.store()
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute(f"alter database {name} set deadlock_timeout = '20ms'".encode())
    return server.address(name)


def deadlocks(address: str) -> int:
    """How many deadlocks the server has counted in this database; connections report theirs when they end. The output
    of a test that fails shows who waited for whom."""
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    assert row is not None
    if row[0]:
        log = Path(postgres.shared().folder, "log").read_text(encoding="utf-8", errors="replace")
        print(*(part[:2000] for part in log.split("deadlock detected")[1:]), sep="\n")
    return int(row[0])


@functools.cache
def _shared() -> str:
    return store()


def emptied() -> str:
    """The address of one such database for all tests of a process, with nothing in it."""
    postgres.empty(_shared())
    return _shared()


@asynccontextmanager
async def opened(address, number=1):
    drivers = [PostgresDriver(address) for _ in range(number)]
    try:
        for driver in drivers:
            await driver.open()
        yield drivers
    finally:
        for driver in drivers:
            await driver.close()


def scene_test(scene: Callable[[], Any], own: int) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A test that is a coroutine: its first `own` parameters are what `scene`, an asynchronous context, yields."""

    def made(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            async def live() -> None:
                async with scene() as first:
                    await test(*first, **given)

            asyncio.run(live())

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        others = list(inspect.signature(test).parameters.values())[own:]
        run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]  # where pytest reads what it wants
        return run

    return made


def store_test(number: int = 1) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """A test on an empty store: its first parameters are the address and `number` open drivers."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[tuple[Any, ...]]:
        address = emptied()
        async with opened(address, number) as drivers:
            yield address, *drivers

    return scene_test(scene, 1 + number)


@asynccontextmanager
async def open_transaction(address, driver, *jobs):
    """A transaction of the application's that has stored jobs, and stays open for the time of the block."""
    connection = await psycopg.AsyncConnection.connect(address)
    try:
        await driver.enqueue_on(connection, jobs, await driver.server_time())
        yield connection
    finally:
        await connection.close()
