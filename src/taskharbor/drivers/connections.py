"""The caller's own connections: recognised without importing their libraries, and one statement run on each.

A statement is SQL with a `?` for each parameter, and no other `?`. Each library writes parameters in its own way:

    psycopg, Django   %s        asyncpg   $1        SQLAlchemy   :p1        sqlite3   ?

Nothing here begins, commits or rolls back: the transaction is the caller's.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import StrEnum
from typing import Any, Self, TypeAlias, TypeVar

from taskharbor.model.errors import WrongConnection

Rows: TypeAlias = Sequence[Sequence[Any]]
Ask: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Rows]]  # the rows of a statement
T = TypeVar("T")


class Kind(StrEnum):
    """Which library a connection belongs to, and whether it is asynchronous."""

    PSYCOPG = "psycopg Connection"
    PSYCOPG_ASYNC = "psycopg AsyncConnection"
    ASYNCPG = "asyncpg Connection"
    SESSION = "SQLAlchemy Session"
    CONNECTION = "SQLAlchemy Connection"
    ASYNC_SESSION = "SQLAlchemy AsyncSession"
    ASYNC_CONNECTION = "SQLAlchemy AsyncConnection"
    DJANGO = "Django connection"
    SQLITE = "sqlite3 Connection"


ASYNCHRONOUS = frozenset({Kind.PSYCOPG_ASYNC, Kind.ASYNCPG, Kind.ASYNC_SESSION, Kind.ASYNC_CONNECTION})
SQLALCHEMY = frozenset({Kind.SESSION, Kind.CONNECTION, Kind.ASYNC_SESSION, Kind.ASYNC_CONNECTION})

# (the beginning of the module's name, the class) → the kind. Subclasses are found through their bases.
_KNOWN = (
    ("psycopg.", "AsyncConnection", Kind.PSYCOPG_ASYNC),
    ("psycopg.", "Connection", Kind.PSYCOPG),
    ("asyncpg.", "Connection", Kind.ASYNCPG),
    ("asyncpg.", "PoolConnectionProxy", Kind.ASYNCPG),
    ("sqlalchemy.", "AsyncSession", Kind.ASYNC_SESSION),
    ("sqlalchemy.", "async_scoped_session", Kind.ASYNC_SESSION),
    ("sqlalchemy.", "AsyncConnection", Kind.ASYNC_CONNECTION),
    ("sqlalchemy.", "Session", Kind.SESSION),
    ("sqlalchemy.", "scoped_session", Kind.SESSION),
    ("sqlalchemy.", "Connection", Kind.CONNECTION),
    ("django.", "BaseDatabaseWrapper", Kind.DJANGO),
    ("django.", "ConnectionProxy", Kind.DJANGO),
    ("sqlite3", "Connection", Kind.SQLITE),
)
_MARK = re.compile(r"\?")


def kind_of(connection: object) -> Kind:
    """The kind of a connection, or TypeError that names what can be given."""
    for base in type(connection).__mro__:
        for module, name, kind in _KNOWN:
            if base.__name__ == name and f"{base.__module__}.".startswith(module):
                return kind
    raise TypeError(
        f"connection: expected one of {', '.join(Kind)}, got {type(connection).__module__}."
        f"{type(connection).__qualname__}; give the connection itself, not a pool, engine or cursor"
    )


def database_of(connection: Any) -> str:
    """Which database is behind it: `postgresql`, `sqlite`, or another name its library has for it."""
    kind = kind_of(connection)
    if kind is Kind.SQLITE:
        return "sqlite"
    if kind is Kind.DJANGO:
        return str(connection.vendor)
    if kind in {Kind.SESSION, Kind.ASYNC_SESSION}:
        return str(connection.get_bind().dialect.name)
    if kind in SQLALCHEMY:
        return str(connection.dialect.name)
    return "postgresql"


def coloured(connection: Any, *, asynchronous: bool) -> Kind:
    """The kind; TypeError if it is asynchronous and should not be, or the reverse."""
    kind = kind_of(connection)
    if (kind in ASYNCHRONOUS) is not asynchronous:
        expected = "an asynchronous" if asynchronous else "a synchronous"
        raise TypeError(f"connection: expected {expected} one here, got a {kind}")
    return kind


def expect(connection: Any, database: str, *, asynchronous: bool) -> Kind:
    """The kind; TypeError if it is asynchronous and should not be, or the reverse, or leads to another database."""
    kind = coloured(connection, asynchronous=asynchronous)
    found = database_of(connection)
    if found != database:
        raise TypeError(f"connection: expected one to {database}, where the jobs are kept, got one to {found}")
    return kind


_BEGIN = {
    Kind.PSYCOPG: "open a block with connection.transaction(), or connect without autocommit=True",
    Kind.PSYCOPG_ASYNC: "open a block with connection.transaction(), or connect without autocommit=True",
    Kind.ASYNCPG: "open a block with connection.transaction()",
    Kind.DJANGO: "open a block with transaction.atomic()",
}


def in_transaction(connection: Any) -> Any:
    """The driver's own connection inside a synchronous one, which is the same object for as long as it is connected;
    or WrongConnection if each statement on it commits by itself. Asks the libraries, not the server."""
    kind = kind_of(connection)
    if kind is Kind.DJANGO:
        connection.ensure_connection()
        _refuse_alone(kind, connection.get_autocommit())
        return connection.connection
    if kind in SQLALCHEMY:
        proxy = (connection.connection() if kind is Kind.SESSION else connection).connection
        _refuse_alone(kind, bool(getattr(proxy.dbapi_connection, "autocommit", False)))
        return proxy.driver_connection
    _refuse_alone(kind, _is_idle(connection))
    return connection


async def in_transaction_async(connection: Any) -> Any:
    """The same for an asynchronous one."""
    kind = kind_of(connection)
    if kind is Kind.ASYNCPG:
        _refuse_alone(kind, not connection.is_in_transaction())
        return getattr(connection, "_con", None) or connection  # a pool lends a new wrapper each time
    if kind in SQLALCHEMY:
        own = await connection.connection() if kind is Kind.ASYNC_SESSION else connection
        proxy = await own.get_raw_connection()
        _refuse_alone(kind, bool(getattr(proxy.dbapi_connection, "autocommit", False)))
        return proxy.driver_connection
    _refuse_alone(kind, _is_idle(connection))
    return connection


def _is_idle(connection: Any) -> bool:
    """Whether psycopg's connection commits each statement, and no block with connection.transaction() is open."""
    return bool(connection.autocommit and connection.info.transaction_status == 0)


def _refuse_alone(kind: Kind, alone: bool) -> None:
    if alone:
        advice = _BEGIN.get(kind, "use an engine without isolation_level='AUTOCOMMIT'")
        raise WrongConnection(
            f"connection: expected one inside a transaction, got a {kind} in autocommit mode, where the job would be "
            f"stored whatever becomes of your own writes; {advice}, or leave connection= out"
        )


def rendered(kind: Kind, sql: str) -> str:
    """The statement as a library wants it written."""
    if kind is Kind.SQLITE:
        return sql
    if kind is Kind.ASYNCPG:
        numbers = iter(range(1, sql.count("?") + 1))
        return _MARK.sub(lambda _: f"${next(numbers)}", sql)
    if kind in SQLALCHEMY:
        numbers = iter(range(1, sql.count("?") + 1))
        return _MARK.sub(lambda _: f":p{next(numbers)}", sql.replace(":", "\\:"))
    return sql.replace("%", "%%").replace("?", "%s")


async def run(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    """Run one statement on an asynchronous connection; its rows."""
    kind = kind_of(connection)
    text = rendered(kind, sql)
    if kind is Kind.PSYCOPG_ASYNC:
        from psycopg import AsyncCursor  # the caller of this has it loaded
        from psycopg.rows import tuple_row

        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(text, parameters)
            try:
                return await cursor.fetchall()
            except connection.ProgrammingError as error:
                return _none_of_a(error)
    if kind is Kind.ASYNCPG:
        return [tuple(row) for row in await connection.fetch(text, *parameters)]
    if kind in SQLALCHEMY:
        result = await connection.execute(*_for_sqlalchemy(text, parameters))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []
    raise TypeError(f"connection: expected an asynchronous one here, got a {kind}")


def run_sync(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    """The same on a synchronous connection."""
    kind = kind_of(connection)
    text = rendered(kind, sql)
    if kind is Kind.PSYCOPG:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(text, parameters)
            try:
                return list(cursor.fetchall())
            except connection.ProgrammingError as error:
                return _none_of_a(error)
    if kind is Kind.DJANGO:
        with connection.cursor() as cursor:
            cursor.execute(text, list(parameters))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    if kind is Kind.SQLITE:
        cursor = connection.cursor()
        try:
            cursor.row_factory = None
            cursor.execute(text, tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()
    if kind in SQLALCHEMY and kind not in ASYNCHRONOUS:
        result = connection.execute(*_for_sqlalchemy(text, parameters))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []
    raise TypeError(f"connection: expected a synchronous one here, got a {kind}")


def asking(connection: Any) -> Ask:
    """Asks a synchronous connection of any library, and never suspends."""

    async def ask(sql: str, parameters: Sequence[Any]) -> Rows:
        return run_sync(connection, sql, parameters)

    return ask


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine has waited where no event loop runs")


async def awaited(result: Any) -> Any:
    """What a method returned; its result, if it is one that has to be awaited."""
    return await result if inspect.isawaitable(result) else result


def _for_sqlalchemy(text: str, parameters: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text as clause  # the caller has it loaded

    return clause(text), {f"p{number}": value for number, value in enumerate(parameters, 1)}


def _none_of_a(error: Any) -> Rows:
    """The rows of a statement that has none. In pipeline mode a cursor learns of it only when they are fetched."""
    if error.sqlstate is not None:
        raise error
    return []


_WAIT_S = 0.02  # nothing announces a job on a caller's connection


class OnCallersConnection:
    """What a driver on one connection of the caller's does not do. It goes before the driver among the bases."""

    async def open(self) -> None:
        """Nothing is opened: the connection is the caller's."""

    async def open_existing(self) -> None:
        """Nothing is opened: the connection is the caller's."""

    async def close(self) -> None:
        """Nothing is closed: the connection is the caller's."""

    def sibling(self) -> Self:
        return self

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        await asyncio.sleep(min(timeout, _WAIT_S))
        return False
