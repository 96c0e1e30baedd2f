"""A transaction that a handler opened with `ctx.transaction()`, kept open until its job ends.

Coroutines get the driver's asynchronous transaction; plain functions get its synchronous one, which is ended in a
thread. Only the first end counts. An end that has begun is completed even if the job is cancelled meanwhile: half a
commit would leave in doubt what was written. An abort rolls back at any moment, while the handler is still running; the
rollback at the handler's end then closes what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from taskharbor.drivers.base import SqlDriver
from taskharbor.model.errors import BackendUnavailable, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.memo import SaveStep
from taskharbor.model.outcome import Ack
from taskharbor.worker.threads import Threads, unwrap


class HandlerTransaction:
    """A transaction of one delivery: asynchronous for a coroutine; synchronous for a plain function, and then ended in
    a thread. `given`: what the handler gets; `begun`: the handler has entered its block."""

    def __init__(self, driver: SqlDriver, lease: Lease, is_coroutine: bool, threads: Threads) -> None:
        self.begun = False
        self.unavailable: BackendUnavailable | None = None  # why it could not begin
        self._ended = False
        self._threads = None if is_coroutine else threads
        self.transaction: Any = (driver.transaction if is_coroutine else driver.transaction_sync)(lease)
        self.given = (_Given if is_coroutine else _GivenSync)(self)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A block that begins it: note that the store was not available for that."""
        try:
            yield
        except BackendUnavailable as error:
            self.unavailable = error
            raise

    async def _call(self, verb: Callable[..., Any], *arguments: Any) -> Any:
        if self._threads is None:
            return await verb(*arguments)
        return await self._threads.run(partial(verb, *arguments))

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Commit the ack together with the handler's writes; if a refusal is returned, both were rolled back."""
        self._ended = True
        refused: TaskHarborError | None = await _completed(partial(self._call, self.transaction.commit, ack, now))
        return refused

    # For the transaction of one step, from the handler: that of a plain function is ended in the handler's own thread.

    async def begin(self) -> Any:
        """Begin it, and return the connection."""
        transaction = self.transaction
        return await transaction.__aenter__() if self._threads is None else transaction.__enter__()

    async def commit_step(self, step: SaveStep, now: datetime) -> TaskHarborError | None:
        """Commit the memo together with the handler's writes; if a refusal is returned, both were rolled back."""
        self._ended = True
        refused: TaskHarborError | None = await self._at_its_place(partial(self.transaction.commit, step, now))
        return refused

    async def undo_step(self) -> None:
        """Roll back."""
        self._ended = True
        await self._at_its_place(self.transaction.rollback)

    async def _at_its_place(self, work: Callable[[], Any]) -> Any:
        return await _completed(work) if self._threads is None else work()

    async def rollback(self) -> None:
        """Roll back the handler's writes. An error is ignored: a store that is gone has rolled back by itself."""
        if not self._ended:
            self._ended = True
            try:
                await _completed(partial(self._call, self.transaction.rollback))
            except BaseException:
                return

    async def abort(self, why: str) -> None:
        """Roll back while the handler is still running; its later uses of the transaction are refused."""
        if not self._ended:
            try:
                await self._call(self.transaction.abort, why)
            except BaseException:
                return


class _Given:
    """What a coroutine gets: `async with` begins the transaction; leaving the block does not end it."""

    def __init__(self, held: HandlerTransaction) -> None:
        self._held = held

    async def __aenter__(self) -> Any:
        with self._held.noting():
            connection = await self._held.transaction.__aenter__()
        self._held.begun = True
        return connection

    async def __aexit__(self, *raised: object) -> None:
        await self._held.transaction.__aexit__(*raised)


class _GivenSync:
    """The same for a plain function: `with`."""

    def __init__(self, held: HandlerTransaction) -> None:
        self._held = held

    def __enter__(self) -> Any:
        with self._held.noting():
            connection = self._held.transaction.__enter__()
        self._held.begun = True
        return connection

    def __exit__(self, *raised: object) -> None:
        self._held.transaction.__exit__(*raised)


async def _completed(work: Callable[[], Awaitable[Any]]) -> Any:
    """Await `work` in a task of its own, so that cancelling the caller does not interrupt it.

    What it raises is carried as a value: a KeyboardInterrupt that leaves a task would end the loop.
    """

    async def carried() -> tuple[Any, BaseException | None]:
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
    return value
