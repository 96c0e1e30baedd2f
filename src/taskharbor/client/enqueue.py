"""Storing jobs, step by step: enter the middleware → open the store → read the clock → prepare → store → emit.

The records are prepared when the store is open, because they carry the store's time (`StoreClock` follows it from then
on); and only once, so that a repeated send stores the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from taskharbor.client.budget import Budget, in_doubt
from taskharbor.client.enqueue_middleware import EnqueueMiddleware, PrepareRecords, middleware_around
from taskharbor.client.retries import with_retries
from taskharbor.client.sent_keys import SentKeys
from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.events import JobEnqueued, KeyConflict, Observers
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.lease import Enqueued


class Enqueuer:
    """Stores prepared records, and emits what became of them."""

    def __init__(self, clock: Clock, middleware: Sequence[EnqueueMiddleware], observers: Observers) -> None:
        self.on_stored: Callable[[Sequence[JobRecord]], None] | None = None
        self._clock = clock
        self.middleware = middleware
        self._observers = observers
        self._keys = SentKeys()

    def on_clock(self, clock: Clock) -> Enqueuer:
        """Another one for an empty store with this clock."""
        other = Enqueuer(clock, self.middleware, self._observers)
        other.on_stored = self.on_stored
        return other

    async def store(self, prepare: PrepareRecords, budget: Budget) -> list[Enqueued]:
        """Store records within a budget; retried while the store cannot be reached."""
        with middleware_around(self.middleware, prepare) as prepare:
            batch = _Batch(prepare, self._clock)
            budget.doubt = batch.in_doubt
            results = await with_retries(batch.send, budget)
        return self._emit_enqueued(batch.records, results)

    async def store_on(self, connection: Any, driver: Driver, prepare: PrepareRecords) -> list[Enqueued]:
        """Store records on the caller's own asynchronous connection: once, and within the caller's own limits."""
        enqueue_on = _sql_method(driver, "enqueue_on")
        now = self._clock.now()
        with middleware_around(self.middleware, prepare) as prepare:
            records = prepare(now)
            results = await enqueue_on(connection, records, now)
        return self._emit_enqueued(records, results)

    def store_on_sync(self, connection: Any, driver: Driver, prepare: PrepareRecords) -> list[Enqueued]:
        """The same on a synchronous connection."""
        enqueue_on = _sql_method(driver, "enqueue_on_sync")
        now = self._clock.now()
        with middleware_around(self.middleware, prepare) as prepare:
            records = prepare(now)
            results = enqueue_on(connection, records, now)
        return self._emit_enqueued(records, results)

    def _emit_enqueued(self, records: list[JobRecord], results: list[Enqueued]) -> list[Enqueued]:
        if self.on_stored is not None:
            self.on_stored(records)
        for record, id in self._keys.conflicts(records, results):
            self._observers.emit(KeyConflict(replace(record, id=id), ""))
        if self._observers.wants(JobEnqueued):
            for record, result in zip(records, results, strict=True):
                stored = replace(record, id=result.id) if result.id != record.id else record
                self._observers.emit(JobEnqueued(stored, "", result.existed))
        return results


class _Batch:
    """The records of one enqueue."""

    __slots__ = ("_clock", "_is_sent", "_prepare", "records")

    def __init__(self, prepare: PrepareRecords, clock: Clock) -> None:
        self._prepare = prepare
        self._clock = clock
        self._is_sent = False
        self.records: list[JobRecord] = []

    async def send(self, driver: Driver) -> list[Enqueued]:
        now = self._clock.now()
        if not self.records:
            self.records = self._prepare(now)
        is_repeated, self._is_sent = self._is_sent, True
        results = await driver.enqueue(self.records, now)
        return self._as_first_sent(results) if is_repeated else results

    def _as_first_sent(self, results: list[Enqueued]) -> list[Enqueued]:
        """A job that a repeated send finds under its own id is new: only the reply to the first send was lost."""
        pairs = zip(results, self.records, strict=True)
        return [Enqueued(r.id, False) if r.existed and r.id == record.id else r for r, record in pairs]

    def in_doubt(self) -> str:
        return in_doubt(self.records)


def _sql_method(driver: Driver, name: str) -> Any:
    method = getattr(driver, name, None)
    if method is None:
        raise TypeError(
            f"connection= needs a driver on a SQL store (sqlite:// or postgresql://), got {type(driver).__name__}; "
            "leave it out, or keep the jobs in that database"
        )
    return method
