"""The model of the contract, first part: what is stored, and enqueue. model.py explains the whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec.structs import replace

from taskharbor.drivers import (
    DEFAULT_RETENTION,
    Enqueued,
    InvalidJob,
    JobRecord,
    Lease,
    Outcome,
    State,
    StoredAudit,
    StoredSchedule,
    TaskHarborError,
)
from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON, FLOW_CANCELLED_REASON
from taskharbor.model.job import EPOCH
from taskharbor.model.memo import Memo

Refusal: TypeAlias = type[TaskHarborError]
FAR = datetime(9999, 1, 1, tzinfo=UTC)
UNFINISHED = (None, State.BLOCKED, State.DLQ)
"""`ModelJob.lasting` of a job that still needs its dependencies: a dead job may be requeued."""


@dataclass
class ModelJob:
    """A stored job."""

    record: JobRecord
    stored: int
    """Its number in the order in which jobs were stored."""
    lasting: State | None = None
    """BLOCKED, DONE, DLQ or CANCELLED, which no clock changes. None: the job is in its queue, waiting or leased."""
    joined_at: datetime = FAR
    """When it took its place in its queue: the moment of the call, or `run_at` if that is later."""
    arrival: int = 0
    """Its number in the order in which jobs joined: what decides between equal times."""
    lease: Lease | None = field(default=None, repr=False)
    """Of the newest reservation, until something ends it. An expired lease stays until the next reservation."""
    worker: str = ""
    released_at: datetime | None = None
    """When it was given back by a release, until it is reserved or requeued."""
    settled: tuple[str, type[Outcome]] | None = field(default=None, repr=False)
    """Token and kind of the last outcome: the same again is a repetition and changes nothing."""
    memos: dict[str, Memo] = field(default_factory=dict, repr=False)
    edges: dict[str, ModelJob] = field(default_factory=dict, repr=False)
    """What it depends on. The job itself, because an id may be deleted and used again."""

    def state(self, now: datetime) -> State:
        if self.lasting is not None:
            return self.lasting
        if self.lease is not None:
            return State.INFLIGHT if self.lease.expires_at > now else State.READY
        return State.SCHEDULED if self.record.run_at is not None and self.record.run_at > now else State.READY

    def since(self) -> datetime:
        """When a ready job became due."""
        return self.joined_at if self.lease is None else self.lease.expires_at

    def place(self) -> tuple[Any, ...]:
        """Among the ungrouped jobs of its queue, or among those of its group: the least is reserved first."""
        since = self.since()
        return (since, self.arrival) if self.record.group else (-self.record.priority, since, self.arrival)


@dataclass(repr=False)
class ModelStore:
    """Jobs, and the little that is kept beside them."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    group_limits: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    cancelled_flows: set[str] = field(default_factory=set)
    entries: dict[str, StoredAudit] = field(default_factory=dict)
    """The audit, by id."""
    schedules: dict[str, StoredSchedule] = field(default_factory=dict)
    """By name."""
    number: int = 0
    lacks: frozenset[str] = frozenset()
    """Those of the driver that it is compared with."""
    retention: timedelta = DEFAULT_RETENTION
    """The same."""

    def next_number(self) -> int:
        self.number += 1
        return self.number

    # Dependencies

    def link(self, job: ModelJob) -> None:
        job.edges = {id: self.jobs[id] for id in job.record.depends_on if id in self.jobs}

    def depends(self, job: ModelJob, id: str) -> bool:
        """Whether the job depends on the one that has this id now."""
        return id in job.edges and job.edges[id] is self.jobs.get(id)

    def waiting_for(self, job: ModelJob) -> list[str]:
        return [id for id in job.edges if self.depends(job, id) and self.jobs[id].lasting is not State.DONE]

    def heir(self, id: str) -> str:
        """The job that has the place of this one now: the last in a row of handovers."""
        while (heir := self.jobs[id].record.handed_to) is not None and heir in self.jobs:
            id = heir
        return id

    def needed(self, id: str) -> bool:
        return any(self.depends(job, id) and job.lasting in UNFINISHED for job in self.jobs.values())

    def behind(self, ids: Collection[str]) -> dict[str, ModelJob]:
        """The jobs that depend on one of these, which is in their flow."""

        def is_behind(job: ModelJob) -> bool:
            flow = job.record.flow_id
            return any(
                self.depends(job, id) and flow is not None and self.jobs[id].record.flow_id == flow for id in ids
            )

        return {id: job for id, job in self.jobs.items() if is_behind(job)}

    def cancel_behind(self, ids: Collection[str], now: datetime) -> None:
        """What is blocked behind cancelled jobs of its flow is cancelled with them."""
        self.strand(self.blocked_behind(ids), now)

    def blocked_behind(self, ids: Collection[str]) -> list[ModelJob]:
        return [job for job in self.behind(ids).values() if job.lasting is State.BLOCKED]

    def strand(self, jobs: Collection[ModelJob], now: datetime) -> None:
        """Cancel jobs that can never run, and what is behind them."""
        while jobs:
            for job in jobs:
                self.finish(job, State.CANCELLED, now, reason=DEPENDENCY_CANCELLED_REASON)
            jobs = self.blocked_behind([job.record.id for job in jobs])

    def bring_back_behind(self, ids: Collection[str], now: datetime) -> None:
        """What was cancelled with requeued jobs comes back, unless another cancelled job of its flow is before it."""
        cancelled = [id for id, job in self.jobs.items() if job.lasting is State.CANCELLED]
        for id, job in self.behind(ids).items():
            with_it = job.lasting is State.CANCELLED and job.record.reason == DEPENDENCY_CANCELLED_REASON
            if with_it and id not in self.behind(cancelled):
                job.record = replace(job.record, reason="", finished_at=None)
                self.link(job)
                self.join_or_block(job, now)
                self.bring_back_behind([id], now)

    # Enqueue: a plan, which may refuse, and then carrying it out

    def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store all of the jobs, or raise InvalidJob and store none."""
        results, fresh = self.plan(jobs)
        self.store(fresh, now)
        return results

    def plan(self, jobs: Sequence[JobRecord]) -> tuple[list[Enqueued], dict[str, JobRecord]]:
        """The result of each job, and the records to store."""
        fresh: dict[str, JobRecord] = {}
        stored_as: dict[str, str] = {}
        """Id of a job whose key is known → the id of the job that has this key."""
        results = []
        for job in jobs:
            known = self.known(job, fresh, stored_as)
            if known is None:
                fresh[job.id] = job
            elif known != job.id:
                stored_as[job.id] = known
            results.append(Enqueued(known or job.id, known is not None))
        for job in list(fresh.values()):
            names = [stored_as.get(id, id) for id in job.depends_on]
            if any(id not in fresh and id not in self.jobs for id in names):
                raise InvalidJob("depends on a job that is not stored")
            fresh[job.id] = replace(job, depends_on=tuple(id if id in fresh else self.heir(id) for id in names))
        if any(self.reaches(fresh, id, {id}) for id in fresh):
            raise InvalidJob("waits for itself")
        return results, fresh

    def known(self, job: JobRecord, fresh: dict[str, JobRecord], stored_as: dict[str, str]) -> str | None:
        """The id under which the job is stored already, by its id or by its idempotency key."""
        if job.id in self.jobs or job.id in fresh:
            return job.id
        if job.id in stored_as:
            return stored_as[job.id]
        if job.idempotency_key is None:
            return None
        records = [*(stored.record for stored in self.jobs.values()), *fresh.values()]
        key = (job.queue, job.idempotency_key)
        return next((one.id for one in records if (one.queue, one.idempotency_key) == key), None)

    def reaches(self, fresh: dict[str, JobRecord], start: str, targets: Collection[str]) -> bool:
        """Whether `start` waits for one of the targets, over however many edges."""
        seen: set[str] = set()
        to_visit = [start]
        while to_visit:
            id = to_visit.pop()
            names: tuple[str, ...] = ()
            if id in fresh:
                names = fresh[id].depends_on
            elif id in self.jobs and self.jobs[id].lasting is not State.DONE:
                names = self.jobs[id].record.depends_on
            if any(name in targets for name in names):
                return True
            to_visit += [name for name in names if name not in seen]
            seen.update(names)
        return False

    def store(self, fresh: dict[str, JobRecord], now: datetime) -> None:
        for record in fresh.values():
            made = replace(record, created_at=now) if record.created_at == EPOCH else record
            self.jobs[record.id] = ModelJob(made, self.next_number())
            if record.group and record.group_limit:  # the first limit that a group is given counts
                self.group_limits.setdefault((record.queue, record.group), record.group_limit)
        for id in fresh:
            self.link(self.jobs[id])
        for id in fresh:
            job = self.jobs[id]
            if job.record.flow_id in self.cancelled_flows:
                self.finish(job, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
            else:
                self.join_or_block(job, now)
        if fresh:
            behind = self.blocked_behind([id for id, job in self.jobs.items() if job.lasting is State.CANCELLED])
            self.strand([job for job in behind if job.record.id in fresh], now)

    def join_or_block(self, job: ModelJob, now: datetime) -> None:
        if self.waiting_for(job):
            job.lasting = State.BLOCKED
        else:
            self.join(job, now)

    def join(self, job: ModelJob, now: datetime, **changes: Any) -> None:
        """The job takes its place in its queue."""
        job.record = replace(job.record, **changes)
        job.lasting, job.lease, job.worker = None, None, ""
        job.joined_at = max(job.record.run_at or now, now)
        job.arrival = self.next_number()

    def finish(self, job: ModelJob, state: State, now: datetime, **changes: Any) -> None:
        job.record = replace(job.record, finished_at=now, **changes)
        job.lasting, job.lease, job.worker = state, None, ""
