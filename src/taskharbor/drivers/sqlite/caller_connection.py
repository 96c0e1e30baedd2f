"""From a caller's session or connection to the SQLite connection inside it, over the libraries' public ways only.

The transaction stays the library's: one that its wrapper does not know of would not be committed by it, so the wrapper
is made to begin before the connection is taken out. aiosqlite keeps its connection on a thread of its own; there each
statement is sent through SQLAlchemy's face of it, which waits without holding up the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.connections import Kind, expect, kind_of
from taskharbor.drivers.sqlite.enqueue_within import enqueue_within
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued


def enqueue_on_sync(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs in the transaction of a synchronous connection."""
    kind = expect(connection, "sqlite", asynchronous=False)
    if kind is Kind.DJANGO:
        return enqueue_within(_of_django(connection), jobs, now, options)
    if kind is Kind.SQLITE:
        return enqueue_within(connection, jobs, now, options)
    return enqueue_within(_of_sqlalchemy(connection).driver_connection, jobs, now, options)


async def enqueue_on(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """The same for a coroutine, which may also hold an `sqlite3.Connection`: `ctx.transaction()` gives it one."""
    if kind_of(connection) is Kind.SQLITE:
        return enqueue_within(connection, jobs, now, options)
    kind = expect(connection, "sqlite", asynchronous=True)
    if kind is Kind.ASYNC_SESSION:
        connection = await connection.connection()
    answers: list[Enqueued] = await connection.run_sync(
        lambda wrapped: enqueue_within(_OnItsThread(_of_sqlalchemy(wrapped)), jobs, now, options)
    )
    return answers


def _of_django(connection: Any) -> sqlite3.Connection:
    connection.validate_thread_sharing()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    found: sqlite3.Connection = connection.connection
    return found


def _of_sqlalchemy(connection: Any) -> Any:
    """The pool's proxy, which has the library's connection in it."""
    if kind_of(connection) is Kind.SESSION:
        connection = connection.connection()
    if not connection.in_transaction():
        connection.begin()  # as its first statement would
    return connection.connection


class _OnItsThread:
    """aiosqlite's connection as `enqueue_within` wants it: its settings, and SQLAlchemy's cursors on it."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self._inner = proxy.driver_connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._inner.in_transaction)

    @property
    def isolation_level(self) -> str | None:
        level: str | None = self._inner.isolation_level
        return level

    @property
    def row_factory(self) -> Any:
        return self._inner.row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        self._inner.row_factory = factory

    @property
    def text_factory(self) -> Any:
        return self._inner.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self._inner.text_factory = factory

    def cursor(self) -> Any:
        return self._proxy.cursor()

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        cursor = self.cursor()
        cursor.execute(sql, parameters)
        return cursor
