"""The kinds of connections that an application may have, each inside a transaction, or committing by itself."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskharbor.drivers import Enqueued, JobRecord
from taskharbor.drivers.connections import ASYNCHRONOUS, Kind
from taskharbor.drivers.postgres import PostgresDriver

NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


class Way(NamedTuple):
    """A connection with how its library writes, and ends a transaction; the next one is begun then."""

    connection: Any
    kind: Kind
    write: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]

    async def enqueue(self, driver: PostgresDriver, *jobs: JobRecord) -> list[Enqueued]:
        if self.kind in ASYNCHRONOUS:
            return await driver.enqueue_on(self.connection, jobs, NOW)
        return driver.enqueue_on_sync(self.connection, jobs, NOW)

    async def store(self, driver: PostgresDriver, id: str) -> None:
        await self.enqueue(driver, JobRecord(id=id, type="work"))


def coloured(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any) -> Any:
        return function(*args)

    return call


@contextlib.asynccontextmanager
async def psycopg_sync(address: str, autocommit: bool) -> AsyncIterator[Way]:
    with contextlib.closing(psycopg.connect(address, autocommit=autocommit)) as made:
        yield Way(made, Kind.PSYCOPG, coloured(made.execute), coloured(made.commit), coloured(made.rollback))


@contextlib.asynccontextmanager
async def psycopg_async(address: str, autocommit: bool) -> AsyncIterator[Way]:
    async with await psycopg.AsyncConnection.connect(address, autocommit=autocommit) as made:
        yield Way(made, Kind.PSYCOPG_ASYNC, made.execute, made.commit, made.rollback)
        await made.rollback()


@contextlib.asynccontextmanager
async def asyncpg_alone(address: str, autocommit: bool) -> AsyncIterator[Way]:
    made = await asyncpg.connect(address)
    try:
        async with in_asyncpg(made, autocommit) as way:
            yield way
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def asyncpg_pool(address: str, autocommit: bool) -> AsyncIterator[Way]:
    async with (
        asyncpg.create_pool(address, min_size=1, max_size=1) as pool,
        pool.acquire() as made,
        in_asyncpg(made, autocommit) as way,
    ):
        yield way


@contextlib.asynccontextmanager
async def in_asyncpg(connection: Any, autocommit: bool) -> AsyncIterator[Way]:
    blocks: list[Any] = []

    async def begin() -> None:
        blocks.append(connection.transaction())
        await blocks[-1].start()

    async def commit() -> None:
        await blocks[-1].commit()
        await begin()

    async def rollback() -> None:
        await blocks[-1].rollback()
        await begin()

    if not autocommit:
        await begin()
    yield Way(connection, Kind.ASYNCPG, connection.execute, commit, rollback)
    if not autocommit:
        await blocks[-1].rollback()


def sqlalchemy_sync(kind: Kind) -> Any:
    @contextlib.asynccontextmanager
    async def way(address: str, autocommit: bool) -> AsyncIterator[Way]:
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = sqlalchemy.create_engine(address.replace("postgresql", "postgresql+psycopg"), **options)
        with Session(engine) if kind is Kind.SESSION else engine.connect() as made:
            write = coloured(lambda sql: made.execute(sqlalchemy.text(sql)))
            yield Way(made, kind, write, coloured(made.commit), coloured(made.rollback))
        engine.dispose()

    return way


def sqlalchemy_async(kind: Kind, library: str) -> Any:
    @contextlib.asynccontextmanager
    async def way(address: str, autocommit: bool) -> AsyncIterator[Way]:
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = create_async_engine(address.replace("postgresql", f"postgresql+{library}"), **options)
        async with AsyncSession(engine) if kind is Kind.ASYNC_SESSION else engine.connect() as made:
            yield Way(made, kind, lambda sql: made.execute(sqlalchemy.text(sql)), made.commit, made.rollback)
        await engine.dispose()

    return way


@contextlib.asynccontextmanager
async def django_atomic(address: str, autocommit: bool) -> AsyncIterator[Way]:
    """On a thread of its own: Django refuses a loop's."""
    from django.conf import settings
    from django.db import connections, transaction

    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    server, _, name = address.rpartition("/")
    given = {"NAME": name, "USER": "harbor", "HOST": "127.0.0.1", "PORT": server.rpartition(":")[2]}
    given["ENGINE"] = "django.db.backends.postgresql"
    connections.databases["borrowed"] = connections.configure_settings({"default": {}, "borrowed": given})["borrowed"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        made = connections["borrowed"]
        block = contextlib.ExitStack()

        def begin() -> None:
            if not autocommit:
                block.enter_context(transaction.atomic("borrowed"))

        def commit() -> None:
            block.close()
            begin()

        def rollback() -> None:
            transaction.set_rollback(True, "borrowed")
            commit()

        begin()
        write = coloured(lambda sql: made.cursor().execute(sql))
        yield Way(made, Kind.DJANGO, write, coloured(commit), coloured(rollback))
        block.close()
        made.close()
        del connections["borrowed"]


WAYS = {
    "psycopg": psycopg_sync,
    "psycopg async": psycopg_async,
    "asyncpg": asyncpg_alone,
    "asyncpg pool": asyncpg_pool,
    "Session": sqlalchemy_sync(Kind.SESSION),
    "Connection": sqlalchemy_sync(Kind.CONNECTION),
    "AsyncSession psycopg": sqlalchemy_async(Kind.ASYNC_SESSION, "psycopg"),
    "AsyncSession asyncpg": sqlalchemy_async(Kind.ASYNC_SESSION, "asyncpg"),
    "AsyncConnection psycopg": sqlalchemy_async(Kind.ASYNC_CONNECTION, "psycopg"),
    "AsyncConnection asyncpg": sqlalchemy_async(Kind.ASYNC_CONNECTION, "asyncpg"),
    "Django": django_atomic,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
