"""The calls that a client makes, and an operator: written once, for the driver and for its blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from taskharbor.drivers.base import SqlDriver
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.queries import AuditQuery, DueQuery, FlowQuery, JobQuery, ScheduleQuery
from taskharbor.drivers.sqlite import admin, listing, reading, schedules
from taskharbor.drivers.sqlite.heads import heads
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import Figures, FlowInfo, FlowPage, JobInfo, Page, QueueHead, Seen, WorkerInfo
from taskharbor.model.schedule import ScheduleChange, SchedulePage

T = TypeVar("T")


class ClientCalls(SqlDriver):
    """What both can do with a session. A subclass says how a session is got."""

    options: SqliteOptions

    async def _write(self, work: Callable[[WriteSession], T]) -> T:
        """The result of a call in a write transaction that is durable."""
        raise NotImplementedError

    async def _read(self, work: Callable[[ReadSession], T]) -> T:
        """The result of a call on a snapshot."""
        raise NotImplementedError

    # Reading

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        return await self._read(lambda session: reading.inspect(session, id, now))

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._read(lambda session: reading.results(session, ids))

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        return await self._read(lambda session: reading.counts(session, now, cap))

    async def queues(self) -> list[str]:
        return await self._read(reading.queues)

    async def is_paused(self, queue: str) -> bool:
        return await self._read(lambda session: reading.is_paused(session, queue))

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        return await self._read(lambda session: heads(session, queues, now, n))

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        return await self._read(lambda session: reading.upcoming(session, queues, now))

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self._read(lambda session: reading.flow(session, flow_id, now))

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        return await self._read(lambda session: reading.workers(session, now))

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        return await self._read(lambda session: reading.figures(session, since, until, queue))

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        return await self._read(lambda session: listing.list_jobs(session, now, wanted))

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        return await self._read(lambda session: listing.list_flows(session, wanted))

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        return await self._read(lambda session: listing.list_audit(session, wanted))

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        return await self._read(lambda session: schedules.list_schedules(session, wanted))

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        return await self._read(lambda session: schedules.list_due_schedules(session, wanted))

    # Deciding

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        return await self._write(lambda session: admin.requeue(session, ids, now, run_at, reset_attempts, seen))

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await self._write(lambda session: admin.cancel(session, ids, now, seen=seen))

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        return await self._write(lambda session: admin.cancel_flow(session, flow_id, now))

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        limit = self.options.max_payload
        return await self._write(lambda session: admin.amend(session, changes, now, limit))

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        return await self._write(lambda session: admin.delete(session, ids, seen))

    async def pause(self, queue: str) -> None:
        await self._write(lambda session: admin.pause(session, queue))

    async def resume(self, queue: str) -> None:
        await self._write(lambda session: admin.resume(session, queue))

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        await self._write(lambda session: reading.add_figures(session, rows, now))

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        await self._write(lambda session: listing.put_audit(session, entries, now))

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        limit = self.options.max_payload
        return await self._write(lambda session: schedules.change_schedules(session, changes, now, limit))
