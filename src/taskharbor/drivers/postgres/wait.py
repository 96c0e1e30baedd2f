"""wait(): LISTEN for hints that work may have arrived, and poll from time to time as well.

A waiter is a row in the table `waiting`. A call that brings work and finds such rows deletes them and notifies. So a
store in which all workers are busy sends nothing, and a hundred enqueues wake a waiter once. A caller's transaction
deletes no row: it locks none, and notifies at most every 50 ms, for all queues (send_hints.sql). Its job may be there a
little after such a hint, so waiters check twice more.

A pooled connection listens beside its calls, so an idle worker has one connection here. Jobs that become due, and hints
that were lost, are found by one waiter of the store: it sweeps once a second and notifies the others. An advisory lock
of its listening connection chooses it. Through a pooler that lends sessions for a transaction nothing can listen: there
waiting is polling, and a row that is gone is the hint.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import PostgresPool
from taskharbor.drivers.postgres.statement import Program, Statement, array, named, quoted
from taskharbor.model.errors import DriverError

if TYPE_CHECKING:
    from taskharbor.drivers.postgres.connection import FastConnection

LISTENING_S = 30.0  # between two polls while listening
SWEEP_S = 1.0  # between two sweeps of the waiter that does them
POLL_S = 0.2  # between two polls without listening
LOOK_AGAIN_S = (0.06, 0.2)  # polls after a hint of a caller's transaction: others were about to commit
LEAVING_S = 2.0  # to delete the rows of this waiter
MAX_EMPTY_HINTS = 2  # polls in a row that led to an empty reserve; then one interval passes before the next is trusted


class HintListener:
    """The calls of wait() of one driver."""

    def __init__(self, pool: PostgresPool, options: PostgresOptions) -> None:
        self._pool = pool
        self._options = options
        self._name = secrets.token_hex(8)
        self._waiters: dict[asyncio.Future[bool], frozenset[str]] = {}
        self._listening: FastConnection | None = None
        self.sweeps = False  # whether this is the waiter that sweeps
        self._extra_polls: list[float] = []  # when to poll next, in the loop's time
        self._empty_hints = 0
        self._polled = False
        self._registered = False
        digest = hashlib.md5(options.schema.encode(), usedforsecurity=False)
        self.channel = "taskharbor:" + digest.hexdigest()
        self._lock = int.from_bytes(digest.digest()[:4], "big", signed=True)

    @property
    def is_listening(self) -> bool:
        """Whether hints reach this driver."""
        return self._listening is not None

    def reserved(self, number: int) -> None:
        """A reserve returned `number` jobs."""
        if number:
            self._empty_hints = 0
        elif self._polled:
            self._empty_hints += 1
        self._polled = False

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        deadline = asyncio.get_running_loop().time() + timeout
        await self._pool.serve_worker()
        again = False
        while True:
            waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = frozenset(queues)
            try:
                await self._listen()
                listening = self.is_listening
                ready, gone = await self._pool.run(lambda: self._register(queues, listening))  # noqa: B023 - at once
                if ready and self._empty_hints < MAX_EMPTY_HINTS:
                    self._polled = True
                    return True
                if gone and again:
                    return True  # what brings work deletes the rows of those who wait for it
                again = True
                if await self._hint(waiter, deadline):
                    self._empty_hints = 0
                    return True
                if asyncio.get_running_loop().time() >= deadline:
                    return False
                if self._empty_hints >= MAX_EMPTY_HINTS:
                    self._empty_hints = MAX_EMPTY_HINTS - 1
            finally:
                self._waiters.pop(waiter, None)
                waiter.cancel()

    async def _hint(self, waiter: asyncio.Future[bool], deadline: float) -> bool:
        """Wait for a hint; False when it is time to poll again, or over."""
        loop = asyncio.get_running_loop()
        poll_at = min(loop.time() + (LISTENING_S if self.is_listening else POLL_S), deadline)
        while not waiter.done():
            now = loop.time()
            self._extra_polls = [moment for moment in self._extra_polls if moment > now]
            until = min([poll_at, *self._extra_polls])
            sweeps = self.sweeps and self.is_listening
            await asyncio.wait([waiter], timeout=max(min(until - now, SWEEP_S if sweeps else math.inf), 0))
            if loop.time() >= until:
                break
            if sweeps and not waiter.done():
                await self._pool.run(self._sweep)
        return waiter.done() and waiter.result()

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

    def _sweep(self) -> Program[None]:
        yield Statement(f"select {named(self._options.schema, 'sweep')}()")

    def _unregister(self) -> Program[None]:
        yield Statement(f"delete from {quoted(self._options.schema)}.waiting where waiter = ?", (self._name,))

    # Listening

    async def _listen(self) -> None:
        """Listen, if that is possible, and try to be the one that sweeps."""
        import psycopg

        if self._options.pgbouncer and self._options.listen is None:
            return
        with contextlib.suppress(psycopg.Error, OSError, TimeoutError):  # the poll that follows reports an outage
            if self._listening is None:
                async with self._pool.listener(self._options.listen) as connection:
                    await connection.ask(f"listen {quoted(self.channel)}")
                    if connection.prepares or self._options.listen:  # else a pooler lends another session to each call
                        connection.on_notify = self._on_hint
                        self._listening = connection
                    await self._try_to_sweep(connection)
            elif not self.sweeps and self._listening.is_idle:
                async with self._pool.listener(self._options.listen, self._listening) as connection:
                    await self._try_to_sweep(connection)

    async def _try_to_sweep(self, connection: FastConnection) -> None:
        sql = "select pg_try_advisory_lock(1952540011, ?)"
        self.sweeps = self._listening is connection and bool((await connection.ask(sql, (self._lock,)))[0][0])

    def _on_hint(self, queue: str | None) -> None:
        """A hint for a queue; "": for any, perhaps a little later; None: the connection is lost, and hints with it."""
        if queue is None:
            self._listening, self.sweeps = None, False
        elif not queue:
            now = asyncio.get_running_loop().time()
            self._extra_polls = [now + seconds for seconds in LOOK_AGAIN_S]
        for waiter, queues in self._waiters.items():
            if (not queue or queue in queues) and not waiter.done():
                waiter.set_result(bool(queue))

    async def close(self) -> None:
        """Delete the rows of this waiter."""
        if self._registered:
            with contextlib.suppress(DriverError):  # else the next heartbeat of any worker deletes them
                await self._pool.run(self._unregister, within=LEAVING_S)
        connection, self._listening = self._listening, None
        if connection is not None:
            connection.on_notify = None
            if self._options.listen is not None:
                await connection.close()
