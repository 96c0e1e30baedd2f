"""Statements in the transaction that is open on a caller's connection, of any library, to PostgreSQL or SQLite.

Nothing here commits or rolls back. On SQLite a transaction is begun where the library would begin one.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

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

    async def has(self, table: str) -> bool:
        """Whether there is such a table; asked once for each connection that has it."""
        try:
            seen = _seen.setdefault(self.inner, set())
        except TypeError:  # it cannot be weakly referenced: asked each time
            seen = set()
        if table not in seen:
            sql = "select to_regclass(?) is not null" if self.database == POSTGRES else _EXISTS
            if not (await self.ask(sql, (table,)))[0][0]:
                return False
            seen.add(table)
        return True

    async def expect(self, table: str, advice: str) -> None:
        """WrongConnection if there is no such table, before a statement fails and spoils the transaction."""
        if not await self.has(table):
            raise WrongConnection(f"connection: its database has no table {table}; {advice}")


Work: TypeAlias = Callable[[Caller], Coroutine[Any, Any, T]]

_EXISTS = "select count(*) from sqlite_master where type = 'table' and name = ?"


def within_sync(connection: Any, work: Work[T], *, begins: bool = True) -> T:
    """What a coroutine function returns, whose statements run in the transaction of a synchronous connection.

    `begins` False: on SQLite none is begun, for work that only reads.
    """
    coloured(connection, asynchronous=False)
    if database_within(connection) == SQLITE:
        return _on_sqlite(work, begins, inside(connection))
    return at_once(work(Caller(asking(connection), POSTGRES, in_transaction(connection))))


async def within(connection: Any, work: Work[T], *, begins: bool = True) -> T:
    """The same for an asynchronous one, or for an `sqlite3.Connection` that a coroutine holds."""
    if kind_of(connection) is not Kind.SQLITE:
        coloured(connection, asynchronous=True)
    if database_within(connection) == SQLITE:
        return await with_inside(connection, partial(_on_sqlite, work, begins))
    return await work(Caller(partial(run, connection), POSTGRES, await in_transaction_async(connection)))


class Within(Protocol):
    """`within`, or `within_now`: so that what both do is written once."""

    def __call__(self, connection: Any, work: Work[T], /, *, begins: bool = True) -> Awaitable[T]: ...


async def within_now(connection: Any, work: Work[T], *, begins: bool = True) -> T:
    """`within_sync` as a coroutine, which never suspends."""
    return within_sync(connection, work, begins=begins)


def database_within(connection: Any) -> str:
    """PostgreSQL or SQLite; TypeError for another one."""
    found = database_of(connection)
    if found not in (POSTGRES, SQLITE):
        raise TypeError(f"connection: expected one to PostgreSQL or SQLite, got one to {found}")
    return found


def _on_sqlite(work: Work[T], begins: bool, connection: CallerConnection) -> T:
    async def ask(sql: str, parameters: Any) -> Rows:
        rows: Rows = connection.execute(sql, parameters).fetchall()
        return rows

    with plain_rows(connection):
        if begins:
            begin(connection)
        return at_once(work(Caller(ask, SQLITE, connection)))
