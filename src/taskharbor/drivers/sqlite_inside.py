"""The `sqlite3.Connection` inside a caller's connection to SQLite, and the transaction that is open there.

A caller may pass an `sqlite3.Connection`, SQLAlchemy's session or connection, or Django's connection. The connection
inside is reached by the libraries' public API only. Their wrapper must begin the transaction: it would not commit one
that it does not know of. aiosqlite keeps its connection on a thread of its own; there each statement goes through
SQLAlchemy's cursor, which waits without blocking the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from taskharbor.drivers.connections import Kind, kind_of
from taskharbor.model.errors import WrongConnection

T = TypeVar("T")


class CallerConnection(Protocol):
    """What we use of a caller's connection: an `sqlite3.Connection`, or an object that behaves as one."""

    row_factory: Any
    text_factory: Any

    @property
    def in_transaction(self) -> bool: ...
    @property
    def isolation_level(self) -> str | None: ...
    def cursor(self) -> Any: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...


def inside(connection: Any) -> CallerConnection:
    """The one inside a synchronous connection."""
    kind = kind_of(connection)
    if kind is Kind.DJANGO:
        return _of_django(connection)
    found: CallerConnection = connection if kind is Kind.SQLITE else _of_sqlalchemy(connection).driver_connection
    return found


async def with_inside(connection: Any, work: Callable[[CallerConnection], T]) -> T:
    """What a function returns for the one inside an asynchronous connection, or for an `sqlite3.Connection` that a
    coroutine holds: `ctx.transaction()` gives it one."""
    kind = kind_of(connection)
    if kind is Kind.SQLITE:
        return work(connection)
    if kind is Kind.ASYNC_SESSION:
        connection = await connection.connection()
    result: T = await connection.run_sync(lambda wrapped: work(_AioSqliteConnection(_of_sqlalchemy(wrapped))))
    return result


def _of_django(connection: Any) -> CallerConnection:
    connection.validate_thread_sharing()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    found: CallerConnection = connection.connection
    return found


def _of_sqlalchemy(connection: Any) -> Any:
    """The pool's proxy, which has the library's connection in it."""
    if kind_of(connection) is Kind.SESSION:
        connection = connection.connection()
    if not connection.in_transaction():
        connection.begin()  # as its first statement would
    return connection.connection


def _setting(name: str) -> Any:
    """An attribute that is aiosqlite's own."""
    return property(lambda self: getattr(self._inner, name), lambda self, value: setattr(self._inner, name, value))


class _AioSqliteConnection:
    """aiosqlite's connection as a CallerConnection: its own settings, and SQLAlchemy's cursors."""

    in_transaction = _setting("in_transaction")
    isolation_level = _setting("isolation_level")
    row_factory = _setting("row_factory")
    text_factory = _setting("text_factory")

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self._inner = proxy.driver_connection

    def cursor(self) -> Any:
        return self._proxy.cursor()

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        cursor = self.cursor()
        cursor.execute(sql, parameters)
        return cursor


@contextmanager
def plain_rows(connection: CallerConnection) -> Iterator[None]:
    """A block in which rows are tuples and text is str, whatever the caller has set."""
    text_factory, connection.text_factory = connection.text_factory, str
    row_factory, connection.row_factory = connection.row_factory, None
    try:
        yield
    finally:
        connection.text_factory, connection.row_factory = text_factory, row_factory


def begin(connection: CallerConnection) -> None:
    """Begin a transaction, unless one is open; WrongConnection if its library would not commit it."""
    if connection.in_transaction:
        return
    # `autocommit` came with Python 3.12; set to True it makes commit() and rollback() do nothing.
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise WrongConnection(
            "connection: expected one inside a transaction, got one in autocommit mode, where the job would be stored "
            "whatever becomes of your own writes; begin a transaction first (BEGIN IMMEDIATE; transaction.atomic() in "
            "Django), or leave connection= out"
        )
    # As Python's own sqlite3 does before the first write; we read first.
    connection.execute("BEGIN IMMEDIATE")
