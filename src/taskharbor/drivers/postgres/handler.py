"""The connection that a handler gets from `ctx.transaction()`, which core may end at any moment.

A handler may be in the middle of a statement, in a thread that nobody can end, when its job times out. Then the server
is asked to stop that statement and the connection is cut, so that the server rolls back and lets its locks go. Whatever
the handler does on it, then and later, is a `psycopg.InterfaceError` that says why.
"""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from taskharbor.drivers.postgres.deadline import cut
from taskharbor.drivers.postgres.wire import GRACE, Wire


class HandlerConnection(psycopg.Connection[Any]):
    """For a plain function."""

    over = ""  # why the transaction was ended from outside
    store = ""  # the address of the store that it was made for

    def wait(self, *arguments: Any, **named: Any) -> Any:
        """Every statement comes through here."""
        if self.over:
            raise psycopg.InterfaceError(self.over)
        try:
            return super().wait(*arguments, **named)
        except psycopg.OperationalError as error:
            if self.over:
                raise psycopg.InterfaceError(self.over) from error
            raise

    def end(self, why: str) -> None:
        """Roll back now, from any thread, whatever runs; nothing is done through this connection any more."""
        self.over = why
        with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.cancel_safe(timeout=GRACE)
        with contextlib.suppress(psycopg.Error):  # closed meanwhile
            cut(self)


class HandlerWire(Wire):
    """For a coroutine."""

    over = ""
    store = ""

    async def wait(self, *arguments: Any, **named: Any) -> Any:
        if self.over:
            raise psycopg.InterfaceError(self.over)
        try:
            return await super().wait(*arguments, **named)
        except psycopg.OperationalError as error:
            if self.over:
                raise psycopg.InterfaceError(self.over) from error
            raise

    async def end(self, why: str) -> None:
        """The same as above."""
        self.over = why
        with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self.cancel_safe(timeout=GRACE)
        with contextlib.suppress(psycopg.Error):
            cut(self)
