"""What a case gets: drivers on one store, a moment to start from, and short methods for what cases do.

Names made here carry a prefix of the case's own, so that a case never meets the jobs of another, also on a store
that holds other queues. Times count in seconds from `now`, which lies in the past on purpose: a driver that reads
its own clock finds everything long due and long expired.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeAlias, TypeVar

from taskharbor.conformance.case import Skipped
from taskharbor.conformance.parts import ATTEMPTS, AUDIT, FIGURES, SCHEDULES
from taskharbor.drivers import (
    Ack,
    Cancelled,
    Driver,
    DriverError,
    Enqueued,
    Fail,
    JobInfo,
    JobNotFound,
    JobRecord,
    Lease,
    Outcome,
    Reserved,
    Retry,
    ScheduleChange,
    State,
    TaskHarborError,
)
from taskharbor.drivers.base import FIGURES_KEPT_FOR
from taskharbor.model.audit import AUDIT_KEPT_FOR

T = TypeVar("T")
Damage: TypeAlias = Callable[[Any, str, Any], Awaitable[None] | None]
"""Damage the record of a job as another program could; see `DriverConformance.damage`."""
DamageField: TypeAlias = Callable[[Any, str, str, str], Awaitable[bool] | bool]
"""Put a wrong value into one field of it; see `DriverConformance.damage_field`."""
SAMPLES = 40

BASE = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
MS = timedelta(milliseconds=1)
LEASE = 10.0
PATIENCE = 10.0
"""Seconds for which a case waits for a signal that should come at once."""


async def settled(value: Awaitable[T] | T) -> T:
    """The value of something that may be awaitable: hooks may be written either way."""
    return await value if inspect.isawaitable(value) else value


def lease_of(held: Lease | Reserved) -> Lease:
    """The lease of a reservation, or the lease itself."""
    return held.lease if isinstance(held, Reserved) else held


def ids_of(items: Iterable[Reserved | JobRecord | Enqueued | JobInfo]) -> list[str]:
    """The job ids of reservations, records, results or infos, in their order."""
    return [item.id if isinstance(item, JobRecord | Enqueued) else item.job.id for item in items]


def refusals(answers: Sequence[object]) -> list[str]:
    """The names of the errors in a batch's results, and `ok` for what was done."""
    return [type(answer).__name__ if isinstance(answer, TaskHarborError) else "ok" for answer in answers]


class Environment:
    """One case's world. `driver` is open; `exclusive` says whether the store holds nothing but the case's own jobs."""

    def __init__(
        self,
        driver: Driver,
        *,
        prefix: str = "",
        now: datetime = BASE,
        exclusive: bool = True,
        damage: Damage | None = None,
        damage_field: DamageField | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
        dsn: str = "",
    ) -> None:
        self.driver = driver
        self.lacks = driver.lacks()
        self.now = now
        self.exclusive = exclusive
        self.dsn = dsn
        self.prefix = prefix
        self.used: set[str] = set()
        self.queue = self.q("queue")
        self._damage = damage
        self._damage_field = damage_field
        self._samples = samples
        self._seed = seed
        self._made = 0
        self._siblings: list[Driver] = []

    # Names and times

    def name(self, text: str) -> str:
        """A name that belongs to this case."""
        return self.prefix + text

    def q(self, text: str) -> str:
        """The name of a queue of this case's own."""
        name = self.name(text)
        self.used.add(name)
        return name

    def long_name(self, size: int, character: str = "é") -> str:
        """A name of this many bytes, of characters of several bytes where they fit."""
        room = size - len(self.prefix.encode())
        many, rest = divmod(room, len(character.encode()))
        return self.prefix + character * many + "x" * rest

    def at(self, seconds: float = 0) -> datetime:
        """The moment this many seconds after the start, to the millisecond."""
        return self.now + timedelta(milliseconds=round(seconds * 1000))

    # Jobs

    def job(self, **fields: Any) -> JobRecord:
        """A record with an id of its own, greater than those made before it."""
        self._made += 1
        filled = {"id": self.name(f"{self._made:06d}"), "type": "work", "queue": self.queue, "created_at": self.now}
        return JobRecord(**{**filled, **fields})

    async def put(self, *jobs: JobRecord, at: float = 0) -> list[Enqueued]:
        """Enqueue jobs in one call."""
        return await self.driver.enqueue(jobs, self.at(at))

    async def add(self, *, at: float = 0, **fields: Any) -> JobRecord:
        """Make a job, enqueue it, and return the record as it was sent."""
        job = self.job(**fields)
        answers = await self.driver.enqueue([job], self.at(at))
        assert answers == [Enqueued(job.id, False)]
        return job

    async def add_many(self, count: int, *, at: float = 0, **fields: Any) -> list[JobRecord]:
        """The same for several jobs, in one call."""
        jobs = [self.job(**fields) for _ in range(count)]
        await self.driver.enqueue(jobs, self.at(at))
        return jobs

    # Reservations

    async def take(
        self,
        limit: int = 100,
        *,
        at: float = 0,
        queues: Sequence[str] | None = None,
        lease: float = LEASE,
        worker: str = "",
        by: Driver | None = None,
    ) -> list[Reserved]:
        """Reserve up to `limit` jobs of the case's queue, or of those named."""
        names = [self.queue] if queues is None else list(queues)
        span = timedelta(milliseconds=round(lease * 1000))
        return await (by or self.driver).reserve(names, self.at(at), span, limit, worker)

    async def take_one(self, **how: Any) -> Reserved:
        """Reserve one job, which must be there."""
        taken = await self.take(1, **how)
        assert len(taken) == 1, "reserve returned nothing although a job is runnable"
        return taken[0]

    async def taken_ids(self, limit: int = 100, **how: Any) -> list[str]:
        """The ids of what `take` reserves, in the order in which it came."""
        return ids_of(await self.take(limit, **how))

    async def drain(self, *, at: float = 0, **how: Any) -> list[str]:
        """Reserve and ack one job at a time until nothing is runnable; return the ids in the order of their starts."""
        order = []
        while taken := await self.take(1, at=at, **how):
            await self.ack(taken[0], at=at)
            order.append(taken[0].job.id)
            assert len(order) < 10_000, "reserve never ends"
        return order

    # Outcomes

    async def settle(self, *outcomes: Outcome, at: float = 0) -> list[TaskHarborError | None]:
        """Settle a batch; return its results."""
        return await self.driver.settle(outcomes, self.at(at))

    async def done(self, outcome: Outcome, at: float = 0) -> None:
        """Settle one outcome, which must be accepted."""
        answers = await self.driver.settle([outcome], self.at(at))
        assert answers == [None], f"a valid outcome was refused: {refusals(answers)}"

    async def refused(self, outcome: Outcome, error: type[TaskHarborError], at: float = 0) -> None:
        """Settle one outcome, which must be refused with this error."""
        answers = await self.driver.settle([outcome], self.at(at))
        assert refusals(answers) == [error.__name__]

    async def refused_ack(self, held: Reserved, at: float = 0) -> None:
        """A stale worker's ack, which must be refused."""
        answers = await self.driver.settle([Ack(held.lease)], self.at(at))
        assert isinstance(answers[0], DriverError), "a stale ack was accepted"

    async def ack(self, held: Lease | Reserved, at: float = 0, result: bytes | None = None) -> None:
        await self.done(Ack(lease_of(held), result), at)

    async def retry(
        self, held: Reserved, at: float = 0, run_at: float | None = None, attempts: int | None = None
    ) -> None:
        """Retry; `attempts` is one more unless given."""
        when = None if run_at is None else self.at(run_at)
        await self.done(Retry(held.lease, when, held.job.attempts + 1 if attempts is None else attempts), at)

    async def fail(self, held: Reserved, at: float = 0, reason: str = "broken") -> None:
        await self.done(Fail(held.lease, reason, held.job.attempts + 1, self.at(at)), at)

    async def drop(self, held: Reserved, at: float = 0, reason: str = "unwanted") -> None:
        """Settle as cancelled."""
        await self.done(Cancelled(held.lease, reason), at)

    async def extend(
        self, *held: Lease | Reserved, at: float = 0, lease: float = LEASE, notes: Mapping[str, bytes] | None = None
    ) -> list[Lease | TaskHarborError]:
        """Extend leases. `notes` need a driver with the feature `attempts`."""
        span, leases = timedelta(milliseconds=round(lease * 1000)), [lease_of(item) for item in held]
        if notes is None:
            return list(await self.driver.extend(leases, self.at(at), span))
        return list(await self.driver.extend(leases, self.at(at), span, notes))

    async def dead(self, *, at: float = 0, **fields: Any) -> JobRecord:
        """A job in the dead letter queue. The case's queue must hold nothing runnable."""
        job = await self.add(at=at, **fields)
        await self.fail(await self.take_one(at=at, queues=[job.queue]), at=at)
        return job

    async def finished(self, *, at: float = 0, **fields: Any) -> JobRecord:
        """A done job. The case's queue must hold nothing runnable."""
        job = await self.add(at=at, **fields)
        await self.ack(await self.take_one(at=at, queues=[job.queue]), at=at)
        return job

    # Reading

    def ran(self, at: float = 0, worker: str = "") -> dict[str, Any]:
        """What a reservation writes into the record besides its deliveries."""
        return {"began_at": self.at(at), "ran_on": worker} if ATTEMPTS not in self.lacks else {}

    async def info(self, job: JobRecord | Reserved | str, at: float = 0) -> JobInfo:
        id = job if isinstance(job, str) else job.id if isinstance(job, JobRecord) else job.job.id
        return await self.driver.inspect(id, self.at(at))

    async def state(self, job: JobRecord | Reserved | str, at: float = 0) -> State:
        return (await self.info(job, at)).state

    async def states(self, *jobs: JobRecord | Reserved | str, at: float = 0) -> list[str]:
        return [str(await self.state(job, at)) for job in jobs]

    async def counts(self, at: float = 0, queue: str | None = None) -> dict[str, int]:
        """The counts of one of the case's queues."""
        found = (await self.driver.counts(self.at(at))).get(queue or self.queue, {})
        return {str(state): number for state, number in found.items()}

    async def all_ids(self, at: float = 0, **filters: Any) -> list[str]:
        """The ids of all jobs that a listing of the case's queue returns."""
        page = await self.driver.list(now=self.at(at), **{"queue": self.queue, "limit": 1000, **filters})
        return ids_of(page.items)

    async def gone(self, job: JobRecord | str) -> bool:
        try:
            await self.info(job)
        except JobNotFound:
            return True
        return False

    # More drivers

    async def sibling(self) -> Driver:
        """Another open driver on the same store; closed at the end of the case."""
        other = self.driver.sibling()
        await other.open()
        self._siblings.append(other)
        return other

    async def siblings(self, count: int) -> list[Driver]:
        return [await self.sibling() for _ in range(count)]

    async def in_threads(self, work: Sequence[Callable[[Driver], Awaitable[T]]]) -> list[T]:
        """Run each function in a thread with an event loop and a sibling of its own; return their results in order."""

        def one(function: Callable[[Driver], Awaitable[T]]) -> T:
            async def live() -> T:
                async with opened(self.driver.sibling()) as driver:
                    return await function(driver)

            return asyncio.run(live())

        return await asyncio.gather(*(asyncio.to_thread(one, function) for function in work))

    # Hooks and the end

    async def damage(self, id: str, how: str) -> None:
        """Damage a record as another program could; skips the case if the suite has no `damage`."""
        if self._damage is None:
            self.skip("no damage hook was given")
        await settled(self._damage(self.driver, id, how))

    async def damage_field(self, id: str, field: str, kind: str) -> bool:
        """Put a wrong value into one field of a record; False if the store cannot hold such a value there."""
        if self._damage_field is None:
            self.skip("no damage_field hook was given")
        return await settled(self._damage_field(self.driver, id, field, kind))

    def draw(self, things: Sequence[T]) -> list[T]:
        """Some of these, or all, in their order: as many as the suite is set to try."""
        chosen = random.Random(self._seed).sample(range(len(things)), min(self._samples, len(things)))
        return [things[number] for number in sorted(chosen)]

    def skip(self, reason: str) -> NoReturn:
        """End the case here, because it cannot be run on this store."""
        raise Skipped(reason)

    async def close(self, *, remove: bool = False) -> None:
        """Close the siblings; with `remove`, take away the jobs and the pauses that the case made."""
        for other in self._siblings:
            await other.close()
        if remove:
            await self._remove()

    async def _remove(self) -> None:
        late = self.now + timedelta(days=1)
        if FIGURES not in self.lacks:
            await self.driver.add_figures([], late + FIGURES_KEPT_FOR)
        if AUDIT not in self.lacks:
            for _ in range(20):  # a call forgets no more than 1,000 entries
                if not (await self.driver.audit(until=late, limit=1)).items:
                    break
                await self.driver.put_audit([], late + AUDIT_KEPT_FOR)
        if SCHEDULES not in self.lacks:
            for queue in sorted(self.used):
                await self._remove_schedules(queue)
        left = sorted(self.used.intersection(await self.driver.queues()))
        for queue in left:
            await self.driver.resume(queue)
        removed = True
        while removed:  # repeated while a job goes: a dependency goes after its dependents
            removed = False
            for queue in left:
                ids = ids_of((await self.driver.list(now=late, queue=queue, limit=1000)).items)[::-1]
                await self.driver.cancel(ids, late)
                removed |= None in await self.driver.delete(ids)

    async def _remove_schedules(self, queue: str) -> None:
        while rows := (await self.driver.schedules(queue=queue, limit=500)).items:
            changes = [ScheduleChange(name=row.name, expect=row.revision, to=None) for row in rows]
            if True not in await self.driver.change_schedules(changes, self.now):
                break


@asynccontextmanager
async def opened(driver: Driver) -> AsyncIterator[Driver]:
    """The driver, opened and closed around a block."""
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()
