"""The tables of TaskHarbor in an application's own database: `harbor.outbox`."""

from __future__ import annotations

from typing import Any

from taskharbor.drivers.within import within, within_sync
from taskharbor.outbox import tables


class TransactionalOutbox:
    """What `harbor.outbox` offers: the tables in your own database that `harbor.once` needs.

    >>> import sqlite3
    >>> from taskharbor import Harbor
    >>> harbor, database = Harbor("memory://"), sqlite3.connect(":memory:")
    >>> harbor.outbox.create(database)
    >>> database.commit()
    """

    def create(self, connection: Any) -> None:
        """Make the tables in your own database where they do not exist yet, in the transaction of `connection`.

        It is a synchronous connection of any kind that `connection=` takes. For a migration of your own,
        `taskharbor outbox sql` prints the same SQL.
        """
        within_sync(connection, tables.create)

    async def acreate(self, connection: Any) -> None:
        """The same on an asynchronous connection."""
        await within(connection, tables.create)
