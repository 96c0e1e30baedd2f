"""A transaction that a handler opened with `ctx.transaction()`, kept open until its job ends.

Coroutines get the driver's asynchronous transaction; plain functions get its synchronous one, which is ended in a
thread. Only the first end counts. An end that has begun is completed even if the job is cancelled meanwhile: half a
commit would leave in doubt what was written. An abort rolls back at any moment, while the handler is still running; the
rollback at the handler's end then closes what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from taskharbor.drivers.base import SqlDriver
from taskharbor.drivers.transactions import Transaction, TransactionSync
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack
from taskharbor.worker.threads import Threads, unwrap

T = TypeVar("T")


class HandlerTransaction:
    """What the handler was given, and the ways to end it. `begun`: the handler has entered its block."""

    def __init__(
        self,
        commit: Callable[[Ack, datetime], Awaitable[TaskHarborError | None]],
        rollback: Callable[[], Awaitable[None]],
        abort: Callable[[str], Awaitable[None]],
    ) -> None:
        self.given: Any = None
        self.begun = False
        self._commit = commit
        self._rollback = rollback
        self._abort = abort
        self._ended = False

    @classmethod
    def begin(cls, driver: SqlDriver, lease: Lease, coroutine: bool, threads: Threads) -> HandlerTransaction:
        """A transaction for one delivery: asynchronous for a coroutine, synchronous for a plain function."""
        if coroutine:
            transaction = driver.transaction(lease)
            held = cls(transaction.commit, transaction.rollback, transaction.abort)
            held.given = _Given(held, transaction)
            return held
        given = driver.transaction_sync(lease)

        async def commit(ack: Ack, now: datetime) -> TaskHarborError | None:
            refused: TaskHarborError | None = await threads.run(partial(given.commit, ack, now))
            return refused

        async def rollback() -> None:
            await threads.run(given.rollback)

        async def abort(why: str) -> None:
            await threads.run(partial(given.abort, why))

        held = cls(commit, rollback, abort)
        held.given = _GivenSync(held, given)
        return held

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Commit the ack together with the handler's writes; if a refusal is returned, both were rolled back."""
        self._ended = True
        return await _completed(partial(self._commit, ack, now))

    async def rollback(self) -> None:
        """Roll back the handler's writes. An error is ignored: a store that is gone has rolled back by itself."""
        if not self._ended:
            self._ended = True
            try:
                await _completed(self._rollback)
            except BaseException:
                return

    async def abort(self, why: str) -> None:
        """Roll back while the handler is still running; its later uses of the transaction are refused."""
        if not self._ended:
            try:
                await self._abort(why)
            except BaseException:
                return


class _Given:
    """What a coroutine gets: `async with` begins the transaction; leaving the block does not end it."""

    def __init__(self, held: HandlerTransaction, transaction: Transaction) -> None:
        self._held = held
        self._transaction = transaction

    async def __aenter__(self) -> Any:
        connection = await self._transaction.__aenter__()
        self._held.begun = True
        return connection

    async def __aexit__(self, *raised: object) -> None:
        await self._transaction.__aexit__(*raised)


class _GivenSync:
    """The same for a plain function: `with`."""

    def __init__(self, held: HandlerTransaction, transaction: TransactionSync) -> None:
        self._held = held
        self._transaction = transaction

    def __enter__(self) -> Any:
        connection = self._transaction.__enter__()
        self._held.begun = True
        return connection

    def __exit__(self, *raised: object) -> None:
        self._transaction.__exit__(*raised)


async def _completed(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work` in a task of its own, so that cancelling the caller does not interrupt it.

    What it raises is carried as a value: a KeyboardInterrupt that leaves a task would end the loop.
    """

    async def carried() -> tuple[T | None, BaseException | None]:
        try:
            return await work(), None
        except BaseException as error:
            return None, unwrap(error)

    task = asyncio.ensure_future(carried())
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            continue
    value, error = task.result()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only if `work` returned None
