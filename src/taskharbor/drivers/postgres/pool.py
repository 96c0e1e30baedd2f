"""Connections, and running programs on them.

A small pool of our own: a connection that cannot be made is an error at once, not after a time-out in the background,
and nothing runs beside the calls. Calls in doubt are repeated once on a fresh connection, which ids and tokens make
harmless; then, and for everything else that keeps the store from answering, it is BackendUnavailable.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.dsn import concealed
from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.statement import Program, Statement
from taskharbor.model.errors import BackendUnavailable, DriverError

if TYPE_CHECKING:
    import psycopg

    from taskharbor.drivers.postgres.connection import FastConnection

log = logging.getLogger("taskharbor.drivers.postgres")

T = TypeVar("T")
TURNS = 8  # how often a transaction that lost against another is begun again
# Of our own sessions, whatever is usual for the role or the database. A planner that may not use what our statements
# were made for takes them for expensive, and then compiles each for a second (jit), or starts processes for them.
_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "lock_timeout": "0",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "enable_memoize": "off",  # rows are looked up by their places, each once: remembering them is work for nothing
    **dict.fromkeys(("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_tidscan"), "on"),
    **dict.fromkeys(("enable_nestloop", "enable_hashjoin", "enable_hashagg", "enable_sort"), "on"),
}
_ISOLATION = "TH002"  # what our functions answer in an isolation that is not read committed
SLACK = 5.0  # seconds that the server has to give up by itself, before the connection is given up here
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects|is not permitted to log in"
    r"|(?:database|role) \".*\" does not exist|permission denied for database|no such (?:database|user)"
)


def arguments(options: PostgresOptions, address: str | None = None) -> dict[str, Any]:
    """What every connection is made with: no call may hang on a network that is gone."""
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
        "prepare_threshold": None,  # by psycopg: see connection.py
        "autocommit": True,
    }


def limit_of(options: PostgresOptions) -> float:
    """After how many seconds a call is given up here; the server has given it up before, if it could."""
    return options.statement_timeout + SLACK


class PostgresPool:
    """Connections of one event loop."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._idle: list[FastConnection] = []
        self._room = asyncio.Semaphore(options.pool_size)
        self._settling: set[asyncio.Task[None]] = set()
        self._says_isolation = (
            False  # sessions have another than ours, and are not ours to change: see 00_isolation.sql
        )
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        settling = list(self._settling)
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)
        await self._drop_idle()

    async def _connect(self) -> FastConnection:
        """A new connection, with the isolation we are made for, whatever is usual for this role or database.

        Unless a pooler stands between that lends sessions for a transaction at a time: those are not ours to change. It
        is known by the number of the server process, which is not the one that the connection was told.
        """
        from taskharbor.drivers.postgres.connection import FastConnection

        connection = await FastConnection.connect(**arguments(self._options))
        await connection.set_isolation_level(_read_committed())  # of transactions that are begun through psycopg
        if not self._options.pgbouncer:
            try:
                limit = str(round(self._options.statement_timeout * 1000))
                settings = [text for pair in {**_SETTINGS, "statement_timeout": limit}.items() for text in pair]
                own = connection.info.backend_pid
                set_all = ", ".join(["set_config(?, ?, false)"] * (len(settings) // 2))
                connection.settles = False  # whoever is cancelled here closes it
                with Deadline(self._options.connect_timeout, connection):
                    rows = await connection.ask(
                        f"select {set_all} where pg_backend_pid() = cast(? as integer)", (*settings, own)
                    )
                connection.settles = True
                connection.prepares = bool(rows)
                if not rows:
                    _warn_of_a_pooler()
            except BaseException:
                await connection.close()
                raise
        return connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[FastConnection]:
        """A connection for the time of a block. One that is left in a transaction, or broken, is closed."""
        connection, whole = await self._take(), False
        try:
            yield connection
            whole = True
        finally:
            await self._give(connection, whole)

    async def _take(self, sql: str = "") -> FastConnection:
        """A free connection; rather one that has sent this before: the server's side of it has the plans."""
        if self._room.locked():
            async with asyncio.timeout(self.limit):
                await self._room.acquire()
        else:
            await self._room.acquire()
        try:
            for place in range(len(self._idle) - 1, -1, -1):
                if sql in self._idle[place].sent:
                    return self._idle.pop(place)
            if self._idle:
                return self._idle.pop()
            return await self._connect()
        except BaseException:
            self._room.release()
            raise

    async def _give(self, connection: FastConnection, whole: bool) -> None:
        try:
            if connection.busy and not connection.settles and not self._closed:
                # Its call was cancelled. The server may take its time to say so, or stand still: the caller does not
                # wait for that.
                task = asyncio.create_task(self._settle(connection), name="taskharbor-settle")
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)
            else:
                await self._put_back(connection, whole)
        finally:
            self._room.release()

    async def _settle(self, connection: FastConnection) -> None:
        settled = False
        try:
            await connection.settle()
            settled = True
        finally:
            if settled:
                await self._put_back(connection, False)
            else:
                await connection.close()

    async def _put_back(self, connection: FastConnection, whole: bool) -> None:
        if self._closed or connection.closed or (not whole and not _clean(connection)):
            await connection.close()
        else:
            self._idle.append(connection)

    @property
    def limit(self) -> float:
        """See limit_of."""
        return limit_of(self._options)

    async def run(
        self,
        make: Callable[[], Program[T]],
        *,
        transaction: bool = False,
        repeat: bool = True,
        within: float | None = None,
    ) -> T:
        """Run a program. `transaction`: as one; an answer that is an exception rolls it back. `within`: it is given up
        after this many seconds, if that is sooner than usual.

        `repeat`: the call may be sent again when its reply was lost. Where that would answer something else, only a
        connection that answers is used, and what is lost after that is the caller's to find out.
        """
        import psycopg

        again, loop = False, asyncio.get_running_loop()
        limit = self.limit if within is None else min(within, self.limit)
        for turn in range(TURNS):
            sent = late = whole = False
            as_one = transaction or self._says_isolation
            try:
                program = make()
                try:
                    first = next(program)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                connection = await self._take(first.sql)
                connection.until = loop.time() + limit
                connection.settles = as_one  # whose block ends with a statement of its own
                try:
                    if not repeat:
                        await connection.ask("select 1", ())
                    sent = True
                    answer = await (_as_one if as_one else drive)(connection, program, first)
                    whole = True
                    return answer
                finally:
                    late, connection.until = connection.late, None
                    await self._give(connection, whole)
            except (
                psycopg.errors.DeadlockDetected,
                psycopg.errors.SerializationFailure,
                psycopg.errors.UniqueViolation,
                psycopg.errors.FeatureNotSupported,  # a prepared statement that has to be prepared again
                psycopg.errors.InvalidSqlStatementName,  # or is another session's
                psycopg.errors.DuplicatePreparedStatement,
            ) as error:
                if turn + 1 == TURNS:
                    raise unavailable(self._options, error) from error
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                await self._drop_idle()
                if late:
                    raise BackendUnavailable(f"PostgreSQL did not answer within {limit:g} s") from error
                if again or not _lost(error) or (sent and not repeat):
                    raise unavailable(self._options, error) from error
                again = True
            except TimeoutError as error:
                await self._drop_idle()
                raise unavailable(self._options, error) from error
            except psycopg.errors.ReadOnlySqlTransaction as error:
                await self._drop_idle()  # the primary became a standby: a fresh connection may find the new one
                raise unavailable(self._options, error) from error
            except psycopg.Error as error:
                if error.sqlstate == _ISOLATION and not as_one:
                    self._says_isolation = True
                    continue
                # Its text may quote what was stored: the kind of error has to do.
                raise DriverError(f"PostgreSQL refused the call: {type(error).__name__}") from error
        raise AssertionError("a turn returns or raises")

    async def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


async def drive(connection: FastConnection, program: Program[T], first: Statement | None = None) -> T:
    """Run a program's statements on a connection; `first`: it has been asked for its first one."""
    try:
        statement = first or next(program)
        while True:
            statement = program.send(await connection.ask(statement.sql, statement.parameters))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@functools.cache
def _warn_of_a_pooler() -> None:
    log.warning(
        "a connection pooler stands before PostgreSQL: nothing is set on its sessions and nothing prepared; if "
        "it lends them for a transaction at a time, say so with pgbouncer=1 in the DSN"
    )


def _read_committed() -> psycopg.IsolationLevel:
    from psycopg import IsolationLevel

    return IsolationLevel.READ_COMMITTED


class _RolledBack(Exception):
    """Ends a transaction whose program answered with an error."""


async def _as_one(connection: FastConnection, program: Program[T], first: Statement) -> T:
    answer: T
    try:
        async with connection.transaction():
            answer = await drive(connection, program, first)
            if isinstance(answer, Exception):
                raise _RolledBack
    except _RolledBack:
        pass
    return answer


def unavailable(options: PostgresOptions, error: BaseException) -> BackendUnavailable:
    """What callers get, with psycopg's own error as its cause; it repeats nothing of a user or password."""
    told = concealed(options.address, " ".join(str(error).split())[:300]) or type(error).__name__
    lasting = _lasting(str(error))
    made = BackendUnavailable(f"PostgreSQL {'refused' if lasting else 'did not answer'}: {told}")
    made.lasting = lasting
    return made


def unusable(options: PostgresOptions, error: psycopg.Error) -> DriverError:
    """What callers get if the schema is not what they may use, without what the address may hold."""
    from psycopg.errors import InsufficientPrivilege

    told = concealed(options.address, (str(error).splitlines() or [""])[0]) or type(error).__name__
    hint = ""
    if isinstance(error, InsufficientPrivilege):
        hint = "; run `taskharbor migrate` as a role that may create it, and grant this one the use of it"
    return DriverError(f"the schema {options.schema!r} cannot be used: {told}{hint}")


def _lasting(text: str) -> bool:
    """Whether every host that was tried refused for good. libpq gives the server's words and no code for them: a server
    that speaks another language is waited for."""
    tried = text.split("\n- ")[1:] or [text]
    return all(_REFUSED.search(each) is not None for each in tried)


def _clean(connection: psycopg.AsyncConnection[Any]) -> bool:
    from psycopg.pq import TransactionStatus

    return connection.pgconn.transaction_status == TransactionStatus.IDLE


def _lost(error: Exception) -> bool:
    """Whether the connection went away under the call: a fresh one may be all it needs."""
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))
