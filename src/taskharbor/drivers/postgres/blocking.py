"""Blocking calls: the programs of the driver on synchronous connections, on the calling thread.

Any number of threads may call; at most `pool_size` connections are open, and a call waits for a free one until its
deadline. The calls and their tries are those of the awaited driver (driver.py, pool.py).
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from taskharbor.drivers.connections import at_once
from taskharbor.drivers.postgres.connection import LAST_S, LibpqConnection, can_cancel
from taskharbor.drivers.postgres.deadline import run_in_thread
from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.drivers.postgres.options import parse
from taskharbor.drivers.postgres.pool import Runner, SharedState, connect_arguments, set_up
from taskharbor.drivers.postgres.tries import unavailable
from taskharbor.drivers.signal_safe import ClosedFlag, DeferredSignals, ThreadLimit
from taskharbor.model.errors import BackendUnavailable


class ThreadConnection(LibpqConnection):
    """It waits with poll() on the calling thread, so that a deadline and Ctrl-C end the call. The connection is then in
    the middle of an exchange, and is closed. None of its coroutines ever suspends."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)

    async def _received(self) -> PGresult:
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
            raise psycopg.OperationalError("the connection is lost")
        return result

    def _wait(self, events: int) -> None:
        self._poll.modify(self._pgconn.socket, events)
        if not self.late:
            if self._is_ready_by(self.stop_at):
                return
            self.late = True
            self._stop()
        if not self._is_ready_by(self.until):
            self._connection.close()
            raise psycopg.OperationalError("the deadline has passed")

    def _is_ready_by(self, moment: float) -> bool:
        left = moment - time.monotonic()
        return left > 0 and bool(self._poll.poll(left * 1000 + 1))

    def _stop(self) -> None:
        """Ask the server to stop the call."""
        left = self.until - time.monotonic()
        if left > 0 and can_cancel():
            with contextlib.suppress(psycopg.Error, OSError):
                self._connection.cancel_safe(timeout=min(left, LAST_S))

    async def close(self) -> None:
        if not self.late and self._pgconn.transaction_status == TransactionStatus.ACTIVE:  # the call was interrupted
            self._stop()
        self._connection.close()


class PostgresBlocking:
    """The blocking calls of one store in one process."""

    def __init__(self, dsn: str) -> None:
        options = parse(dsn)
        self._driver = _BlockingDriver(dsn)
        self.shared = SharedState(options)
        self.places = ThreadLimit(options.pool_size)
        self.shared.inside = self.places.inside
        self.closed = ClosedFlag()

    def until(self, deadline: float) -> PostgresDriver:
        if self.closed.is_set():
            raise BackendUnavailable("the store's blocking calls were closed")
        return self._driver.with_runner(_DeadlineRunner(self, deadline))

    def close(self) -> None:
        self.closed.set()
        runner = _DeadlineRunner(self, 0)
        runner.stop()
        at_once(runner.drop_idle())


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

    def later(self, seconds: float, work: Callable[[], None]) -> threading.Timer | None:
        timer = threading.Timer(seconds, work)
        timer.name, timer.daemon = "taskharbor-postgres-idle", True
        try:
            with DeferredSignals():
                timer.start()
        except RuntimeError:  # the interpreter ends, or the system has no thread: the next call tries again
            return None
        return timer

    def discard(self, connection: ThreadConnection) -> None:
        at_once(connection.close())

    @property
    def left(self) -> float:
        return max(self._deadline - time.monotonic(), 0)

    def limit(self, within: float | None) -> float:
        return min(super().limit(within), self.left)

    async def take(self, sql: str, limit: float) -> ThreadConnection:
        deadline = min(self._deadline, time.monotonic() + limit)
        if not self._calls.places.enter(deadline - time.monotonic()):
            raise TimeoutError("no connection was free in time")
        connection: ThreadConnection = self.idle_one(sql) or await self._connect(deadline)
        connection.lend(deadline, deadline - time.monotonic())
        return connection

    async def _connect(self, deadline: float) -> ThreadConnection:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time left to connect")
        given = connect_arguments(self.shared.options)
        given["connect_timeout"] = max(2, min(given["connect_timeout"], round(left)))  # libpq: at least two seconds
        made = psycopg.Connection.connect(**given)
        connection = ThreadConnection(made)
        connection.lend(deadline, left)
        try:
            await set_up(connection, self.shared.options, made.info.backend_pid)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def give(self, connection: ThreadConnection | None) -> None:
        """The thread has left its place: keep the connection for the next call, if that can use it."""
        calls = self._calls
        if connection is not None:
            if calls.closed.is_set() or not connection.is_reusable:
                await connection.close()
            else:
                self.keep(connection)
                if calls.closed.is_set():  # closed in between
                    await self.drop_idle()
        calls.places.wake()


class _BlockingDriver(PostgresDriver):
    """The driver over a runner that never suspends."""

    _own_runner: _DeadlineRunner

    def with_runner(self, runner: _DeadlineRunner) -> _BlockingDriver:
        """This driver, for one call of the client."""
        made = object.__new__(_BlockingDriver)
        made.__dict__.update(self.__dict__)
        made._own_runner = runner
        return made

    def _runner(self) -> Any:
        return self._own_runner

    async def open(self) -> None:
        """Check the server and the schema, once in a process, on an awaited connection of its own.

        It runs in a thread: this one may be an event loop's, and creating a schema is written for a loop.
        """

        async def opened() -> None:
            driver = PostgresDriver(self._dsn)
            await driver.open()
            await driver.close()

        try:
            run_in_thread(opened(), self._own_runner.left)
        except TimeoutError as error:
            raise unavailable(self._options, error) from error
