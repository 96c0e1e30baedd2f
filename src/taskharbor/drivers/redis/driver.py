"""The Redis driver: the calls of the contract, each one script on one server where that is possible.

A call may be cancelled at any await: if it was sent, the server carries it out, and its reply is discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from taskharbor.drivers.base import CANCELLED_REASON, Driver
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.queries import AuditQuery, DueQuery, FlowQuery, JobQuery, ScheduleQuery, check_cap
from taskharbor.drivers.redis import admin, audit, figures, leases, memos, schedules
from taskharbor.drivers.redis.admin import amend
from taskharbor.drivers.redis.endpoint import LOST, Endpoint, refuse_large, refused
from taskharbor.drivers.redis.enqueue import enqueue
from taskharbor.drivers.redis.flows import FlowPages, cancel_flow
from taskharbor.drivers.redis.housekeeping import Housekeeper
from taskharbor.drivers.redis.job_pages import JobPages
from taskharbor.drivers.redis.options import parse
from taskharbor.drivers.redis.reading import JobReader, arrivals, claim, heads, holds_any, next_work
from taskharbor.drivers.redis.records import EDGES, MAX_PLAIN_VALUES, can_be_queue, moment_of, reserved, up_to_ms
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.settle import settle
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.redis.sweeping import Sweeper, damage_report
from taskharbor.drivers.redis.wait import ArrivalHints
from taskharbor.drivers.refusals import bad_notes, no_job
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.bounds import (
    check_audit,
    check_enqueue,
    check_figures,
    check_memo,
    check_moment,
    check_name,
    check_schedule_changes,
)
from taskharbor.model.errors import BackendUnavailable, DriverError, TaskHarborError
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import Figures, FlowInfo, FlowPage, JobInfo, JobRecord, Page, QueueHead, Seen, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Outcome
from taskharbor.model.schedule import ScheduleChange, SchedulePage
from taskharbor.model.times import MILLISECOND, from_ms, to_ms

if TYPE_CHECKING:
    from taskharbor.drivers.redis.blocking import RedisBlocking


class _Opened:
    """What an opened driver has."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.store = RedisStore(endpoint)
        self.reader = JobReader(self.store)
        self.sweeper = Sweeper(self.store)
        self.housekeeper = Housekeeper(self.store)
        self.hints = ArrivalHints(
            endpoint.connection,
            partial(arrivals, self.store),
            partial(claim, self.store),
            self._poll,
            endpoint.options.database,
        )
        self._reserved_at = (0, 0.0)  # the latest `now` of a reserve, and when that was
        self._drained: set[tuple[str, ...]] = set()  # queues in which the last reserve found nothing

    def note_reserve(self, queues: Sequence[str], now: int, granted: bool) -> None:
        """What a reserve found, and when that was."""
        self._reserved_at = max(self._reserved_at, (now, monotonic()))
        if granted:
            self._drained.discard(tuple(queues))
        else:
            self._drained.add(tuple(queues))

    async def is_empty(self, queues: Sequence[str]) -> bool:
        """Whether queues in which nothing was found before hold nothing to reserve: one command instead of a script."""
        return tuple(queues) in self._drained and not await holds_any(self.store, queues)

    async def _poll(self, queues: Sequence[str]) -> float | None:
        now, at = self._reserved_at
        return await next_work(self.reader, queues, now + int((monotonic() - at) * 1000) if now else 0)

    async def close(self) -> None:
        await self.housekeeper.close()
        await self.hints.close()
        await self.store.late.close()
        await self.store.router.close()
        await self.store.endpoint.close()


@accepts_any_name
class RedisDriver(Driver):
    """Jobs in Redis.

    >>> RedisDriver("redis://localhost/0").retention
    datetime.timedelta(days=1)
    """

    def __init__(self, dsn: str) -> None:
        self.options = parse(dsn)
        self._dsn = dsn
        self._opened: _Opened | None = None

    @property
    def retention(self) -> timedelta:
        return self.options.retention

    async def open(self) -> None:
        if self._opened is not None:
            return
        endpoint = self._endpoint()
        try:
            await endpoint.open()
        except BaseException:
            await endpoint.close()
            raise
        self._opened = _Opened(endpoint)

    def _endpoint(self) -> Endpoint:
        if self.options.cluster:
            from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint

            return ClusterEndpoint(self.options, self._dsn)
        if self.options.service is not None:
            from taskharbor.drivers.redis.sentinel import SentinelEndpoint

            return SentinelEndpoint(self.options, self._dsn)
        return Endpoint(self.options, self._dsn)

    async def denied(self) -> list[str]:
        """Permissions that this user lacks on the server, a sentence each. The driver need not be open."""
        endpoint = self._endpoint()
        try:
            return await endpoint.denied()
        except LOST as error:
            raise endpoint.unavailable(error) from error
        except ResponseError as error:
            raise refused(endpoint, error) from error
        finally:
            await endpoint.close()

    async def damaged(self) -> list[str]:
        """What other programs damaged in this store, and what to do about it, a sentence each."""
        return await damage_report(self.store, [*await self.reader.queues(), schedules.HOME])

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    def sibling(self) -> RedisDriver:
        return RedisDriver(self._dsn)

    def blocking(self) -> RedisBlocking | None:
        """The same calls on the calling thread; None on a Cluster."""
        if self.options.cluster:
            return None
        from taskharbor.drivers.redis.blocking import RedisBlocking

        return RedisBlocking(self.options, self._dsn)

    @property
    def opened(self) -> _Opened:
        if self._opened is None:
            raise BackendUnavailable("the driver is not open; await driver.open() first")
        return self._opened

    @property
    def store(self) -> RedisStore:
        opened = self._opened
        return self.opened.store if opened is None else opened.store

    @property
    def reader(self) -> JobReader:
        return self.opened.reader

    async def server_time(self) -> datetime:
        seconds, micros = await self.store.endpoint.time()
        return datetime.fromtimestamp(seconds, UTC) + timedelta(milliseconds=micros // 1000)

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        check_enqueue(jobs, self.options.max_payload)
        refuse_large(sum([len(job.payload) for job in jobs]))  # before it is copied
        return await enqueue(self.store, jobs, to_ms(now)) if jobs else []

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        names = [name for name in dict.fromkeys(queues) if can_be_queue(name)]
        if limit < 1 or not names:
            return []
        moment, housekeeper = to_ms(now), self.opened.housekeeper
        housekeeper.serve(names, moment)
        if await self.opened.is_empty(names):
            return []
        granted = await self._reserve(names, moment, lease_for, limit, worker)
        if not granted and await housekeeper.wait_for_first_round():  # it may have delivered a job
            granted = await self._reserve(names, moment, lease_for, limit, worker)
        self.opened.note_reserve(names, moment, bool(granted))
        return granted

    async def _reserve(
        self, names: Sequence[str], moment: int, lease_for: timedelta, limit: int, worker: str
    ) -> list[Reserved]:
        lease_ms, tokens = lease_for // MILLISECOND, list(new_tokens(limit))
        granted, began = [], from_ms(moment)
        opened = self.opened
        for grants in await leases.reserve(opened.store, names, moment, lease_ms, limit, worker, tokens):
            if grants.arrival is not None:
                opened.hints.drained(grants.queue, int(grants.arrival))
            for _, _, values in grants.jobs:
                if len(values) > MAX_PLAIN_VALUES:
                    opened.store.edges.note(values[EDGES])
            granted += reserved(grants.queue, grants.jobs, from_ms(grants.end), began, worker)
        return granted

    async def extend(
        self,
        leased: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> Sequence[Lease | TaskHarborError]:
        bad = bad_notes(leased, notes) if notes else {}
        good = [lease for place, lease in enumerate(leased) if place not in bad] if bad else leased
        lease_ms = lease_for // MILLISECOND
        done = await leases.extend(self.store, good, to_ms(now), lease_ms, notes or {}) if good else []
        if not bad:
            return done
        extended = iter(done)
        return [bad[place] if place in bad else next(extended) for place in range(len(leased))]

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        return await settle(self.store, outcomes, to_ms(now)) if outcomes else []

    # Beside the verbs

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        check_memo(name, value)
        await memos.save(self.store, lease, name, value, to_ms(now))

    async def steps(self, id: str) -> list[Memo]:
        return await memos.steps(self.reader, id)

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self.reader.results(ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        return await leases.release(self.store, worker, to_ms(now), list(keep))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        return await self.opened.hints.wait([name for name in queues if can_be_queue(name)], timeout)

    def is_hinted(self) -> bool:
        """While its subscription is up: `wait` looks each second for what comes without a hint, or falls due."""
        return self._opened is not None and self._opened.hints.is_listening()

    # Pause

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        await admin.pause(self.store, queue, True)

    async def resume(self, queue: str) -> None:
        await admin.pause(self.store, queue, False)

    async def is_paused(self, queue: str) -> bool:
        return await admin.is_paused(self.store, queue)

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        names = [name for name in dict.fromkeys(queues) if can_be_queue(name)]
        found = await heads(self.store, names, to_ms(now), n) if names else {}
        return [found.get(name) or QueueHead(name) for name in queues]

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        found = await self.reader.find([id], to_ms(now))
        if id not in found:
            raise no_job(id)
        return found[id]

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        check_cap(cap)
        return await self.reader.counts(to_ms(now), cap)

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        names = [name for name in dict.fromkeys(queues) if can_be_queue(name)]
        return moment_of(await self.reader.upcoming(names, to_ms(now))) if names else None

    async def queues(self) -> list[str]:
        return await self.reader.used_queues()

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        if run_at is not None:
            check_moment(run_at, "run_at")
        at = up_to_ms(run_at) if run_at is not None else False
        how = {"run_at": at, "reset_attempts": reset_attempts}
        return await admin.change(self.reader, "requeue", ids, to_ms(now), seen, how)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await admin.change(self.reader, "cancel", ids, to_ms(now), seen, {"reason": CANCELLED_REASON})

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        now = await self.store.clock() if ids else 0
        return await admin.change(self.reader, "delete", ids, now, seen, {})

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        return await amend(self.reader, changes, to_ms(now)) if changes else []

    async def prune(self, before: datetime, limit: int) -> int:
        return await self.opened.sweeper.prune(up_to_ms(before), limit) if limit > 0 else 0

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self.reader.flow(flow_id, to_ms(now))

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        return await FlowPages(self.store, wanted, await self.reader.queues()).page()

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        return await cancel_flow(self.store, flow_id, to_ms(now))

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        check_name(info.worker, "worker")
        await admin.beat(self.store, info, now)

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        return await admin.workers(self.store, now)

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        check_figures(rows)
        await figures.add_figures(self.store, rows, now)

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        return await figures.figures(self.store, since, until, queue)

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        check_audit(entries)
        await audit.put_audit(self.store, entries, now)

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        return await audit.read_audit(self.store, wanted)

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        check_schedule_changes(changes, self.options.max_payload)
        return await schedules.change_schedules(self.store, changes, now)

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        return await schedules.list_schedules(self.store, wanted)

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        return await schedules.list_due_schedules(self.store, wanted)

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        return await JobPages(self.reader, wanted, to_ms(now)).page()
