"""Blocking calls: the programs of the driver on synchronous connections, on the calling thread.

Any number of threads may call; at most `pool_size` connections are open, and a call waits for a free one until its
deadline. A call waits for the server with poll(), so that its deadline and Ctrl-C end it: the connection is then in the
middle of an exchange, and is closed. The calls and their retries are those of the awaited driver (client_calls.py,
tries.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import BEGIN, connect_arguments, limit_of, session_settings, warn_of_pooler
from taskharbor.drivers.postgres.statement import Program, Statement
from taskharbor.drivers.postgres.tries import Tries, unavailable
from taskharbor.drivers.signal_safe import ClosedFlag, DeferredSignals, Places
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")


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
        self.late = False
        if not options.pgbouncer:
            try:
                rows = self.ask(*session_settings(options, self._connection.info.backend_pid), deadline)
            except BaseException:
                self.close()
                raise
            self.exchange.prepares = bool(rows)
            if not rows:
                warn_of_pooler()

    def ask(self, sql: str, parameters: Sequence[Any], deadline: float) -> list[Any]:
        """The rows of one statement."""
        exchange = self.exchange.ask(sql, parameters)
        next(exchange)
        try:
            while True:
                exchange.send(self._received(deadline))
        except StopIteration as stop:
            result: list[Any] = stop.value
            return result

    def _received(self, deadline: float) -> Any:
        """Send what is left to send, and wait until the result is complete."""
        pgconn, result = self._pgconn, None
        while pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT, deadline)
            pgconn.consume_input()
        while True:
            if pgconn.is_busy():
                self._wait(select.POLLIN, deadline)
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

    def _wait(self, events: int, deadline: float) -> None:
        self._poll.modify(self._pgconn.socket, events)
        left = deadline - time.monotonic()
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
        self._options = self._driver.options
        self.places = Places(self._options.pool_size)
        self._idle: list[ThreadConnection] = []  # append and pop are atomic
        self._closed = ClosedFlag()
        self._newest_ms = 0
        self.limit = limit_of(self._options)
        self.sets_isolation = False

    def until(self, deadline: float) -> PostgresDriver:
        if self._closed.is_set():
            raise BackendUnavailable("the store's blocking calls were closed")
        return self._driver.with_runner(_DeadlineRunner(self, deadline))

    def close(self) -> None:
        self._closed.set()
        self.drop_idle()

    def newest_time(self, milliseconds: int) -> int:
        self._newest_ms = max(self._newest_ms, milliseconds)
        return self._newest_ms

    def sleep(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def take(self, sql: str, deadline: float) -> ThreadConnection:
        """A free connection; if possible one that has sent `sql` before: its server process has the plans.

        Whatever happens, the thread has to leave `places` afterwards.
        """
        if not self.places.enter(deadline - time.monotonic()):
            raise TimeoutError("no connection was free in time")
        return self._idle_one(sql) or ThreadConnection(self._options, deadline)

    def _idle_one(self, sql: str) -> ThreadConnection | None:
        for connection in reversed(self._idle):
            if sql in connection.exchange.sent:
                with contextlib.suppress(ValueError):  # another thread has taken it
                    self._idle.remove(connection)
                    return connection
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return None

    def give(self, connection: ThreadConnection) -> None:
        """Keep a connection for the next call, if that can use it."""
        if self._closed.is_set() or not connection.is_reusable():
            connection.close()
        else:
            self._idle.append(connection)
            if self._closed.is_set():  # closed in between
                self.drop_idle()

    def drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


class _DeadlineRunner:
    """Runs programs until a deadline, without ever suspending: a `Runner` for one call of the client."""

    __slots__ = ("_calls", "_deadline")

    def __init__(self, calls: PostgresBlocking, deadline: float) -> None:
        self._calls = calls
        self._deadline = deadline

    def time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._calls.sleep(min(seconds, max(self._deadline - time.monotonic(), 0)))

    def newest_time(self, milliseconds: int) -> int:
        return self._calls.newest_time(milliseconds)

    @property
    def left(self) -> float:
        return max(self._deadline - time.monotonic(), 0)

    async def run(
        self,
        make: Callable[[], Program[T]],
        *,
        transaction: bool = False,
        repeat: bool = True,
        within: float | None = None,
    ) -> T:
        import psycopg

        calls, began = self._calls, time.monotonic()
        limit = min(calls.limit, self._deadline - began, calls.limit if within is None else within)
        tries = Tries(calls._options, max(limit, 0), repeat, transaction or calls.sets_isolation)
        while True:
            try:
                return self._try_once(make(), tries, began + limit, not repeat)
            except (psycopg.Error, TimeoutError) as error:
                after = tries.after(error)
                if after.drop_idle:
                    calls.drop_idle()
                if after.error is not None:
                    raise after.error from error
                calls.sets_isolation = calls.sets_isolation or (tries.in_transaction and not transaction)

    def _try_once(self, program: Program[T], tries: Tries, deadline: float, check: bool) -> T:
        tries.sent = tries.late = False
        try:
            first = next(program)
        except StopIteration as stop:
            result: T = stop.value
            return result
        me, places = threading.get_ident(), self._calls.places
        connection: ThreadConnection | None = None
        try:
            connection = self._calls.take(first.sql, deadline)
            if check:
                connection.ask("select 1", (), deadline)
            tries.sent = True
            if tries.in_transaction:
                return _drive_in_transaction(connection, program, first, deadline)
            return _drive(connection, program, first, deadline)
        finally:
            places.inside.discard(me)
            if connection is not None:
                tries.late = connection.late
                self._calls.give(connection)
            places.wake()


def _drive(connection: ThreadConnection, program: Program[T], first: Statement, deadline: float) -> T:
    statement = first
    try:
        while True:
            statement = program.send(connection.ask(statement.sql, statement.parameters, deadline))
    except StopIteration as stop:
        result: T = stop.value
        return result


def _drive_in_transaction(connection: ThreadConnection, program: Program[T], first: Statement, deadline: float) -> T:
    connection.ask(BEGIN, (), deadline)
    result = _drive(connection, program, first, deadline)  # after an error `give` closes the connection
    connection.ask("rollback" if isinstance(result, Exception) else "commit", (), deadline)
    return result


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
        raised: list[BaseException] = []
        ended = ClosedFlag()

        async def opened() -> None:
            driver = PostgresDriver(self._dsn)
            await driver.open()
            await driver.close()

        def work() -> None:
            try:
                asyncio.run(opened())
            except BaseException as error:
                raised.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=work, name="taskharbor-postgres-open", daemon=True)
        with DeferredSignals():
            thread.start()
        ended.wait(self._current_runner.left)
        if not ended.is_set():
            raise unavailable(self._options, TimeoutError("the deadline has passed"))
        if raised:
            raise raised[0]
