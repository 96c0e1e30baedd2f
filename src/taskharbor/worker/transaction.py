"""A transaction that a handler opened with `ctx.transaction()`, held until its job ends.

Coroutines get the driver's asynchronous transaction; plain functions its synchronous one, whose end is awaited in a
thread. After the first end every further one is without effect. An end that has begun goes on to its end, whoever
cancels the job meanwhile: half a commit would leave in doubt what half a handler would not. An abort undoes it at any
moment, under a handler that still runs; the rollback at that handler's end then closes what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from taskharbor.drivers.contract import SqlDriver, Transaction, TransactionSync
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack
from taskharbor.worker.threads import Threads, unwrap

T = TypeVar("T")


class HandlerTransaction:
    """What the handler was given, and the two ways to end it. `begun`: it has entered its block."""

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
        """A transaction for one delivery, of the colour of its handler."""
        if coroutine:
            transaction = driver.transaction(lease)
            held = cls(transaction.commit, transaction.rollback, transaction.abort)
            held.given = _Given(held, transaction)
            return held
        given = driver.transaction_sync(lease)

        async def commit(ack: Ack, now: datetime) -> TaskHarborError | None:
            answer: TaskHarborError | None = await threads.run(partial(given.commit, ack, now))
            return answer

        async def rollback() -> None:
            await threads.run(given.rollback)

        async def abort(why: str) -> None:
            await threads.run(partial(given.abort, why))

        held = cls(commit, rollback, abort)
        held.given = _GivenSync(held, given)
        return held

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the ack and commit it with the handler's writes; a refusal has rolled both back."""
        self._ended = True
        return await _to_the_end(partial(self._commit, ack, now))

    async def rollback(self) -> None:
        """Undo the handler's writes. A store that cannot even do that has undone them by going away."""
        if not self._ended:
            self._ended = True
            try:
                await _to_the_end(self._rollback)
            except BaseException:
                return

    async def abort(self, why: str) -> None:
        """Undo the handler's writes while it still runs; what it does with the transaction later is refused."""
        if not self._ended:
            try:
                await self._abort(why)
            except BaseException:
                return


class _Given:
    """What a coroutine gets: `async with` begins the transaction, and leaving the block does not end it."""

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


async def _to_the_end(work: Callable[[], Awaitable[T]]) -> T:
    """Await it in a task of its own, which no cancel of the caller reaches: that only makes the caller wait again.

    What it raises is carried as a value: an interrupt that leaves a task ends the loop.
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
    return value  # type: ignore[return-value]  # None only if that is what it answered
