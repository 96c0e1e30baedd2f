"""The kinds of connections that an application may have to its own database, PostgreSQL or SQLite."""

import contextlib
import functools
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskharbor.drivers.connections import Kind
from tests.drivers import postgres_ways
from tests.drivers.postgres_ways import Way, coloured
from tests.servers import postgres


@contextlib.asynccontextmanager
async def plain(path: str) -> AsyncIterator[Way]:
    with contextlib.closing(sqlite3.connect(path)) as made:
        yield Way(made, Kind.SQLITE, coloured(made.execute), coloured(made.commit), coloured(made.rollback))


@contextlib.asynccontextmanager
async def session(path: str) -> AsyncIterator[Way]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with Session(engine) as made:
        write = coloured(lambda sql: made.execute(sqlalchemy.text(sql)))
        yield Way(made, Kind.SESSION, write, coloured(made.commit), coloured(made.rollback))
    engine.dispose()


@contextlib.asynccontextmanager
async def connection(path: str) -> AsyncIterator[Way]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as made:
        write = coloured(lambda sql: made.execute(sqlalchemy.text(sql)))
        yield Way(made, Kind.CONNECTION, write, coloured(made.commit), coloured(made.rollback))
    engine.dispose()


@contextlib.asynccontextmanager
async def async_session(path: str) -> AsyncIterator[Way]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as made:
        yield Way(made, Kind.ASYNC_SESSION, lambda sql: made.execute(sqlalchemy.text(sql)), made.commit, made.rollback)
    await engine.dispose()


@contextlib.asynccontextmanager
async def async_connection(path: str) -> AsyncIterator[Way]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.connect() as made:
        yield Way(
            made, Kind.ASYNC_CONNECTION, lambda sql: made.execute(sqlalchemy.text(sql)), made.commit, made.rollback
        )
    await engine.dispose()


@contextlib.asynccontextmanager
async def django_by_hand(path: str) -> AsyncIterator[Way]:
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    given = {"default": {}, "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": path}}
    connections.databases["file"] = connections.configure_settings(given)["file"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        made = connections["file"]
        made.set_autocommit(False)
        write = coloured(lambda sql: made.cursor().execute(sql))
        yield Way(made, Kind.DJANGO, write, coloured(made.commit), coloured(made.rollback))
        made.close()
        del connections["file"]


SQLITE = {
    "sqlite3": plain,
    "SQLite Session": session,
    "SQLite Connection": connection,
    "SQLite AsyncSession": async_session,
    "SQLite AsyncConnection": async_connection,
    "SQLite Django": django_by_hand,
}
every_way = pytest.mark.parametrize("way", [*postgres_ways.WAYS, *SQLITE])


@contextlib.asynccontextmanager
async def opened(name: str, tmp_path: Any) -> AsyncIterator[Way]:
    """A connection of this kind to an empty database, inside a transaction."""
    if name in SQLITE:
        async with SQLITE[name](str(tmp_path / "app.db")) as way:
            yield way
    else:
        async with postgres_ways.WAYS[name](emptied(), False) as way:
            yield way


@functools.cache
def address() -> str:
    server = postgres.shared()
    return server.address(server.database())


def emptied() -> str:
    """The address of one database for all tests of a process, with nothing in it."""
    with psycopg.connect(address()) as admin:
        admin.execute("drop schema public cascade; create schema public")
    return address()
