"""Two drivers in step: the one under test and the memory driver get the same calls, and must answer alike.

Where the contract leaves a choice (whose turn it is in a reservation), the driver under test chooses, and the memory
driver follows with `replay`, which objects to a choice that was not legal. After each step all jobs are compared.
Errors are compared by their type. The oracle watches the driver under test alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from taskharbor.conformance.oracle import Oracle
from taskharbor.drivers import (
    Ack,
    Driver,
    Fail,
    JobInfo,
    JobRecord,
    Lease,
    Outcome,
    TaskHarborError,
)
from taskharbor.drivers.memory import MemoryDriver

T = TypeVar("T")


@dataclass(frozen=True)
class Delivery:
    """One reservation, as each of the two granted it: the tokens differ, everything else does not."""

    subject: Lease
    model: Lease


def kinds(answers: Sequence[object]) -> list[str]:
    """Answers by their type: an error's name, `ok` for what was done."""
    return [type(answer).__name__ if isinstance(answer, TaskHarborError) else "ok" for answer in answers]


async def outcome_of(call: Awaitable[T]) -> T | TaskHarborError:
    """The answer, or the error that was raised."""
    try:
        return await call
    except TaskHarborError as error:
        return error


class Twins:
    """The driver under test, the memory driver beside it, and the oracle."""

    def __init__(self, subject: Driver, queues: Sequence[str], flows: Sequence[str], now: datetime) -> None:
        self.subject = subject
        self.model = MemoryDriver("memory://")
        self.oracle = Oracle()
        self.queues = list(queues)
        self.flows = list(flows)
        self.now = now
        self.deliveries: list[Delivery] = []
        self.ids: list[str] = []  # every id ever tried, stored or not
        self._ended = False

    async def enqueue(self, jobs: Sequence[JobRecord]) -> None:
        self.ids += [job.id for job in jobs if job.id not in self.ids]
        expected = await outcome_of(self.model.enqueue(jobs, self.now))
        found = await outcome_of(self.subject.enqueue(jobs, self.now))
        if isinstance(expected, TaskHarborError) or isinstance(found, TaskHarborError):
            assert type(found) is type(expected), f"enqueue: {found!r}, expected {expected!r}"
            return
        assert found == expected
        self.oracle.enqueued(jobs, found)

    async def reserve(self, queues: Sequence[str], limit: int, lease_for: timedelta, worker: str) -> None:
        taken = await self.subject.reserve(queues, self.now, lease_for, limit, worker)
        assert len(taken) <= limit
        self.oracle.reserved(taken, self.now, lease_for, worker)
        assert {item.job.queue for item in taken} <= set(queues)
        for queue in queues:
            mine = [item for item in taken if item.job.queue == queue]
            followed = await self.model.replay(queue, [item.job.id for item in mine], self.now, lease_for, worker)
            for item, other in zip(mine, followed, strict=True):
                assert item.job == other.job
                assert item.lease.expires_at == other.lease.expires_at
                self.deliveries.append(Delivery(item.lease, other.lease))
            if len(taken) < limit:
                assert not await self.model.runnable(queue, self.now), f"reserve left a runnable job in {queue}"

    async def extend(self, deliveries: Sequence[Delivery], lease_for: timedelta) -> None:
        expected = await self.model.extend([item.model for item in deliveries], self.now, lease_for)
        found = await self.subject.extend([item.subject for item in deliveries], self.now, lease_for)
        for delivery, answer in zip(deliveries, found, strict=True):
            self.oracle.extended(delivery.subject, answer, self.now, lease_for)
        assert kinds(found) == kinds(expected)
        ends = [[item.expires_at for item in answers if isinstance(item, Lease)] for answers in (found, expected)]
        assert ends[0] == ends[1]

    async def settle(self, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]) -> None:
        """The outcomes carry any lease; each twin gets its own in its place."""
        pairs = list(zip(deliveries, outcomes, strict=True))
        expected = await self.model.settle([replace(item, lease=held.model) for held, item in pairs], self.now)
        found = await self.subject.settle([replace(item, lease=held.subject) for held, item in pairs], self.now)
        assert len(found) == len(pairs)
        for (held, item), answer in zip(pairs, found, strict=True):
            applied = self.oracle.settled(replace(item, lease=held.subject), answer, self.now)
            if applied and isinstance(item, Ack | Fail):
                await self._spawned(item.spawn)
        assert kinds(found) == kinds(expected), f"settle: {kinds(found)}, expected {kinds(expected)}"

    async def _spawned(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            if job.id not in self.ids:
                self.ids.append(job.id)
            there = isinstance(await outcome_of(self.subject.inspect(job.id, self.now)), JobInfo)
            if there and job.id not in self.oracle.jobs:
                self.oracle.stored(job)

    async def release(self, worker: str, keep: Sequence[Delivery]) -> None:
        expected = await self.model.release(worker, self.now, [item.model.token for item in keep])
        tokens = [item.subject.token for item in keep]
        found = await self.subject.release(worker, self.now, tokens)
        self.oracle.released(worker, self.now, tokens, found)
        assert found == expected

    async def pause(self, queue: str, on: bool) -> None:
        for driver in (self.model, self.subject):
            await (driver.pause(queue) if on else driver.resume(queue))
        assert await self.subject.is_paused(queue) is on

    async def cancel(self, ids: Sequence[str]) -> None:
        self._ended = True
        found, expected = await self.subject.cancel(ids, self.now), await self.model.cancel(ids, self.now)
        assert kinds(found) == kinds(expected), f"cancel: {kinds(found)}, expected {kinds(expected)}"

    async def requeue(self, ids: Sequence[str], run_at: datetime | None, reset_attempts: bool) -> None:
        expected = await self.model.requeue(ids, self.now, run_at, reset_attempts)
        found = await self.subject.requeue(ids, self.now, run_at, reset_attempts)
        assert kinds(found) == kinds(expected), f"requeue: {kinds(found)}, expected {kinds(expected)}"
        for id, answer in zip(ids, found, strict=True):
            if answer is None:
                self.oracle.requeued(id, reset_attempts)

    async def delete(self, ids: Sequence[str]) -> None:
        found, expected = await self.subject.delete(ids), await self.model.delete(ids)
        assert kinds(found) == kinds(expected), f"delete: {kinds(found)}, expected {kinds(expected)}"
        for id, answer in zip(ids, found, strict=True):
            if answer is None:
                self.oracle.removed(id)

    async def prune(self, before: datetime) -> None:
        """Without a limit that counts: which of many go first is the driver's choice."""
        expected, found = await self.model.prune(before, 10_000), await self.subject.prune(before, 10_000)
        assert found == expected, f"prune took {found}, expected {expected}"
        for id in list(self.oracle.jobs):
            if isinstance(await outcome_of(self.model.inspect(id, self.now)), TaskHarborError):
                self.oracle.removed(id)

    async def cancel_flow(self, flow: str) -> None:
        self._ended = True
        expected = await self.model.cancel_flow(flow, self.now)
        found = await self.subject.cancel_flow(flow, self.now)
        assert found == expected, f"cancel_flow answered {found}, expected {expected}"

    # Comparing

    async def compare(self) -> None:
        """All jobs, as a listing of each queue reads."""
        infos: list[JobInfo] = []
        for queue in self.queues:
            found = await self._listed(self.subject, queue)
            expected = await self._listed(self.model, queue)
            for mine, other in zip(found, expected, strict=False):
                assert mine == other, f"{other.job.id}: {differences(mine, other)}"
            assert len(found) == len(expected), f"{queue} lists {len(found)} jobs, expected {len(expected)}"
            infos += found
        self.oracle.read(infos, self.now, self._ended)
        self._ended = False

    async def _listed(self, driver: Driver, queue: str) -> list[JobInfo]:
        page = await driver.list(now=self.now, queue=queue, limit=1000)
        assert page.cursor is None
        return list(page.items)

    async def compare_all(self) -> None:
        """Everything that can be read."""
        await self.compare()
        found, expected = await self.subject.counts(self.now), await self.model.counts(self.now)
        assert {queue: found.get(queue, {}) for queue in self.queues} == {
            queue: expected.get(queue, {}) for queue in self.queues
        }
        names = [name for name in await self.subject.queues() if name in self.queues]
        assert names == await self.model.queues()
        assert await self.subject.results(self.ids) == await self.model.results(self.ids)
        for id in self.ids[-8:]:
            mine = await outcome_of(self.subject.inspect(id, self.now))
            other = await outcome_of(self.model.inspect(id, self.now))
            assert mine == other if isinstance(other, JobInfo) else type(mine) is type(other)
        for flow in self.flows:
            assert _flow(await outcome_of(self.subject.flow(flow, self.now))) == _flow(
                await outcome_of(self.model.flow(flow, self.now))
            )


def _flow(answer: Any) -> Any:
    if isinstance(answer, TaskHarborError):
        return type(answer)
    return replace(answer, edges=tuple(sorted(answer.edges)))


def differences(found: JobInfo, expected: JobInfo) -> str:
    """What of a job reads otherwise, field by field."""
    lines = [
        f"{name} is {getattr(one, name)!r}, expected {getattr(other, name)!r}"
        for one, other in ((found, expected), (found.job, expected.job))
        for name in one.__struct_fields__
        if name != "job" and getattr(one, name) != getattr(other, name)
    ]
    return "; ".join(lines) or "nothing"
