"""Where a relay finds its rows: a connection of its own to the application's database, opened from an address or by a
function of the caller's.

A synchronous connection lives on one thread of its own, so that it holds up no event loop; an asynchronous one on the
loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from taskharbor.drivers.connections import ASYNCHRONOUS, Kind, awaited, kind_of
from taskharbor.drivers.dsn import redact, scheme_of
from taskharbor.drivers.within import POSTGRES, Work, database_within, within, within_sync

T = TypeVar("T")

CONNECT_S = 10
SILENCE_MS = 30_000  # after which a server that does not answer counts as gone
LOCK_S = 5.0  # SQLite: how long another writer is waited for


class RowSource:
    """One connection at a time, inside a transaction from the first statement to `commit` or `close`."""

    def __init__(self, dsn_or_factory: str | Callable[[], Any]) -> None:
        if isinstance(dsn_or_factory, str):
            self.place = redact(dsn_or_factory)
            self._connect = _opener(dsn_or_factory)
        elif callable(dsn_or_factory):
            self.place = "the outbox"
            self._connect = dsn_or_factory
        else:
            raise TypeError(
                "expected a DSN such as postgresql://…, or a function that returns a connection (engine.connect), "
                f"got {type(dsn_or_factory).__name__}"
            )
        self._thread: ThreadPoolExecutor | None = None
        self._connection: Any = None
        self._block: Any = None  # asyncpg's transaction, which has to be begun

    def __repr__(self) -> str:
        return f"RowSource({self.place!r})"

    async def ask(self, work: Work[T], *, begins: bool = True) -> T:
        """What a coroutine function returns, whose statements run in the transaction of the connection."""
        if self._connection is None:
            await self._open()
        connection, kind = self._connection, kind_of(self._connection)
        if kind not in ASYNCHRONOUS:
            return await self._in_thread(partial(within_sync, connection, work, begins=begins))
        if kind is Kind.ASYNCPG and self._block is None:
            self._block = connection.transaction()
            await self._block.start()
        return await within(connection, work, begins=begins)

    @property
    def is_held(self) -> bool:
        """Whether the rows that were taken stay locked until the transaction ends. On SQLite they do not: that lock
        would hold up the writers of the application while a batch is sent."""
        return database_within(self._connection) == POSTGRES

    async def commit(self) -> None:
        """End the transaction. What it changed stands."""
        await self._end("commit")

    async def rollback(self) -> None:
        """End the transaction. What it changed does not stand."""
        await self._end("rollback")

    async def close(self) -> None:
        """Close the connection, which undoes what was not committed. The next statement opens another one."""
        connection, self._connection, self._block = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it is broken, or its server is gone
                await self._call(kind_of(connection), connection.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _open(self) -> None:
        if inspect.iscoroutinefunction(self._connect):
            connection = await self._connect()
        else:  # in the thread, for it may block; an asynchronous library only returns there what is to be awaited
            connection = await self._in_thread(self._connect)
            if inspect.isawaitable(connection):
                connection = await connection
        if kind_of(connection) is Kind.DJANGO:
            await self._in_thread(partial(connection.set_autocommit, False))
        self._connection = connection

    async def _end(self, how: str) -> None:
        block, self._block = self._block, None
        if self._connection is not None:
            kind = kind_of(self._connection)
            await self._call(kind, getattr(block if kind is Kind.ASYNCPG else self._connection, how))

    async def _call(self, kind: Kind, method: Callable[[], Any]) -> None:
        if kind in ASYNCHRONOUS:
            await awaited(method())
        else:
            await self._in_thread(method)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "taskharbor-outbox")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _opener(dsn: str) -> Callable[[], Any]:
    """A function that connects to the database of an address; ValueError unless that is PostgreSQL or SQLite."""
    scheme = scheme_of(dsn)
    if scheme in ("postgresql", "postgres"):
        return partial(_postgres, dsn)
    path = unquote(urlsplit(dsn).path[1:])
    if scheme == "sqlite" and path:
        return partial(_sqlite, path)
    raise ValueError(f"outbox: expected postgresql://… or sqlite:///…, got {redact(dsn)}")


async def _postgres(dsn: str) -> Any:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    ours = {"connect_timeout": CONNECT_S, "tcp_user_timeout": SILENCE_MS, "application_name": "taskharbor outbox"}
    given: dict[str, Any] = {**ours, **conninfo_to_dict(dsn)}
    return await psycopg.AsyncConnection.connect(**given)


def _sqlite(path: str) -> Any:
    import sqlite3
    from pathlib import Path

    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_S)
