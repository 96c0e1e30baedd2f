"""A driver and the model of the contract, side by side: both get the same calls, and must return the same.

Where the contract leaves a choice (which job a reservation takes next), the driver chooses, and the model follows or
objects. After each step all jobs are compared. Errors are compared by their class. The oracle watches the driver alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from taskharbor.conformance.model import ContractModel
from taskharbor.conformance.model_store import Refusal
from taskharbor.conformance.oracle import Oracle
from taskharbor.conformance.parts import HEADS, SCHEDULES, UPCOMING
from taskharbor.drivers import (
    Ack,
    Amend,
    Driver,
    Enqueued,
    Fail,
    FlowInfo,
    FlowStatus,
    InvalidJob,
    JobInfo,
    JobNotFound,
    JobRecord,
    Lease,
    Outcome,
    ScheduleChange,
    Seen,
    StoredAudit,
    StoredSchedule,
    TaskHarborError,
)

T = TypeVar("T")


def classes(results: Sequence[object]) -> list[Refusal | None]:
    """The results of a call on several items: the class of each error, None for what was done."""
    return [type(result) if isinstance(result, TaskHarborError) else None for result in results]


async def result_of(call: Awaitable[T]) -> T | TaskHarborError:
    """The result, or the error that was raised."""
    try:
        return await call
    except TaskHarborError as error:
        return error


class Twins:
    """The driver under test, the model beside it, and the oracle."""

    def __init__(self, subject: Driver, queues: Sequence[str], flows: Sequence[str], now: datetime) -> None:
        self.subject = subject
        self.lacks = subject.lacks()
        self.model = ContractModel(lacks=self.lacks, retention=subject.retention)
        self.oracle = Oracle(self.lacks)
        self.queues = list(queues)
        self.flows = list(flows)
        self.now = now
        self.deliveries: list[Lease] = []
        """Every lease as it was granted, the newest last."""
        self.ids: list[str] = []
        """Every id that was tried, stored or not."""
        self.entries: set[str] = set()
        """The ids of all entries of the audit."""
        self.schedules: set[str] = set()
        """The names of all schedules."""
        self._last_due: tuple[str | None, tuple[datetime, str] | None] = (None, None)
        """The cursor of the last page of due schedules, and the place where it stands."""
        self._ended = False

    async def enqueue(self, jobs: Sequence[JobRecord]) -> None:
        self.ids += [job.id for job in jobs if job.id not in self.ids]
        expected: list[Enqueued] | None
        try:
            expected = self.model.enqueue(jobs, self.now)
        except InvalidJob:
            expected = None
        found = await result_of(self.subject.enqueue(jobs, self.now))
        if expected is None or isinstance(found, TaskHarborError):
            as_expected = expected is None and type(found) is InvalidJob
            assert as_expected, f"enqueue: {found!r}, expected {expected or InvalidJob!r}"
            return
        assert found == expected
        self.oracle.enqueued(jobs, found)

    async def reserve(self, queues: Sequence[str], limit: int, lease_for: timedelta, worker: str) -> None:
        taken = await self.subject.reserve(queues, self.now, lease_for, limit, worker)
        self.oracle.reserved(taken, self.now, lease_for, worker)
        self.model.follow(taken, queues, self.now, self.now + lease_for, limit, worker)
        self.deliveries += [each.lease for each in taken]

    async def extend(
        self, leases: Sequence[Lease], lease_for: timedelta, notes: Mapping[str, bytes] | None = None
    ) -> None:
        """`notes` only where the driver offers them."""
        expected = self.model.extend(leases, self.now, lease_for, notes)
        if notes is None:
            found = await self.subject.extend(leases, self.now, lease_for)
        else:
            found = await self.subject.extend(leases, self.now, lease_for, notes)
        for lease, result in zip(leases, found, strict=True):
            self.oracle.extended(lease, result, self.now, lease_for)
        assert [type(each) if isinstance(each, TaskHarborError) else each for each in found] == expected

    async def save(self, lease: Lease, name: str, value: bytes) -> None:
        expected = self.model.save(lease, name, value, self.now)
        found = await result_of(self.subject.save(lease, name, value, self.now))
        assert classes([found]) == [expected], f"save: {found!r}, expected {expected}"

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        expected = self.model.settle(outcomes, self.now)
        found = await self.subject.settle(outcomes, self.now)
        assert len(found) == len(outcomes)
        for outcome, result in zip(outcomes, found, strict=True):
            applied = self.oracle.settled(outcome, result, self.now)
            if applied and isinstance(outcome, Ack | Fail):
                await self._spawned(outcome.spawn)
        assert classes(found) == expected, f"settle: {classes(found)}, expected {expected}"

    async def _spawned(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            if job.id not in self.ids:
                self.ids.append(job.id)
            there = isinstance(await result_of(self.subject.inspect(job.id, self.now)), JobInfo)
            if there and job.id not in self.oracle.jobs:
                self.oracle.stored(job)

    async def release(self, worker: str, keep: Sequence[Lease]) -> None:
        tokens = [lease.token for lease in keep]
        expected = self.model.release(worker, self.now, tokens)
        found = await self.subject.release(worker, self.now, tokens)
        self.oracle.released(worker, self.now, tokens, found)
        assert found == expected

    async def pause(self, queue: str, on: bool) -> None:
        await (self.subject.pause(queue) if on else self.subject.resume(queue))
        (self.model.paused.add if on else self.model.paused.discard)(queue)
        assert await self.subject.is_paused(queue) is on

    async def cancel(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> None:
        """`seen` only where the driver offers it, here and below."""
        self._ended = True
        expected = self.model.cancel(ids, self.now, seen)
        if seen is None:
            found = await self.subject.cancel(ids, self.now)
        else:
            found = await self.subject.cancel(ids, self.now, seen)
        assert classes(found) == expected, f"cancel: {classes(found)}, expected {expected}"

    async def requeue(
        self, ids: Sequence[str], run_at: datetime | None, reset_attempts: bool, seen: Sequence[Seen] | None = None
    ) -> None:
        expected = self.model.requeue(ids, self.now, run_at, reset_attempts, seen)
        if seen is None:
            found = await self.subject.requeue(ids, self.now, run_at, reset_attempts)
        else:
            found = await self.subject.requeue(ids, self.now, run_at, reset_attempts, seen)
        assert classes(found) == expected, f"requeue: {classes(found)}, expected {expected}"
        for id, result in zip(ids, found, strict=True):
            if result is None:
                self.oracle.requeued(id, reset_attempts)

    async def amend(self, changes: Sequence[Amend]) -> None:
        found, expected = await self.subject.amend(changes, self.now), self.model.amend(changes, self.now)
        assert classes(found) == expected, f"amend: {classes(found)}, expected {expected}"

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> None:
        found = await (self.subject.delete(ids) if seen is None else self.subject.delete(ids, seen))
        expected = self.model.delete(ids, seen)
        assert classes(found) == expected, f"delete: {classes(found)}, expected {expected}"
        for id, result in zip(ids, found, strict=True):
            if result is None:
                self.oracle.removed(id)

    async def prune(self, before: datetime) -> None:
        """With a limit that is never reached: which of many go first is the driver's choice."""
        found, expected = await self.subject.prune(before, 10_000), self.model.prune(before)
        assert found == expected, f"prune removed {found} jobs, expected {expected}"
        for id in list(self.oracle.jobs):
            if id not in self.model.jobs:
                self.oracle.removed(id)

    async def cancel_flow(self, flow: str) -> None:
        self._ended = True
        found, expected = await self.subject.cancel_flow(flow, self.now), self.model.cancel_flow(flow, self.now)
        assert found == expected, f"cancel_flow cancelled {found} jobs, expected {expected}"

    async def put_audit(self, entries: Sequence[StoredAudit]) -> None:
        self.entries |= {entry.id for entry in entries}
        self.model.put_audit(entries, self.now)
        await self.subject.put_audit(entries, self.now)

    async def read_audit(self, limit: int, **asked: Any) -> None:
        """The entries of this walk; a store that is shared may have others."""
        found: list[StoredAudit] = []
        cursor = None
        while True:
            page = await self.subject.audit(limit=limit, cursor=cursor, **asked)
            assert len(page.items) <= limit
            found, cursor = [*found, *page.items], page.cursor
            if cursor is None:
                break
        mine, expected = [entry for entry in found if entry.id in self.entries], self.model.audit(**asked)
        assert mine == expected, f"{asked}: {mine}, expected {expected}"

    async def change_schedules(self, changes: Sequence[ScheduleChange]) -> None:
        self.schedules |= {change.name for change in changes}
        found = await self.subject.change_schedules(changes, self.now)
        expected = self.model.change_schedules(changes, self.now)
        assert found == expected, f"change_schedules: {found}, expected {expected}"
        for change, happened in zip(changes, found, strict=True):
            if happened:
                await self._spawned(change.jobs)
        await self.list_schedules(10, names=sorted(self.schedules))

    async def list_schedules(self, limit: int, **asked: Any) -> None:
        """Those of this walk; a store that is shared may have others."""
        found: list[StoredSchedule] = []
        cursor = None
        while True:
            page = await self.subject.schedules(limit=limit, cursor=cursor, **asked)
            assert len(page.items) <= limit
            found, cursor = [*found, *page.items], page.cursor
            if cursor is None:
                break
        mine = [row for row in found if row.name in self.schedules]
        expected = self.model.listed_schedules(asked.get("names", self.schedules), asked.get("queue"))
        assert mine == expected, f"{asked}: {mine}, expected {expected}"

    async def read_due(self, queues: Sequence[str], limit: int, *, again: bool = False) -> None:
        """What is due, page by page, and what comes next. `again`: from where the page before ended."""
        cursor, after = self._last_due if again else (None, None)
        latest = self.model.next_due(queues, self.now)
        while True:
            page = await self.subject.due_schedules(queues, self.now, limit=limit, cursor=cursor)
            items, expected = list(page.items), self.model.due_schedules(queues, self.now, after)
            assert len(items) <= limit
            assert items == expected[: len(items)], f"behind {after} are due {items}, expected {expected}"
            assert page.upcoming is None or page.upcoming > self.now
            late = latest is not None and (page.upcoming is None or page.upcoming > latest)
            assert not late, f"the next schedule is due at {latest}, the page says {page.upcoming}"
            if page.cursor is None:
                assert len(items) == len(expected), f"behind {after} are due {expected}, the pages end with {items}"
                return
            cursor = page.cursor
            if items and items[-1].next_at is not None:
                after = items[-1].next_at, items[-1].name
            self._last_due = cursor, after

    # Comparing

    async def compare(self) -> None:
        """All jobs, as a listing of each queue reads."""
        infos: list[JobInfo] = []
        for queue in self.queues:
            page = await self.subject.list(now=self.now, queue=queue, limit=1000)
            assert page.cursor is None
            expected = self.model.listing(self.now, queue)
            for mine, other in zip(page.items, expected, strict=False):
                assert mine == other, f"{other.job.id}: {differences(mine, other)}"
            assert len(page.items) == len(expected), f"{queue} lists {len(page.items)} jobs, expected {len(expected)}"
            infos += page.items
        self.oracle.read(infos, self.now, self._ended)
        self._ended = False
        for n in (0, 3) if HEADS not in self.lacks else ():
            for head in await self.subject.heads(self.queues, self.now, n):
                self.model.check_head(head, self.now, n)
        if UPCOMING not in self.lacks:
            await self._upcoming()

    async def _upcoming(self) -> None:
        found, latest = await self.subject.upcoming(self.queues, self.now), self.model.upcoming(self.queues, self.now)
        assert found is None or found > self.now, f"upcoming returned {found}, and it is {self.now}"
        late = latest is not None and (found is None or found > latest)
        assert not late, f"upcoming returned {found}, but {latest} is when more may be reserved"

    async def search(self, limit: int, **asked: Any) -> None:
        """Listings with filters, page by page, and counts with a cap."""
        for queue in self.queues:
            found: list[JobInfo] = []
            cursor = None
            while True:
                page = await self.subject.list(now=self.now, queue=queue, limit=limit, cursor=cursor, **asked)
                assert len(page.items) <= limit
                found, cursor = [*found, *page.items], page.cursor
                if cursor is None:
                    break
            expected = self.model.search(self.now, queue, **asked)
            assert found == expected, f"{asked}: {_ids(found)}, expected {_ids(expected)}"
        capped = await self.subject.counts(self.now, limit)
        expected_counts = {
            queue: {state: min(number, limit) for state, number in states.items()}
            for queue, states in self.model.counts(self.now).items()
        }
        assert {queue: capped[queue] for queue in self.queues if capped.get(queue)} == expected_counts

    async def list_flows(self, limit: int, status: FlowStatus | None, order: str) -> None:
        """The flows of this walk; a store that is shared may have others."""
        found: list[FlowInfo] = []
        cursor = None
        while True:
            page = await self.subject.flows(now=self.now, status=status, order=order, limit=limit, cursor=cursor)
            found, cursor = [*found, *page.items], page.cursor
            if cursor is None:
                break
        expected = self.model.flows(self.now, status, order)
        assert [flow for flow in found if flow.id in self.flows] == expected

    async def compare_all(self) -> None:
        """Everything that can be read. Other queues of a store that is shared do not count."""
        await self.compare()
        counts = await self.subject.counts(self.now)
        assert {queue: counts[queue] for queue in self.queues if counts.get(queue)} == self.model.counts(self.now)
        assert [name for name in await self.subject.queues() if name in self.queues] == self.model.queues()
        assert await self.subject.results(self.ids) == self.model.results(self.ids)
        for id in self.ids[-8:]:
            assert await _if_found(self.subject.inspect(id, self.now)) == self.model.info(id, self.now)
            assert await self.subject.steps(id) == self.model.steps(id)
        for flow in self.flows:
            found, expected = await _if_found(self.subject.flow(flow, self.now)), self.model.flow(flow, self.now)
            assert (found and _in_order(found)) == (expected and _in_order(expected))
        if SCHEDULES not in self.lacks:
            await self.read_due(self.queues, 1)


async def _if_found(call: Awaitable[T]) -> T | None:
    """The result, None for JobNotFound."""
    try:
        return await call
    except JobNotFound:
        return None


def _ids(infos: Sequence[JobInfo]) -> list[str]:
    return [info.job.id for info in infos]


def _in_order(flow: FlowInfo) -> FlowInfo:
    """The edges of a flow have no order."""
    return replace(flow, edges=tuple(sorted(flow.edges)))


def differences(found: JobInfo, expected: JobInfo) -> str:
    """The fields in which a job reads differently."""
    lines = [
        f"{name} is {getattr(one, name)!r}, expected {getattr(other, name)!r}"
        for one, other in ((found, expected), (found.job, expected.job))
        for name in one.__struct_fields__
        if name != "job" and getattr(one, name) != getattr(other, name)
    ]
    return "; ".join(lines) or "nothing"
