"""The tables of TaskHarbor in an application's own database: `harbor.outbox`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.within import within, within_sync
from taskharbor.outbox import tables
from taskharbor.store.access import refuse_on_loop

if TYPE_CHECKING:
    from taskharbor.model.job import JobRecord
    from taskharbor.store.session import Store


class TransactionalOutbox:
    """What `harbor.outbox` offers: the tables in your own database that `harbor.once` and `connection=` need, and the
    relay that carries jobs from there to the store.

    >>> import sqlite3
    >>> from taskharbor import Harbor
    >>> def connect() -> sqlite3.Connection:                       # your own database
    ...     return sqlite3.connect("file:shop?mode=memory&cache=shared", uri=True)
    >>> harbor, database = Harbor("memory://"), connect()
    >>> harbor.outbox.create(database)
    >>> @harbor.task(name="send")
    ... def send(to: str) -> None: ...
    >>> job = send.options(connection=database).enqueue("ada")     # a row in that database, in this transaction
    >>> database.commit()
    >>> harbor.outbox.relay(connect, until_empty=True)
    1
    >>> print(job.status())
    ready
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, connection: Any) -> None:
        """Make the tables in your own database where they do not exist yet, in the transaction of `connection`.

        It is a synchronous connection of any kind that `connection=` takes. For a migration of your own,
        `taskharbor outbox sql` prints the same SQL.
        """
        within_sync(connection, tables.create)

    async def acreate(self, connection: Any) -> None:
        """The same on an asynchronous connection."""
        await within(connection, tables.create)

    def relay(self, dsn_or_connection_factory: str | Callable[[], Any], *, until_empty: bool = False) -> int:
        """Carry jobs from the outbox of a database to the store; blocks, for ever or `until_empty`. Returns how many.

        Give the address of the database (`postgresql://…`, `sqlite:///…`), or a function that returns a new connection
        of any kind that `connection=` takes, such as `engine.connect`. `taskharbor worker run --outbox` does the same
        beside its jobs.
        """
        refuse_on_loop("harbor.outbox.relay")
        return asyncio.run(self._relayed(dsn_or_connection_factory, until_empty))

    async def arelay(self, dsn_or_connection_factory: str | Callable[[], Any], *, until_empty: bool = False) -> int:
        """The same, awaited: until it is cancelled, or `until_empty`."""
        from taskharbor.outbox.relay import Relay
        from taskharbor.outbox.source import RowSource

        store = self._store

        async def send(records: list[JobRecord]) -> None:
            await store.call("outbox").ask(lambda driver: driver.enqueue(records, store.clock.now()))

        relay = Relay(
            RowSource(dsn_or_connection_factory),
            send,
            clock=store.clock,
            observers=store.observers,
            retention=store.driver.retention,
            raises=True,
        )
        return await relay.run(asyncio.sleep, lambda: False, until_empty=until_empty)

    async def _relayed(self, source: str | Callable[[], Any], until_empty: bool) -> int:
        try:
            return await self.arelay(source, until_empty=until_empty)
        finally:
            await self._store.drivers.close()  # that of this loop, which ends
