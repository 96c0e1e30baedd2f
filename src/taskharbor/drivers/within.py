"""Statements in the transaction that is open on a caller's connection, of any library, to PostgreSQL or SQLite.

Nothing here commits or rolls back. On SQLite a transaction is begun where the library would begin one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from taskharbor.drivers.connections import (
    Ask,
    Kind,
    Rows,
    asking,
    at_once,
    coloured,
    database_of,
    in_transaction,
    in_transaction_async,
    kind_of,
    run,
)
from taskharbor.drivers.sqlite_inside import CallerConnection, begin, inside, plain_rows, with_inside
from taskharbor.model.errors import WrongConnection

T = TypeVar("T")
POSTGRES, SQLITE = "postgresql", "sqlite"

_seen: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # tables, by the library's connection


class Caller(NamedTuple):
    """A caller's connection, inside a transaction."""

    ask: Ask
    database: str
    inner: Any  # the library's own connection

    def __repr__(self) -> str:
        return f"Caller(database={self.database!r})"  # a connection may show its password

    async def expect(self, table: str, advice: str) -> None:
        """WrongConnection if there is no such table, before a statement fails and spoils the transaction."""
        try:
            seen = _seen.setdefault(self.inner, set())
        except TypeError:  # it cannot be weakly referenced: asked each time
            seen = set()
        if table in seen:
            return
        sql = "select to_regclass(?) is not null" if self.database == POSTGRES else _EXISTS
        if not (await self.ask(sql, (table,)))[0][0]:
            raise WrongConnection(f"connection: its database has no table {table}; {advice}")
        seen.add(table)


Work: TypeAlias = Callable[[Caller], Coroutine[Any, Any, T]]

_EXISTS = "select count(*) from sqlite_master where type = 'table' and name = ?"


def within_sync(connection: Any, work: Work[T]) -> T:
    """What a coroutine function returns, whose statements run in the transaction of a synchronous connection."""
    coloured(connection, asynchronous=False)
    if _database(connection) == SQLITE:
        return _on_sqlite(work, inside(connection))
    return at_once(work(Caller(asking(connection), POSTGRES, in_transaction(connection))))


async def within(connection: Any, work: Work[T]) -> T:
    """The same for an asynchronous one, or for an `sqlite3.Connection` that a coroutine holds."""
    if kind_of(connection) is not Kind.SQLITE:
        coloured(connection, asynchronous=True)
    if _database(connection) == SQLITE:
        return await with_inside(connection, partial(_on_sqlite, work))
    return await work(Caller(partial(run, connection), POSTGRES, await in_transaction_async(connection)))


def _database(connection: Any) -> str:
    found = database_of(connection)
    if found not in (POSTGRES, SQLITE):
        raise TypeError(f"connection: expected one to PostgreSQL or SQLite, got one to {found}")
    return found


def _on_sqlite(work: Work[T], connection: CallerConnection) -> T:
    async def ask(sql: str, parameters: Any) -> Rows:
        rows: Rows = connection.execute(sql, parameters).fetchall()
        return rows

    with plain_rows(connection):
        begin(connection)
        return at_once(work(Caller(ask, SQLITE, connection)))
