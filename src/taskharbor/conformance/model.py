"""The driver contract read literally: a model to compare drivers with, and to read in twenty minutes.

It has no index, no heap and no counter. Every question walks over all jobs, so that each rule of
docs/driver-contract.md is one expression here. Nothing is fast, and nothing does I/O.

A job is in one of six states. Three of them end it; the clock decides between the three of a job that is in its queue:

    enqueue ─► BLOCKED ─► (all dependencies done) ─► SCHEDULED / READY / INFLIGHT ─► DONE, DLQ or CANCELLED
                  ▲                                                                          │
                  └────────────────────────── requeue (from DLQ and CANCELLED) ◄─────────────┘

Where the contract leaves a choice to the driver (ungrouped jobs or which group comes next), the model chooses nothing:
`follow` takes over what a driver reserved, and objects to a choice that the contract does not allow.
A call on several items returns, in their order, None for what was done and the class of the error for what was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec.structs import replace

from taskharbor.drivers import (
    ALL_FEATURES,
    Ack,
    Cancelled,
    Enqueued,
    Fail,
    FlowInfo,
    InvalidJob,
    JobInfo,
    JobNotFound,
    JobNotInflight,
    JobRecord,
    Lease,
    LeaseExpired,
    LeaseMismatch,
    Outcome,
    Reserved,
    Retry,
    State,
    TaskHarborError,
    WrongState,
)
from taskharbor.drivers.contract import CANCELLED_REASON, FLOW_CANCELLED_REASON
from taskharbor.drivers.graph import flow_info
from taskharbor.model.job import EPOCH

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
    settled: tuple[str, type[Outcome]] | None = field(default=None, repr=False)
    """Token and kind of the last outcome: the same again is a repetition and changes nothing."""
    edges: dict[str, ModelJob] = field(default_factory=dict, repr=False)
    """What it depends on. The job itself, because an id may be deleted and used again."""

    def state(self, now: datetime) -> State:
        if self.lasting is not None:
            return self.lasting
        if self.lease is not None:
            return State.INFLIGHT if self.lease.expires_at > now else State.READY
        return State.SCHEDULED if self.record.run_at is not None and self.record.run_at > now else State.READY

    def place(self) -> tuple[Any, ...]:
        """Among the ungrouped jobs of its queue, or among those of its group: the least is reserved first."""
        since = self.joined_at if self.lease is None else self.lease.expires_at
        return (since, self.arrival) if self.record.group else (-self.record.priority, since, self.arrival)


@dataclass
class ContractModel:
    """A store."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    group_limits: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    cancelled_flows: set[str] = field(default_factory=set)
    number: int = 0
    features: frozenset[str] = ALL_FEATURES
    """Those of the driver that it is compared with."""

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

    # Reserve

    def runnable(self, queue: str, now: datetime) -> set[str]:
        """The ids of which any may be reserved next: the first ungrouped job, and the first of each group with room."""
        if queue in self.paused:
            return set()
        heads: dict[str | None, ModelJob] = {}
        for job in self.jobs.values():
            group = job.record.group
            if job.record.queue != queue or job.state(now) is not State.READY:
                continue
            if group is not None and self.inflight(queue, group, now) >= self.group_limits.get((queue, group), 1):
                continue
            if group not in heads or job.place() < heads[group].place():
                heads[group] = job
        return {job.record.id for job in heads.values()}

    def inflight(self, queue: str, group: str, now: datetime) -> int:
        members = [job for job in self.jobs.values() if (job.record.queue, job.record.group) == (queue, group)]
        return sum(job.state(now) is State.INFLIGHT for job in members)

    def follow(
        self, taken: Sequence[Reserved], queues: Sequence[str], now: datetime, until: datetime, limit: int, worker: str
    ) -> None:
        """Reserve what a driver reserved; AssertionError where the contract does not allow it."""
        assert len(taken) <= limit, f"reserve returned {len(taken)} jobs, the limit is {limit}"
        for each in taken:
            id, queue = each.job.id, each.job.queue
            assert queue in queues, f"{id} is in {queue}, which was not asked for"
            assert id in self.runnable(queue, now), f"{id} was reserved, allowed are {self.runnable(queue, now)}"
            assert each.lease == Lease(id, queue, each.lease.token, until)
            self.grant(self.jobs[id], replace(each.lease, expires_at=FAR), now, worker)
            assert each.job == self.jobs[id].record
        if len(taken) < limit:
            left = [id for queue in queues for id in self.runnable(queue, now)]
            assert not left, f"reserve left {left}, although they are runnable"
        for each in taken:  # not before, because a lease may last no time at all
            self.jobs[each.job.id].lease = each.lease

    def grant(self, job: ModelJob, lease: Lease, now: datetime, worker: str) -> None:
        changes: dict[str, Any] = {"deliveries": job.record.deliveries + 1}
        if "attempts" in self.features:
            changes |= {"began_at": now, "ran_on": worker}
        if job.lease is not None:  # expired: its worker was lost
            changes |= {"lost": job.record.lost + 1, "run_at": None}
        job.record = replace(job.record, **changes)
        job.lease, job.worker, job.settled = lease, worker, None

    # Extend, release, settle

    def refusal(self, lease: Lease, now: datetime) -> Refusal | None:
        """Why this lease is not valid: the first reason of four counts."""
        job = self.jobs.get(lease.job_id)
        if job is None:
            return JobNotFound
        if job.lease is None:
            return JobNotInflight
        if job.lease.token != lease.token:
            return LeaseMismatch
        return LeaseExpired if job.lease.expires_at <= now else None

    def extend(self, leases: Sequence[Lease], now: datetime, lease_for: timedelta) -> list[Lease | Refusal]:
        results: list[Lease | Refusal] = []
        for lease in leases:
            refused, job = self.refusal(lease, now), self.jobs.get(lease.job_id)
            if refused is None and job is not None and job.lease is not None:
                job.lease = replace(job.lease, expires_at=max(job.lease.expires_at, now + lease_for))
                results.append(job.lease)
            elif refused is not None:
                results.append(refused)
        return results

    def release(self, worker: str, now: datetime, keep: Collection[str]) -> int:
        """Give back what the worker has under valid leases, in the order in which the jobs had joined."""
        held = [job for job in self.jobs.values() if job.worker == worker and job.state(now) is State.INFLIGHT]
        given_back = [job for job in held if job.lease is not None and job.lease.token not in keep]
        for job in sorted(given_back, key=lambda job: job.arrival):
            self.join(job, now, lost=job.record.lost + 1, run_at=None)
        return len(given_back)

    def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[Refusal | None]:
        return [self.settle_one(outcome, now) for outcome in outcomes]

    def settle_one(self, outcome: Outcome, now: datetime) -> Refusal | None:
        this = (outcome.lease.token, type(outcome))
        job = self.jobs.get(outcome.lease.job_id)
        if job is not None and job.settled == this:
            return None
        refused = self.refusal(outcome.lease, now)
        if job is None or refused is not None:
            return refused
        try:
            self.apply(job, outcome, now)
        except InvalidJob:
            return InvalidJob
        job.settled = this
        return None

    def apply(self, job: ModelJob, outcome: Outcome, now: datetime) -> None:
        record = job.record
        match outcome:
            case Ack():
                self.ack(job, outcome, now)
            case Retry():
                self.join(
                    job,
                    now,
                    run_at=outcome.run_at,
                    attempts=outcome.attempts,
                    last_error=outcome.last_error or record.last_error,
                    failed_at=outcome.failed_at or record.failed_at,
                    lost=record.lost if outcome.attempts == record.attempts else 0,
                )
            case Fail():
                _, fresh = self.plan(outcome.spawn)
                self.finish(
                    job,
                    State.DLQ,
                    now,
                    reason=outcome.reason,
                    attempts=outcome.attempts,
                    last_error=outcome.last_error or outcome.reason,
                    failed_at=outcome.failed_at or record.failed_at,
                    lost=0,
                )
                self.store(fresh, now)
            case Cancelled():
                self.finish(job, State.CANCELLED, now, reason=outcome.reason, last_error=outcome.reason, lost=0)

    def ack(self, job: ModelJob, outcome: Ack, now: datetime) -> None:
        """Done; then its dependents are released, and the spawned jobs stored. With a heir, the other way round."""
        results, fresh = self.plan(outcome.spawn)
        id = job.record.id
        dependents = sorted((one for one in self.jobs.values() if self.depends(one, id)), key=lambda one: one.stored)
        heir = None
        if outcome.handover is not None:
            spawned = {each.id: result.id for each, result in zip(outcome.spawn, results, strict=True)}
            heir = self.heir_of(id, spawned.get(outcome.handover), fresh, {one.record.id for one in dependents})
        self.finish(job, State.DONE, now, result=outcome.result, lost=0, handed_to=heir)
        if heir is not None:
            self.store(fresh, now)
            for one in dependents:
                self.hand_over(one, id, heir)
        for one in dependents:
            if one.lasting is State.BLOCKED and not self.waiting_for(one):
                self.join(one, now)
        if heir is None:
            self.store(fresh, now)

    def heir_of(self, id: str, spawned: str | None, fresh: dict[str, JobRecord], dependents: set[str]) -> str:
        """The job that takes the place of `id`; InvalidJob if that would wait for itself, or was not spawned."""
        heir = self.heir(spawned) if spawned in self.jobs else spawned
        if heir is None or heir == id:
            raise InvalidJob("handover to a job that was not spawned")
        if heir in dependents or (dependents and self.reaches(fresh, heir, dependents)):
            raise InvalidJob("handover to a job that waits for those it would hold up")
        return heir

    def hand_over(self, dependent: ModelJob, id: str, heir: str) -> None:
        names = tuple(heir if name == id else name for name in dependent.record.depends_on)
        dependent.record = replace(dependent.record, depends_on=names)
        edges = {**dependent.edges, heir: self.jobs[heir]}
        dependent.edges = {name: edges[name] for name in names if name in edges}

    # What an operator does

    def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> list[Refusal | None]:
        results: list[Refusal | None] = []
        for id in ids:
            job = self.jobs.get(id)
            if job is None or job.lasting not in (State.DLQ, State.CANCELLED):
                results.append(JobNotFound if job is None else WrongState)
                continue
            self.cancelled_flows.discard(job.record.flow_id or "")
            attempts = 0 if reset_attempts else job.record.attempts
            job.record = replace(job.record, reason="", finished_at=None, lost=0, run_at=run_at, attempts=attempts)
            self.link(job)
            self.join_or_block(job, now)
            results.append(None)
        return results

    def cancel(self, ids: Sequence[str], now: datetime, reason: str = CANCELLED_REASON) -> list[Refusal | None]:
        results: list[Refusal | None] = []
        for id in ids:
            job = self.jobs.get(id)
            if job is None or job.lasting in (State.DONE, State.DLQ):
                results.append(JobNotFound if job is None else WrongState)
                continue
            if job.lasting is not State.CANCELLED:
                self.finish(job, State.CANCELLED, now, reason=reason)
            results.append(None)
        return results

    def cancel_flow(self, flow: str, now: datetime) -> int:
        """Cancel what is not terminal, and whatever is stored in the flow from now on."""
        members = {id: job for id, job in self.jobs.items() if job.record.flow_id == flow}
        if members:
            self.cancelled_flows.add(flow)
        unfinished = [id for id, job in members.items() if not job.state(now).terminal]
        self.cancel(unfinished, now, FLOW_CANCELLED_REASON)
        return len(unfinished)

    def delete(self, ids: Sequence[str]) -> list[Refusal | None]:
        results: list[Refusal | None] = []
        for id in ids:
            if id not in self.jobs or self.needed(id):
                results.append(WrongState if id in self.jobs else JobNotFound)
                continue
            self.forget(id)
            results.append(None)
        return results

    def forget(self, id: str) -> None:
        flow = self.jobs.pop(id).record.flow_id
        if not any(job.record.flow_id == flow for job in self.jobs.values()):
            self.cancelled_flows.discard(flow or "")

    def prune(self, before: datetime) -> int:
        """Without a limit: which jobs go first, and which stay for the next call, is not compared."""
        ids = self.prunable(before)
        for id in ids:
            self.forget(id)
        return len(ids)

    def prunable(self, before: datetime) -> dict[str, datetime]:
        """What may be forgotten, and when it finished. A flow goes as a whole, once all of it is done or cancelled."""
        open_flows = {job.record.flow_id for job in self.jobs.values() if job.lasting in UNFINISHED}
        return {
            id: job.record.finished_at
            for id, job in self.jobs.items()
            if job.lasting not in UNFINISHED
            and job.record.finished_at is not None
            and job.record.finished_at < before
            and not self.needed(id)
            and (job.record.flow_id is None or job.record.flow_id not in open_flows)
        }

    # Reading

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

    def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        counted = {queue: Counter[str]() for queue in {job.record.queue for job in self.jobs.values()}}
        for job in self.jobs.values():
            counted[job.record.queue][job.state(now).value] += 1
        return {queue: dict(states) for queue, states in counted.items()}

    def queues(self) -> list[str]:
        """What holds a job or is paused."""
        return sorted({job.record.queue for job in self.jobs.values()} | self.paused)

    def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """A job that handed over has the result of the one in its place."""
        return {id: self.jobs[self.heir(id)].record.result if id in self.jobs else None for id in ids}

    def flow(self, flow: str, now: datetime) -> FlowInfo | None:
        nodes = tuple(self.listing(now, flow=flow))
        return flow_info(flow, nodes) if nodes else None
