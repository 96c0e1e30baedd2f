"""A transaction that a handler opened with `ctx.transaction()`, held until its job ends.

Coroutines get the driver's asynchronous transaction; plain functions its synchronous one, whose end is awaited in a
thread. After the first end every further one is without effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from taskharbor.drivers.contract import SqlDriver
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack
from taskharbor.worker.threads import Threads, unwrap


class HeldTransaction:
    """What the handler was given, and the two ways to end it."""

    def __init__(
        self,
        given: Any,
        commit: Callable[[Ack, datetime], Awaitable[TaskHarborError | None]],
        rollback: Callable[[], Awaitable[None]],
    ) -> None:
        self.given = given
        self._commit = commit
        self._rollback = rollback
        self._ended = False

    @classmethod
    def begin(cls, driver: SqlDriver, lease: Lease, coroutine: bool, threads: Threads) -> HeldTransaction:
        """A transaction for one delivery, of the colour of its handler."""
        if coroutine:
            transaction = driver.transaction(lease)
            return cls(transaction, transaction.commit, transaction.rollback)
        given = driver.transaction_sync(lease)

        async def commit(ack: Ack, now: datetime) -> TaskHarborError | None:
            answer: TaskHarborError | None = await threads.run(partial(given.commit, ack, now))
            return answer

        async def rollback() -> None:
            await threads.run(given.rollback)

        return cls(given, commit, rollback)

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the ack and commit it with the handler's writes; a refusal has rolled both back."""
        self._ended = True
        try:
            return await self._commit(ack, now)
        except Exception as error:
            raise unwrap(error) from None

    async def rollback(self) -> None:
        """Undo the handler's writes. A store that cannot even do that has undone them by going away."""
        if not self._ended:
            self._ended = True
            try:
                await self._rollback()
            except Exception:
                return
