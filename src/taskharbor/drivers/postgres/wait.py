"""Hints that work may have arrived: LISTEN on a connection of its own, and looking from time to time all the same.

Who waits leaves a note in the table `waiting`; whoever brings work and finds one takes it away and notifies. So a
store in which everybody is busy sends nothing, and a hundred enqueues wake a waiter once. The listening connection
mends itself; while it is away, and through pgbouncer, waiting is looking more often.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import PostgresPool, arguments
from taskharbor.drivers.postgres.statement import Program, Statement, array, named, quoted
from taskharbor.model.errors import DriverError

if TYPE_CHECKING:
    import psycopg

LOOK_EVERY = 1.0  # seconds, while listening
LOOK_OFTEN = 0.2  # seconds, without
FIRST_LISTEN = 2.0  # seconds for which the first wait lets the listening connection come up
SILENCE = 20.0  # seconds after which the listening connection is asked whether it is alive
LEAVING = 2.0  # seconds to take back the notes
MAX_EMPTY_HINTS = 2  # so many looks in a row that found something which no reserve could take are believed


class HintListener:
    """The waiters of one driver."""

    def __init__(self, pool: PostgresPool, options: PostgresOptions) -> None:
        self._pool = pool
        self._options = options
        self._name = secrets.token_hex(8)
        self._waiters: dict[asyncio.Future[None], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._empty_hints = 0
        self._looked = False
        self._noted = False
        self.channel = "taskharbor:" + hashlib.md5(options.schema.encode(), usedforsecurity=False).hexdigest()

    def reserved(self, number: int) -> None:
        """A reserve answered so many jobs."""
        if number:
            self._empty_hints = 0
        elif self._looked:
            self._empty_hints += 1
        self._looked = False

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = frozenset(queues)
        try:
            await self._listen(timeout)
            while True:
                if await self._pool.run(lambda: self._watch(queues)) and self._empty_hints < MAX_EMPTY_HINTS:
                    self._looked = True
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                every = LOOK_EVERY if self._listening.is_set() else LOOK_OFTEN
                done, _ = await asyncio.wait([waiter], timeout=min(left, every))
                if done:
                    self._empty_hints = 0
                    return True
                if self._empty_hints >= MAX_EMPTY_HINTS:
                    self._empty_hints = MAX_EMPTY_HINTS - 1
        finally:
            self._waiters.pop(waiter, None)
            waiter.cancel()

    def _watch(self, queues: Sequence[str]) -> Program[bool]:
        self._noted = True
        names = "array(select json_array_elements_text(cast(? as json)))"
        rows = yield Statement(
            f"select {named(self._options.schema, 'register_waiter')}({names}, ?)",
            (array(list(dict.fromkeys(queues))), self._name),
        )
        return bool(rows[0][0])

    def _leave(self) -> Program[None]:
        yield Statement(f"delete from {quoted(self._options.schema)}.waiting where waiter = ?", (self._name,))

    # Listening

    async def _listen(self, timeout: float) -> None:
        if self._options.pgbouncer and self._options.listen is None:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="taskharbor-listen")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._listening.wait(), min(timeout, FIRST_LISTEN))

    async def _keep_listening(self) -> None:
        import psycopg

        pause, first = 0.1, True
        while True:
            try:
                made = arguments(self._options, self._options.listen)
                connection = await psycopg.AsyncConnection.connect(**made)
                async with contextlib.aclosing(Closing(connection)):
                    with Deadline(self._pool.limit, connection):
                        await connection.execute(f"listen {quoted(self.channel)}".encode())
                    self._listening.set()
                    if not first:
                        self._wake(None)  # whatever was said meanwhile was not heard
                    pause, first = 0.1, False
                    while True:
                        async for notify in connection.notifies(timeout=SILENCE):
                            self._wake(notify.payload)
                        # Nothing was said for a while: is there still somebody who could?
                        with Deadline(self._options.connect_timeout, connection):
                            await connection.execute("select 1")
            except (psycopg.Error, OSError):
                pass
            finally:
                self._listening.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _wake(self, queue: str | None) -> None:
        for waiter, queues in self._waiters.items():
            if (queue is None or queue in queues) and not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Stop listening, and take back the notes."""
        task, self._task = self._task, None
        if self._noted:
            with contextlib.suppress(DriverError):  # whoever beats next takes it away
                await self._pool.run(self._leave, within=LEAVING)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Closing:
    """Closes a connection at the end of a block, where psycopg's own block would commit or roll back first."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def aclose(self) -> None:
        await self._connection.close()
