"""The model of the contract, third part: what can be read. model.py explains the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.conformance.model_store import ModelStore
from taskharbor.drivers import FlowInfo, FlowStatus, JobInfo, State, StoredAudit, StoredSchedule, flow_status
from taskharbor.model.job import flow_info
from taskharbor.model.memo import Memo


class ModelReading(ModelStore):
    """Jobs, counts, queues, results and flows at a moment, the audit and schedules."""

    def info(self, id: str, now: datetime) -> JobInfo | None:
        job = self.jobs.get(id)
        if job is None:
            return None
        state = job.state(now)
        if state is State.INFLIGHT and job.lease is not None:
            return JobInfo(job.record, state, job.worker, job.lease.expires_at)
        if state is State.BLOCKED:
            return JobInfo(job.record, state, waiting_for=tuple(self.waiting_for(job)))
        expired = state is State.READY and job.lease is not None
        return JobInfo(replace(job.record, run_at=None) if expired else job.record, state)

    def listing(self, now: datetime, queue: str | None = None, flow: str | None = None) -> list[JobInfo]:
        """In the order of their ids."""
        infos = [info for id in sorted(self.jobs) if (info := self.info(id, now)) is not None]
        return [info for info in infos if queue in (None, info.job.queue) and flow in (None, info.job.flow_id)]

    def search(
        self,
        now: datetime,
        queue: str,
        state: State | None = None,
        error_class: str | None = None,
        error_name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "id",
    ) -> list[JobInfo]:
        """A listing with filters. The time of a job is that of its end, if it has ended."""
        found = []
        for info in self.listing(now, queue):
            time = info.job.finished_at if info.state.terminal else info.job.created_at
            assert time is not None
            in_time = (since is None or since <= time) and (until is None or time < until)
            recorded = info.job.error_class
            is_of_class = error_class is not None and recorded == error_class
            has_name = error_name is not None and recorded.rpartition(".")[1:] == (".", error_name)
            is_asked_for = is_of_class or has_name or (error_class is None and error_name is None)
            if in_time and state in (None, info.state) and is_asked_for:
                found.append(info)
        return found if order == "id" else found[::-1]

    def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        """When the first job that waits for its time, or under a lease, is ready. Nothing is in a paused queue."""
        moments = []
        for job in self.jobs.values():
            if job.record.queue in queues and job.record.queue not in self.paused:
                if job.state(now) is State.SCHEDULED and job.record.run_at is not None:
                    moments.append(job.record.run_at)
                elif job.state(now) is State.INFLIGHT and job.lease is not None:
                    moments.append(job.lease.expires_at)
        return min(moments, default=None)

    def oldest(self, queue: str, now: datetime) -> datetime | None:
        """Since when the job is due that has been ready for longest."""
        jobs = [job for job in self.jobs.values() if job.record.queue == queue and job.state(now) is State.READY]
        return min((job.since() for job in jobs), default=None)

    def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        counted = {queue: Counter[str]() for queue in {job.record.queue for job in self.jobs.values()}}
        for job in self.jobs.values():
            counted[job.record.queue][job.state(now).value] += 1
        return {queue: dict(states) for queue, states in counted.items()}

    def queues(self) -> list[str]:
        """What holds a job or is paused."""
        return sorted({job.record.queue for job in self.jobs.values()} | self.paused)

    def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """Of those that are done. A job that handed over has the result of the one in its place, if that exists."""
        last = {id: self.jobs[self.heir(id)] for id in ids if id in self.jobs}
        return {
            id: job.record.result
            for id, job in last.items()
            if job.lasting is State.DONE and job.record.handed_to is None
        }

    def steps(self, id: str) -> list[Memo]:
        job = self.jobs.get(id)
        return [] if job is None else sorted(job.memos.values(), key=lambda memo: (memo.at, memo.name))

    def flow(self, flow: str, now: datetime) -> FlowInfo | None:
        nodes = tuple(self.listing(now, flow=flow))
        return flow_info(flow, nodes) if nodes else None

    def flows(self, now: datetime, status: FlowStatus | None = None, order: str = "id") -> list[FlowInfo]:
        """All flows, without their jobs."""
        ids = {job.record.flow_id for job in self.jobs.values() if job.record.flow_id is not None}
        found = []
        for id in sorted(ids, reverse=order == "-id"):
            nodes = self.listing(now, flow=id)
            state = flow_status([node.state for node in nodes])
            if status in (None, state):
                found.append(FlowInfo(id, state, nodes[0].job.created_at, nodes[-1].job.created_at, (), ()))
        return found

    def audit(
        self, since: datetime | None = None, until: datetime | None = None, by: str | None = None
    ) -> list[StoredAudit]:
        """All entries of these, the last one first."""
        found = [
            entry
            for entry in self.entries.values()
            if (since is None or since <= entry.at) and (until is None or entry.at < until) and by in (None, entry.by)
        ]
        return sorted(found, key=lambda entry: (entry.at, entry.id), reverse=True)

    def listed_schedules(self, names: Sequence[str], queue: str | None = None) -> list[StoredSchedule]:
        """Those of these names, in the order of their names."""
        rows = [self.schedules[name] for name in sorted(names) if name in self.schedules]
        return [row for row in rows if queue in (None, row.queue)]

    def due_schedules(
        self, queues: Sequence[str], now: datetime, after: tuple[datetime, str] | None = None
    ) -> list[StoredSchedule]:
        """In the order in which they became due, behind the place `after`."""
        places = [(row.next_at, name) for name, row in self.schedules.items() if row.next_at and row.queue in queues]
        due = sorted(place for place in places if place[0] <= now and (after is None or place > after))
        return [self.schedules[name] for _, name in due]

    def next_due(self, queues: Sequence[str], now: datetime) -> datetime | None:
        """When the next of them is due."""
        moments = [row.next_at for row in self.schedules.values() if row.next_at and row.queue in queues]
        return min((moment for moment in moments if moment > now), default=None)
