"""The driver on one connection of the caller's: every call is a part of the transaction that is open there.

For reading what a transaction has written before it commits, and for tests whose transaction is never committed. It
opens nothing, commits nothing that was begun before, and listens to no hints. A call whose connection is lost is not
repeated: the connection is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from taskharbor.drivers.connections import OnCallersConnection
from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner, SharedState
from taskharbor.drivers.postgres.statement import Program, drive_sync
from taskharbor.drivers.postgres.tries import WRONG_ISOLATION, unavailable, unusable
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.errors import DriverError

T = TypeVar("T")


class _Undone(Exception):
    """Carries the result of a program out of its transaction, which is rolled back."""

    def __init__(self, result: Any) -> None:
        self.result = result


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """A savepoint in the open transaction, or else a transaction in read committed: see refuse_isolation.sql."""
    import psycopg

    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        with connection.transaction():
            yield
        return
    usual = connection.isolation_level
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # for `begin`; asks the server nothing
    try:
        with connection.transaction():
            yield
    finally:
        if not connection.closed:
            connection.isolation_level = usual


class ConnectionRunner(Runner):
    """Runs programs on psycopg's connection inside the one that was given. They never suspend."""

    def __init__(
        self, options: PostgresOptions, connection: Callable[[], Any], lock: AbstractContextManager[Any]
    ) -> None:
        super().__init__(SharedState(options))
        self._connection = connection
        self._lock = lock

    def time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - its coroutines never suspend: they block, for some milliseconds

    async def run(
        self,
        make: Callable[[], Program[T]],
        *,
        transaction: bool = False,
        repeat: bool = True,
        within: float | None = None,
    ) -> T:
        """Run a program once, within a savepoint if a transaction is open: an error leaves that usable."""
        import psycopg

        try:
            with self._lock, _transaction(connection := self._connection()):
                result = drive_sync(connection, make())
                if transaction and isinstance(result, BaseException):
                    raise _Undone(result)
                return result
        except _Undone as undone:
            refused: T = undone.result
            return refused
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise unavailable(self.shared.options, error) from error
        except psycopg.Error as error:
            if error.sqlstate == WRONG_ISOLATION:
                raise DriverError(
                    f"{error.diag.message_primary}: in any other it would not see what others commit meanwhile; make "
                    "this call outside of the transaction (of atomic(), with Django), or begin that as read committed"
                ) from error
            raise unusable(self.shared.options, error) from error


@accepts_any_name
class PostgresOnConnection(OnCallersConnection, PostgresDriver):
    """A driver on one connection. Made by `PostgresDriver.on_connection`.

    `lock`: held during each call, if others use the connection.
    """

    def __init__(
        self, dsn: str, connection: Callable[[], Any], lock: AbstractContextManager[Any] | None = None
    ) -> None:
        super().__init__(dsn)
        self._own_runner = ConnectionRunner(self._options, connection, lock or nullcontext())

    def _runner(self) -> Any:
        return self._own_runner
