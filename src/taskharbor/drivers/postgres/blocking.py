"""Blocking calls: the programs of the driver on synchronous connections, on the calling thread.

Any number of threads may call; at most `pool_size` connections are open, and a call waits for a free one until its
deadline. A call waits for the server with poll(), so that its deadline and Ctrl-C end it: the connection is then in the
middle of an exchange, and is closed. The calls and their tries are those of the awaited driver (client_calls.py,
pool.py).
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Sequence
from typing import Any

from taskharbor.drivers.postgres.deadline import run_in_thread
from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner, SharedState, connect_arguments, set_up
from taskharbor.drivers.postgres.statement import at_once
from taskharbor.drivers.postgres.tries import unavailable
from taskharbor.drivers.signal_safe import ClosedFlag, Places
from taskharbor.model.errors import BackendUnavailable


class ThreadConnection:
    """One synchronous connection, used by one thread at a time."""

    def __init__(self, options: PostgresOptions, deadline: float) -> None:
        import psycopg

        from taskharbor.drivers.postgres.exchange import Exchange

        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time left to connect")
        given = connect_arguments(options)
        given["connect_timeout"] = max(2, min(given["connect_timeout"], round(left)))  # libpq: at least two seconds
        self._connection = psycopg.Connection.connect(**given)
        self._pgconn = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self.exchange = Exchange(self._connection)
        self.until = deadline
        self.late = False
        self.awaits_stop = False  # a call that ends early closes it
        try:
            at_once(set_up(self, options, self._connection.info.backend_pid))
        except BaseException:
            self.close()
            raise

    async def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows of one statement."""
        exchange = self.exchange.ask(sql, parameters)
        next(exchange)
        try:
            while True:
                exchange.send(self._received())
        except StopIteration as stop:
            result: list[Any] = stop.value
            return result

    def _received(self) -> Any:
        """Send what is left to send, and wait until the result is complete."""
        pgconn, result = self._pgconn, None
        while pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT)
            pgconn.consume_input()
        while True:
            if pgconn.is_busy():
                self._wait(select.POLLIN)
                pgconn.consume_input()
                continue
            following = pgconn.get_result()
            if following is None:
                break
            result = following
        if result is None:
            import psycopg

            raise psycopg.OperationalError("the connection is lost")
        return result

    def _wait(self, events: int) -> None:
        self._poll.modify(self._pgconn.socket, events)
        left = self.until - time.monotonic()
        if left <= 0 or not self._poll.poll(left * 1000 + 1):
            import psycopg

            self.late = True
            self.close()
            raise psycopg.OperationalError("the deadline has passed")

    def is_reusable(self) -> bool:
        """Whether the server is in no transaction, and owes no result."""
        from psycopg.pq import TransactionStatus

        return not self._connection.closed and self._pgconn.transaction_status == TransactionStatus.IDLE

    def close(self) -> None:
        self._connection.close()


class PostgresBlocking:
    """The blocking calls of one store in one process."""

    def __init__(self, dsn: str) -> None:
        self._driver = _BlockingDriver(dsn)
        self.shared = SharedState(self._driver.options)
        self.places = Places(self._driver.options.pool_size)
        self.shared.inside = self.places.inside
        self.idle: list[ThreadConnection] = []  # append and pop are atomic
        self.closed = ClosedFlag()

    def until(self, deadline: float) -> PostgresDriver:
        if self.closed.is_set():
            raise BackendUnavailable("the store's blocking calls were closed")
        return self._driver.with_runner(_DeadlineRunner(self, deadline))

    def close(self) -> None:
        self.closed.set()
        self.drop_idle()

    def drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self.idle.pop().close()


class _DeadlineRunner(Runner):
    """Runs programs until a deadline, without ever suspending, for one call of the client."""

    def __init__(self, calls: PostgresBlocking, deadline: float) -> None:
        super().__init__(calls.shared)
        self._calls = calls
        self._deadline = deadline

    def time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._calls.closed.wait(min(seconds, self.left))

    @property
    def left(self) -> float:
        return max(self._deadline - time.monotonic(), 0)

    def limit(self, within: float | None) -> float:
        return min(super().limit(within), self.left)

    async def take(self, sql: str, limit: float) -> ThreadConnection:
        deadline = min(self._deadline, time.monotonic() + limit)
        if not self._calls.places.enter(deadline - time.monotonic()):
            raise TimeoutError("no connection was free in time")
        connection = self._idle_one(sql) or ThreadConnection(self.shared.options, deadline)
        connection.until = deadline
        return connection

    def _idle_one(self, sql: str) -> ThreadConnection | None:
        idle = self._calls.idle
        for connection in reversed(idle):
            if sql in connection.exchange.sent:
                with contextlib.suppress(ValueError):  # another thread has taken it
                    idle.remove(connection)
                    return connection
        with contextlib.suppress(IndexError):
            return idle.pop()
        return None

    async def give(self, connection: ThreadConnection | None, completed: bool) -> None:
        """The thread has left its place: keep the connection for the next call, if that can use it."""
        calls = self._calls
        if connection is not None:
            if calls.closed.is_set() or not connection.is_reusable():
                connection.close()
            else:
                calls.idle.append(connection)
                if calls.closed.is_set():  # closed in between
                    calls.drop_idle()
        calls.places.wake()

    async def drop_idle(self) -> None:
        self._calls.drop_idle()


class _BlockingDriver(PostgresDriver):
    """The driver over a runner that never suspends."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._current_runner: _DeadlineRunner | None = None

    @property
    def options(self) -> PostgresOptions:
        return self._options

    def with_runner(self, runner: _DeadlineRunner) -> _BlockingDriver:
        """This driver, for one call of the client."""
        made = object.__new__(_BlockingDriver)
        made.__dict__.update(self.__dict__)
        made._current_runner = runner
        return made

    def _runner(self) -> Any:
        return self._current_runner

    async def open(self) -> None:
        """Check the server and the schema, once in a process, on an awaited connection of its own.

        It runs in a thread: this one may be an event loop's, and creating a schema is written for a loop.
        """
        assert self._current_runner is not None

        async def opened() -> None:
            driver = PostgresDriver(self._dsn)
            await driver.open()
            await driver.close()

        try:
            run_in_thread(opened(), self._current_runner.left)
        except TimeoutError as error:
            raise unavailable(self._options, error) from error
