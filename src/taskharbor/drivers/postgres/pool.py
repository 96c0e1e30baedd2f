"""Running programs on connections (`Runner`), and the connections of one event loop (`PostgresPool`).

A small pool of our own: a connection that cannot be made is an error at once, not after a time-out in the background;
a call prefers a connection whose server process has the plan of its statement; and nothing runs beside the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.statement import Program, Statement, drive
from taskharbor.drivers.postgres.tries import Tries

if TYPE_CHECKING:
    from taskharbor.drivers.postgres.connection import FastConnection

log = logging.getLogger("taskharbor.drivers.postgres")

T = TypeVar("T")
# For our own sessions, whatever the role or the database sets. A planner that may not use the plans that our statements
# were made for takes them for expensive, compiles each for a second (jit), or starts processes for them.
_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "lock_timeout": "0",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "enable_memoize": "off",  # rows are looked up by their ctid, each once: there is nothing to remember
    **dict.fromkeys(("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_tidscan"), "on"),
    **dict.fromkeys(("enable_nestloop", "enable_hashjoin", "enable_hashagg", "enable_sort"), "on"),
}
SERVER_FIRST_S = 5.0  # the server gives a statement up this long before the connection is given up here
IDLE_S = 10.0  # after which a connection that no call uses is closed, beside another one
WORKER_CONNECTIONS = 2  # of a worker's calls at once; renewals and handlers' transactions have others
BEGIN = "begin isolation level read committed"


def connect_arguments(options: PostgresOptions, address: str | None = None) -> dict[str, Any]:
    """The arguments of every connection: no call may hang on a network that is gone."""
    return {
        "conninfo": address or options.address,
        "connect_timeout": max(2, round(options.connect_timeout)),
        "keepalives": 1,
        "keepalives_idle": 4,
        "keepalives_interval": 1,
        "keepalives_count": 4,
        "tcp_user_timeout": 4_000,  # a dead connection is known in time to try another one within ten seconds
        "application_name": "taskharbor",
        "client_encoding": "UTF8",
        "prepare_threshold": None,  # connection.py prepares
        "autocommit": True,
    }


def session_settings(options: PostgresOptions, backend_pid: int) -> Statement:
    """Set up a session, but only if it is the connection's own: then it returns a row.

    Behind a pooler that lends sessions for one transaction at a time, the statement runs in another server process than
    the one that the connection was given at its start. Such sessions are not ours to change.
    """
    limit = str(round(options.statement_timeout * 1000))
    settings = [text for pair in {**_SETTINGS, "statement_timeout": limit}.items() for text in pair]
    set_all = ", ".join(["set_config(?, ?, false)"] * (len(settings) // 2))
    return Statement(f"select {set_all} where pg_backend_pid() = cast(? as integer)", (*settings, backend_pid))


@functools.cache
def warn_of_pooler() -> None:
    """Log once that an unnamed pooler was noticed."""
    log.warning(
        "a connection pooler stands before PostgreSQL: nothing is set on its sessions and nothing prepared; if "
        "it lends them for a transaction at a time, say so with pgbouncer=1 in the DSN"
    )


def limit_of(options: PostgresOptions) -> float:
    """After how many seconds a call is given up here; the server has given it up before, if it could."""
    return options.statement_timeout + SERVER_FIRST_S


class SharedState:
    """What all calls of one driver share."""

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self.limit = limit_of(options)
        # Whether each call runs in a transaction that sets its isolation level: the sessions have another level, and
        # belong to a pooler.
        self.sets_isolation = False
        self.newest_ms = 0
        self.idle: list[Any] = []  # connections that no call uses; threads may share them: append and pop are atomic
        self.trimming: Any = None  # the timer that closes some of them
        self.closed = False
        self.inside: set[int] = set()  # threads that may hold a connection, where threads share them


class Runner:
    """Runs programs, for as many tries as each needs. A subclass lends connections and knows how to wait.

    All of it is coroutines. Those of a subclass for the calling thread never suspend.
    """

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared

    def time(self) -> float:
        """Seconds of a monotonic clock."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def take(self, sql: str, limit: float) -> Any:
        """A connection, to be given up in `limit` seconds; if possible one that has sent `sql` before: its server
        process has the plans."""
        raise NotImplementedError

    async def give(self, connection: Any) -> None:
        """After `take`, also if that failed; then `connection` is None."""
        raise NotImplementedError

    def idle_one(self, sql: str) -> Any:
        """A connection that no call uses, for `take`; None if there is none."""
        idle = self.shared.idle
        for connection in reversed(idle):
            if sql in connection.sent:
                with contextlib.suppress(ValueError):  # another thread has taken it
                    idle.remove(connection)
                    return connection
        with contextlib.suppress(IndexError):
            return idle.pop()
        return None

    def keep(self, connection: Any) -> None:
        """Keep a connection for the next call; not for long, beside another one."""
        connection.idle_since = self.time()
        self.shared.idle.append(connection)
        self._trim_later()

    def _trim_later(self) -> None:
        if len(self.shared.idle) > 1 and self.shared.trimming is None and not self.shared.closed:
            self.shared.trimming = self.later(IDLE_S, self._trim)

    def _trim(self) -> None:
        """Close the connections that no call has used for a while. One stays."""
        self.shared.trimming = None
        idle, now = list(self.shared.idle), self.time()
        stays = next((each for each in idle if each.on_notify is not None), idle[-1] if idle else None)
        for connection in idle:
            if connection is not stays and connection.idle_since <= now - IDLE_S:
                with contextlib.suppress(ValueError):  # another thread has taken it
                    self.shared.idle.remove(connection)
                    self.discard(connection)
        self._trim_later()

    def later(self, seconds: float, work: Callable[[], None]) -> Any:
        """Call `work` in a while; returns a timer that can be cancelled, or None if that is not possible."""
        raise NotImplementedError

    def discard(self, connection: Any) -> None:
        """Close a connection, beside the calls."""
        raise NotImplementedError

    def stop(self) -> None:
        """Keep no more connections."""
        self.shared.closed = True
        if self.shared.trimming is not None:
            self.shared.trimming.cancel()

    async def drop_idle(self) -> None:
        """Close the connections that no call uses."""
        with contextlib.suppress(IndexError):
            while True:
                await self.shared.idle.pop().close()

    def newest_time(self, milliseconds: int) -> int:
        """The greatest server time seen so far: the store's clock never goes back."""
        self.shared.newest_ms = max(self.shared.newest_ms, milliseconds)
        return self.shared.newest_ms

    def limit(self, within: float | None) -> float:
        """After how many seconds a try is given up."""
        return self.shared.limit if within is None else min(within, self.shared.limit)

    async def run(
        self,
        make: Callable[[], Program[T]],
        *,
        transaction: bool = False,
        repeat: bool = True,
        within: float | None = None,
    ) -> T:
        """Run a program, made anew by `make` for each try.

        `transaction`: between begin and commit; a result that is an exception rolls back. `within`: it is given up
        after this many seconds, if that is sooner than usual. `repeat`: the call may be sent again when its reply was
        lost. A call that would return something else the second time has `repeat=False`: it is sent on a connection
        that was checked just before, and if its reply is lost the caller gets the error.
        """
        import psycopg

        shared, limit = self.shared, self.limit(within)
        tries = Tries(shared.options, limit, repeat, transaction or shared.sets_isolation)
        while True:
            try:
                return await self._try_once(make(), tries, limit, not repeat)
            except (psycopg.Error, TimeoutError) as error:
                refused = tries.after(error)
                if tries.are_suspect:
                    await self.drop_idle()
                if refused is not None:
                    raise refused from error
                shared.sets_isolation = shared.sets_isolation or (tries.in_transaction and not transaction)

    async def _try_once(self, program: Program[T], tries: Tries, limit: float, check: bool) -> T:
        tries.sent = tries.late = tries.are_suspect = False
        try:
            first = next(program)
        except StopIteration as stop:
            result: T = stop.value
            return result
        inside, me, connection = self.shared.inside, threading.get_ident(), None
        try:
            connection = await self.take(first.sql, limit)
            connection.awaits_stop = tries.in_transaction  # it needs the connection for a rollback
            if check:
                await connection.ask("select 1")
            tries.sent = True
            if tries.in_transaction:
                return await _drive_in_transaction(program, connection.ask, first)
            return await drive(program, connection.ask, first)
        finally:
            inside.discard(me)  # first: after this one call no signal handler that raises can cost a place
            if connection is not None:
                tries.late = connection.late
            await self.give(connection)


async def _drive_in_transaction(program: Program[T], ask: Callable[..., Any], first: Statement) -> T:
    import psycopg

    await ask(BEGIN)
    try:
        result = await drive(program, ask, first)
    except Exception:
        with contextlib.suppress(psycopg.Error):  # the connection may be lost; what is not committed is rolled back
            await ask("rollback")
        raise
    await ask("rollback" if isinstance(result, Exception) else "commit")
    return result


async def set_up(connection: Any, options: PostgresOptions, backend_pid: int) -> None:
    """Set up the session of a new connection, unless a pooler stands between."""
    if not options.pgbouncer:
        rows = await connection.ask(*session_settings(options, backend_pid))
        connection.prepares = bool(rows)
        if not rows:
            warn_of_pooler()


class PostgresPool(Runner):
    """Connections of one event loop."""

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(SharedState(options))
        self._options = options
        self._places = options.pool_size
        self._free = asyncio.Semaphore(options.pool_size)
        self._stopping: set[asyncio.Task[None]] = set()

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def later(self, seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, work)

    def discard(self, connection: FastConnection) -> None:
        self._begin(connection.close())

    async def close(self) -> None:
        self.stop()
        stopping = list(self._stopping)
        for task in stopping:
            task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)
        await self.drop_idle()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[FastConnection]:
        """A connection for the time of a block. One that is left in a transaction, or broken, is closed."""
        connection = await self.take("", math.inf)
        connection.awaits_stop = True
        try:
            yield connection
        finally:
            await self.give(connection)

    async def serve_worker(self) -> None:
        """From now on lend only as many connections at once as a worker needs: its calls are few and short."""
        while self._places > WORKER_CONNECTIONS:
            self._places -= 1
            await self._free.acquire()

    @asynccontextmanager
    async def listener(self, address: str | None, known: FastConnection | None = None) -> AsyncIterator[FastConnection]:
        """For a moment, a connection that is to listen beside its calls. `known`: this one, which idles. `address`: of
        a server where a connection outside of the pool listens."""
        limit = self._options.connect_timeout
        if address is not None:
            connection = known or await self._connect(address)
            connection.lend(self.time() + limit, limit)
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            return
        connection = await self.take("", limit, known)
        try:
            yield connection
        finally:
            await self.give(connection)

    # Connections

    async def _connect(self, address: str | None = None) -> FastConnection:
        """A new connection, set up for our statements unless a pooler stands between."""
        import psycopg

        from taskharbor.drivers.postgres.connection import FastConnection

        made = await psycopg.AsyncConnection.connect(**connect_arguments(self._options, address))
        connection = FastConnection(made)
        try:
            with Deadline(self._options.connect_timeout, made):
                await set_up(connection, self._options, made.info.backend_pid)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def take(self, sql: str, limit: float, known: FastConnection | None = None) -> FastConnection:
        if self._free.locked():
            async with asyncio.timeout(self.shared.limit):
                await self._free.acquire()
        else:
            await self._free.acquire()
        try:
            if known is not None and known in self.shared.idle:
                self.shared.idle.remove(known)
                connection = known
            else:
                connection = await self._live_one(sql) or await self._connect()
        except BaseException:
            self._free.release()
            raise
        connection.lend(self.time() + limit, limit)
        return connection

    async def _live_one(self, sql: str) -> FastConnection | None:
        """An idle connection. Some may have been lost meanwhile: they are watched, so that is known."""
        connection: FastConnection | None
        while (connection := self.idle_one(sql)) is not None and not connection.is_idle:
            await connection.close()
        return connection

    async def give(self, connection: FastConnection | None) -> None:
        if connection is None:
            return
        connection.until = connection.stop_at = math.inf
        try:
            if connection.is_busy and not connection.awaits_stop and not self.shared.closed:
                # Its call was cancelled. The server may need long to stop it, or be gone: the caller does not wait.
                self._begin(self._stop(connection))
            else:
                await self._put_back(connection)
        finally:
            self._free.release()

    async def _stop(self, connection: FastConnection) -> None:
        try:
            await connection.stop()
        except BaseException:
            await connection.close()
            raise
        await self._put_back(connection)

    async def _put_back(self, connection: FastConnection) -> None:
        if self.shared.closed or not connection.is_reusable:
            await connection.close()
        else:
            self.keep(connection)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="taskharbor-stop")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
