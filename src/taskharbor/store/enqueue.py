"""Storing jobs, step by step: enter the middleware → open the store → read the clock → prepare → store → emit.

The records are prepared when the store is open, because they carry the store's time (`StoreClock` follows it from then
on); and only once, so that a repeated send stores the same ids.

Enqueue middleware are context managers around this, through whose hands the records pass. The first in the list is
outermost. Each one is entered before the records are prepared, and left when the store has replied or failed; what it
raises reaches the caller. It may change what a record carries, never which records there are.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import WrongConnection
from taskharbor.model.events import JobEnqueued, KeyConflict, Observers
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.lease import Enqueued

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

PrepareRecords: TypeAlias = Callable[[datetime], list[JobRecord]]
"""Returns the records of one enqueue, given the store's time."""
Stamp: TypeAlias = Callable[[list[JobRecord]], list[JobRecord]]
"""Returns the records as they are to be stored: the same number, in the same order, under the same ids."""
EnqueueMiddleware: TypeAlias = Callable[[], AbstractContextManager[Stamp]]
"""A function without parameters that returns a context manager, entered around the storing of jobs. Entering it gives a
`Stamp`, which may change what the records carry."""

MAX_REMEMBERED_KEYS = 1024

_all: weakref.WeakSet[SentKeys] = weakref.WeakSet()


class Enqueuer:
    """Stores prepared records, and emits what became of them."""

    def __init__(self, clock: Clock, middleware: Sequence[EnqueueMiddleware], observers: Observers) -> None:
        self.on_stored: Callable[[Sequence[JobRecord]], None] | None = None
        self._clock = clock
        self.middleware = middleware
        self._observers = observers
        self._keys = SentKeys()

    def on_clock(self, clock: Clock) -> Enqueuer:
        """A copy of this Enqueuer with another clock and no remembered keys."""
        other = Enqueuer(clock, self.middleware, self._observers)
        other.on_stored = self.on_stored
        return other

    async def store(self, call: StoreCall, prepare: PrepareRecords) -> list[Enqueued]:
        """Store records; retried while the store cannot be reached."""
        with middleware_around(self.middleware, prepare) as prepare:
            batch = _Batch(prepare, self._clock)
            call.doubt = batch.in_doubt
            results = await call.ask(batch.send)
        return self._emit_enqueued(batch.records, results)

    async def store_on(self, connection: Any, driver: Driver, prepare: PrepareRecords) -> list[Enqueued]:
        """Store records on the caller's own asynchronous connection: once, and within the caller's own limits. If it
        leads to another database than the store, they go to the outbox there."""
        now = self._clock.now()
        with middleware_around(self.middleware, prepare) as prepare:
            records = prepare(now)
            try:
                results: list[Enqueued] = await _sql_method(driver, "enqueue_on")(connection, records, now)
            except (WrongConnection, TypeError) as refusal:
                from taskharbor.drivers.within import within
                from taskharbor.outbox.rows import leave

                results = await leave(within, connection, records, now, refusal)
        return self._emit_enqueued(records, results)

    def store_on_sync(self, connection: Any, driver: Driver, prepare: PrepareRecords) -> list[Enqueued]:
        """The same on a synchronous connection."""
        now = self._clock.now()
        with middleware_around(self.middleware, prepare) as prepare:
            records = prepare(now)
            try:
                results: list[Enqueued] = _sql_method(driver, "enqueue_on_sync")(connection, records, now)
            except (WrongConnection, TypeError) as refusal:
                from taskharbor.drivers.connections import at_once
                from taskharbor.drivers.within import within_now
                from taskharbor.outbox.rows import leave

                results = at_once(leave(within_now, connection, records, now, refusal))
        return self._emit_enqueued(records, results)

    def _emit_enqueued(self, records: list[JobRecord], results: list[Enqueued]) -> list[Enqueued]:
        for record, id in self._keys.conflicts(records, results):
            self._observers.emit(KeyConflict(replace(record, id=id), ""))
        if self._observers.wants(JobEnqueued):
            for record, result in zip(records, results, strict=True):
                stored = replace(record, id=result.id) if result.id != record.id else record
                self._observers.emit(JobEnqueued(stored, "", result.existed))
        if self.on_stored is not None:
            self.on_stored(records)
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
        """What is unknown if the reply is lost, and what to do about it."""
        first, *others = self.records
        job, also, key = ("jobs", f" and the {len(others)} other(s)", "keys") if others else ("job", "", "key")
        unknown = f"The {job} may or may not be stored; harbor.job({first.id!r}).status() says it later"
        if all(record.idempotency_key is not None for record in self.records):
            return f"{unknown}. Enqueue again with the same idempotency {key}: it is stored once"
        return (
            f"{unknown}. Enqueued again it may be stored twice: give it{also} an idempotency_key, then it can always "
            "be sent again"
        )


def _sql_method(driver: Driver, name: str) -> Any:
    method = getattr(driver, name, None)
    if method is None:
        raise TypeError(
            f"connection= needs a driver on a SQL store (sqlite:// or postgresql://), got {type(driver).__name__}; "
            "leave it out, keep the jobs in that database, or make an outbox there: harbor.outbox.create(connection)"
        )
    return method


def middleware_around(
    middleware: Sequence[EnqueueMiddleware], prepare: PrepareRecords
) -> AbstractContextManager[PrepareRecords]:
    """Enter all of the middleware; `prepare`, with their changes applied to what it returns."""
    return _entered(middleware, prepare) if middleware else nullcontext(prepare)


@contextmanager
def _entered(middleware: Sequence[EnqueueMiddleware], prepare: PrepareRecords) -> Iterator[PrepareRecords]:
    with ExitStack() as entered:
        stamps = [entered.enter_context(layer()) for layer in middleware]

        def prepare_stamped(now: datetime) -> list[JobRecord]:
            records = prepare(now)
            ids = [record.id for record in records]
            for stamp in reversed(stamps):  # the innermost sees them first, as it would the result of a call
                records = stamp(records)
            if [record.id for record in records] != ids:
                raise ValueError("enqueue middleware: expected the same jobs in the same order, got others")
            return records

        yield prepare_stamped


class SentKeys:
    """The newest idempotency keys that one client has sent, to find one that was sent again with other arguments.

    A store returns that it knows a key, not with which arguments, so it cannot tell this mistake from a second click.
    So a hash of the job is remembered for each key. A key that the store knows and that was sent from here with another
    job is a conflict. Keys of other processes are not seen. It costs no call to the store, and nothing for jobs without
    a key. Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], int] = {}
        _all.add(self)

    def conflicts(self, records: Sequence[JobRecord], results: Sequence[Enqueued]) -> list[tuple[JobRecord, str]]:
        """The jobs that were not stored because another job has their key, each with the id of that job."""
        conflicts = []
        for record, result in zip(records, results, strict=True):
            if record.idempotency_key is not None:
                place, mark = (record.queue, record.idempotency_key), hash((record.type, record.payload))
                with self._lock:
                    known = self._sent.get(place)
                    if known is None or not result.existed:
                        self._remember(place, mark)
                    elif known != mark:
                        conflicts.append((record, result.id))
        return conflicts

    def forget_lock(self) -> None:
        """In a forked child: a thread that holds the lock is the parent's."""
        self._lock = threading.Lock()

    def _remember(self, place: tuple[str, str], mark: int) -> None:
        self._sent.pop(place, None)  # so that it counts as new
        self._sent[place] = mark
        if len(self._sent) > MAX_REMEMBERED_KEYS:
            del self._sent[next(iter(self._sent))]


def _forget_locks() -> None:
    for keys in list(_all):
        keys.forget_lock()


os.register_at_fork(after_in_child=_forget_locks)
