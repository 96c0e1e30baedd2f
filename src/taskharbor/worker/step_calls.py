"""How the steps of a handler reach the store: on the worker's loop, over its driver, from whatever thread asks.

A save that finds the lease lost ends the delivery as the heart does. While the store is away a save is tried again as
long as the lease lasts: the step was done, and would be done again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar, cast

from taskharbor.drivers.base import SqlDriver
from taskharbor.model.errors import (
    BackendUnavailable,
    Cancel,
    FeatureMissing,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    TaskHarborError,
    TransactionFailed,
)
from taskharbor.model.memo import SaveStep
from taskharbor.tasks.step_transaction import StepHold
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.outage import Backoff
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.threads import Threads
from taskharbor.worker.transaction import HandlerTransaction

T = TypeVar("T")
LOOP_CHECK_S = 1.0  # between two checks that the worker's loop is still there
_LOST = (JobNotFound, JobNotInflight, LeaseMismatch, LeaseExpired)


class StepSaver(Part):
    """What all deliveries of a worker share. `lose`: called with a delivery whose lease is gone."""

    def __init__(self, parts: WorkerParts, lose: Callable[[Delivery, TaskHarborError], None], threads: Threads) -> None:
        super().__init__(parts)
        self.loop = asyncio.get_running_loop()
        self.threads = threads
        self.transactions = cast(SqlDriver, parts.driver) if hasattr(parts.driver, "transaction") else None
        self._lose = lose

    def lose_soon(self, delivery: Delivery, error: TaskHarborError) -> None:
        """Note a lost lease, from any thread."""
        self.loop.call_soon_threadsafe(self._lose, delivery, error)

    def now(self) -> datetime:
        return self._clock.now()

    async def save(self, delivery: Delivery, name: str, value: bytes) -> None:
        """Store a memo; on the worker's loop."""
        backoff = Backoff()
        while True:
            check(delivery)
            if delivery.transaction is not None:
                raise RuntimeError(
                    f"step {name!r}: expected steps before ctx.transaction(), got one behind it; the transaction is "
                    "open until the job ends, and is undone if it fails"
                )
            try:
                await self._driver.save(delivery.lease, name, value, self._clock.now())
            except _LOST as error:
                self._lose(delivery, error)
            except BackendUnavailable as error:
                self._outage.failed("save", error)
                if delivery.lease.expires_at <= self._clock.now():
                    self._lose(delivery, LeaseExpired("its lease ended before a step could be stored"))
                else:
                    await asyncio.sleep(backoff.next())
            else:
                self._outage.answered("save")
                return


class DeliverySteps:
    """The `StepCalls` of one delivery."""

    def __init__(self, saver: StepSaver, delivery: Delivery) -> None:
        self._saver, self._delivery = saver, delivery
        self.now = saver.now

    def check(self) -> None:
        check(self._delivery)

    def save(self, name: str, value: bytes) -> None:
        wait_for(self._saver.save(self._delivery, name, value), self._saver.loop)

    async def asave(self, name: str, value: bytes) -> None:
        saving = self._saver.save(self._delivery, name, value)
        if asyncio.get_running_loop() is self._saver.loop:
            await saving
        else:  # a plain function that runs a loop of its own
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(saving, self._saver.loop))

    def hold(self, *, is_coroutine: bool) -> StepHold:
        saver, delivery = self._saver, self._delivery
        if saver.transactions is None:
            raise FeatureMissing("ctx.step_transaction() needs a SQL store: sqlite:// or postgresql://")
        if delivery.transaction is not None:
            raise RuntimeError("ctx.step_transaction() was called while another transaction of the job is open")
        assert delivery.handler is not None
        if is_coroutine is not delivery.handler.is_coroutine:
            raise RuntimeError("ctx.step_transaction() is for the handler itself, not for a loop of its own")
        held = HandlerTransaction(saver.transactions, delivery.lease, is_coroutine, saver.threads)
        delivery.transaction = held
        hold = _Hold(saver, delivery, held)
        try:
            check(delivery)  # after the assignment: what decides the job from now on aborts the transaction
        except Cancel:
            delivery.transaction = None
            raise
        return hold


class _Hold:
    """The transaction of one step. While it is open it is the job's transaction, so that whatever ends the job ends
    it."""

    def __init__(self, saver: StepSaver, delivery: Delivery, held: HandlerTransaction) -> None:
        self._saver, self._delivery, self._held = saver, delivery, held

    async def begin(self) -> Any:
        try:
            return await self._held.begin()
        except BaseException:
            self._delivery.transaction = None
            raise

    async def commit(self, name: str, value: bytes) -> None:
        try:
            refused = await self._held.commit_step(SaveStep(self._delivery.lease, name, value), self._saver.now())
        finally:
            self._delivery.transaction = None
        if isinstance(refused, _LOST):
            self._saver.lose_soon(self._delivery, refused)
            raise Cancel("lease lost")
        if isinstance(refused, TransactionFailed):
            raise refused.__cause__ or refused
        if refused is not None:
            raise refused

    async def rollback(self) -> None:
        try:
            await self._held.undo_step()
        finally:
            self._delivery.transaction = None


def check(delivery: Delivery) -> None:
    """Cancel if the outcome of a delivery is decided: whatever its handler does no longer counts."""
    if delivery.decided or delivery.left_behind:
        raise Cancel(delivery.stop_reason or "its outcome is decided")


def wait_for(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on a loop, and wait for it in another thread."""
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the loop is closed
        work.close()
        raise
    while True:
        try:
            return future.result(LOOP_CHECK_S)
        except concurrent.futures.TimeoutError:
            if future.done() or loop.is_closed():
                raise
