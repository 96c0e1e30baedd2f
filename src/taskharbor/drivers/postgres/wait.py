"""wait(): LISTEN on a connection of its own for hints that work may have arrived, and poll from time to time as well.

A waiter is a row in the table `waiting`. A call that brings work and finds such rows deletes them and notifies. So a
store in which all workers are busy sends nothing, and a hundred enqueues wake a waiter once. The listening connection
reconnects by itself; while it is away, and through pgbouncer, waiting is polling more often, and a row that is gone is
the hint.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Sequence

from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import PostgresPool, connect_arguments
from taskharbor.drivers.postgres.statement import Program, Statement, array, named, quoted
from taskharbor.model.errors import DriverError

POLL_LISTENING_S = 1.0  # between two polls while listening
POLL_S = 0.2  # without listening
FIRST_LISTEN_S = 2.0  # for which the first wait lets the listening connection come up
SILENCE_S = 20.0  # after which the listening connection is asked whether it is alive
LEAVING_S = 2.0  # to delete the rows of this waiter
MAX_EMPTY_HINTS = (
    2  # polls in a row that led to an empty reserve; then wait for one interval before the next is trusted
)


class HintListener:
    """The calls of wait() of one driver."""

    def __init__(self, pool: PostgresPool, options: PostgresOptions) -> None:
        self._pool = pool
        self._options = options
        self._name = secrets.token_hex(8)
        self._waiters: dict[asyncio.Future[None], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._empty_hints = 0
        self._polled = False
        self._registered = False
        self.channel = "taskharbor:" + hashlib.md5(options.schema.encode(), usedforsecurity=False).hexdigest()

    def reserved(self, number: int) -> None:
        """A reserve returned `number` jobs."""
        if number:
            self._empty_hints = 0
        elif self._polled:
            self._empty_hints += 1
        self._polled = False

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = frozenset(queues)
        again = False
        try:
            await self._listen(timeout)
            while True:
                listening = self._listening.is_set()
                ready, gone = await self._pool.run(lambda: self._register(queues, listening))  # noqa: B023 - at once
                if ready and self._empty_hints < MAX_EMPTY_HINTS:
                    self._polled = True
                    return True
                if gone and again:
                    return True  # what brings work deletes the rows of those who wait for it
                again = True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                every = POLL_LISTENING_S if self._listening.is_set() else POLL_S
                done, _ = await asyncio.wait([waiter], timeout=min(left, every))
                if done:
                    self._empty_hints = 0
                    return True
                if self._empty_hints >= MAX_EMPTY_HINTS:
                    self._empty_hints = MAX_EMPTY_HINTS - 1
        finally:
            self._waiters.pop(waiter, None)
            waiter.cancel()

    def _register(self, queues: Sequence[str], listening: bool) -> Program[tuple[bool, bool]]:
        """Whether there is work; and without listening, whether rows of this waiter were gone before this statement."""
        self._registered = True
        distinct = array(list(dict.fromkeys(queues)))
        names = "array(select json_array_elements_text(cast(? as json)))"
        register = f"select {named(self._options.schema, 'register_waiter')}({names}, ?)"
        if listening:
            rows = yield Statement(register, (distinct, self._name))
            return bool(rows[0][0]), False
        table = f"{quoted(self._options.schema)}.waiting"
        left = f"(select count(*) from {table} w where w.queue = any({names}) and w.waiter = ?)"
        rows = yield Statement(f"{register}, {left}", (distinct, self._name, distinct, self._name))
        return bool(rows[0][0]), int(rows[0][1]) < len(set(queues))

    def _unregister(self) -> Program[None]:
        yield Statement(f"delete from {quoted(self._options.schema)}.waiting where waiter = ?", (self._name,))

    # Listening

    async def _listen(self, timeout: float) -> None:
        if self._options.pgbouncer and self._options.listen is None:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="taskharbor-listen")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._listening.wait(), min(timeout, FIRST_LISTEN_S))

    async def _keep_listening(self) -> None:
        import psycopg

        pause, first = 0.1, True
        while True:
            try:
                made = connect_arguments(self._options, self._options.listen)
                connection = await psycopg.AsyncConnection.connect(**made)
                try:
                    with Deadline(self._pool.shared.limit, connection):
                        await connection.execute(f"listen {quoted(self.channel)}".encode())
                    self._listening.set()
                    if not first:
                        self._wake(None)  # hints that were sent meanwhile were not received
                    pause, first = 0.1, False
                    while True:
                        async for notify in connection.notifies(timeout=SILENCE_S):
                            self._wake(notify.payload)
                        # No hint for a while: is the server still there?
                        with Deadline(self._options.connect_timeout, connection):
                            await connection.execute("select 1")
                finally:
                    await connection.close()
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
        """Stop listening, and delete the rows of this waiter."""
        task, self._task = self._task, None
        if self._registered:
            with contextlib.suppress(DriverError):  # else the next heartbeat of any worker deletes them
                await self._pool.run(self._unregister, within=LEAVING_S)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
