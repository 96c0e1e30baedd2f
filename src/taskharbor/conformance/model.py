"""The driver contract read literally: a model to compare drivers with, and to read in twenty minutes.

It has no index, no heap and no counter. Every question walks over all jobs, so that each rule of
docs/driver-contract.md is one expression here. Nothing is fast, and nothing does I/O.

A job is in one of seven states. Three of them end it; lease and clock decide between the three of a job in its queue:

    enqueue ─► BLOCKED ─► (all dependencies done) ─► SCHEDULED / READY / INFLIGHT ─► DONE, DLQ or CANCELLED
                  ▲                                                                          │
                  └────────────────────────── requeue (from DLQ and CANCELLED) ◄─────────────┘

Where the contract leaves a choice to the driver (ungrouped jobs or which group comes next), the model chooses nothing:
`follow` takes over what a driver reserved, and objects to a choice that the contract does not allow.
It has four parts: model_store.py (what is stored, and enqueue), this file (reserve, extend, release, settle),
model_admin.py (what an operator does) and model_reading.py.
A call on several items returns, in their order, None for what was done and the class of the error for what was refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.conformance.model_admin import ModelAdmin
from taskharbor.conformance.model_reading import ModelReading
from taskharbor.conformance.model_store import FAR, ModelJob, Refusal
from taskharbor.drivers import (
    Ack,
    Cancelled,
    Fail,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    JobRecord,
    Lease,
    LeaseExpired,
    LeaseMismatch,
    Lost,
    Outcome,
    QueueHead,
    Reserved,
    Retry,
    State,
)
from taskharbor.model.memo import Memo


class ContractModel(ModelAdmin, ModelReading):
    """A store."""

    # Reserve

    def runnable(self, queue: str, now: datetime) -> set[str]:
        """The ids of which any may be reserved next. None of a paused queue may."""
        return set() if queue in self.paused else self.next_ones(queue, now)

    def next_ones(self, queue: str, now: datetime, taken: Sequence[str] = ()) -> set[str]:
        """The first ungrouped job, and the first of each group with room, once the jobs `taken` were reserved."""
        heads: dict[str | None, ModelJob] = {}
        for job in self.jobs.values():
            group = job.record.group
            if job.record.queue != queue or job.state(now) is not State.READY or job.record.id in taken:
                continue
            limit = self.group_limits.get((queue, group), 1) if group is not None else 0
            if group is not None and self.inflight(queue, group, now, taken) >= limit:
                continue
            if group not in heads or job.place() < heads[group].place():
                heads[group] = job
        return {job.record.id for job in heads.values()}

    def inflight(self, queue: str, group: str, now: datetime, taken: Sequence[str] = ()) -> int:
        members = [job for job in self.jobs.values() if (job.record.queue, job.record.group) == (queue, group)]
        return sum(job.state(now) is State.INFLIGHT or job.record.id in taken for job in members)

    def check_head(self, head: QueueHead, now: datetime, n: int) -> None:
        """AssertionError where the contract does not allow the head of a queue of few jobs."""
        known = (head.oldest_known, head.next_known)
        assert known == (True, True), f"{head} is not known, although there are few jobs"
        oldest = self.oldest(head.queue, now)
        assert head.oldest_at == oldest, f"the oldest of {head.queue} waits since {head.oldest_at}, expected {oldest}"
        assert len(head.next) <= n, f"{head.next} are more than {n}"
        for index, id in enumerate(head.next):
            allowed = self.next_ones(head.queue, now, head.next[:index])
            assert id in allowed, f"{id} is number {index} of {head.next}, allowed are {allowed}"
        left = self.next_ones(head.queue, now, head.next)
        assert len(head.next) == n or not left, f"{head.next} are next of {head.queue}, {left} are left out"

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
            lost_by = self.grant(self.jobs[id], replace(each.lease, expires_at=FAR), now, worker)
            assert each.job == self.jobs[id].record, _differences(each.job, self.jobs[id].record)
            assert each.lost_by == lost_by, f"{id}: lost_by is {each.lost_by}, expected {lost_by}"
        if len(taken) < limit:
            left = [id for queue in queues for id in self.runnable(queue, now)]
            assert not left, f"reserve left {left}, although they are runnable"
        for each in taken:  # not before, because a lease may last no time at all
            self.jobs[each.job.id].lease = each.lease

    def grant(self, job: ModelJob, lease: Lease, now: datetime, worker: str) -> Lost | None:
        """The job is under this lease now. Returns the execution before, if that was lost."""
        ended_at, record = job.released_at, replace(job.record, deliveries=job.record.deliveries + 1)
        if job.lease is not None:  # expired: its worker was lost
            ended_at, record = job.lease.expires_at, replace(record, lost=record.lost + 1, run_at=None)
        lost_by = None
        if "attempts" not in self.lacks:
            lost_by = Lost(record.ran_on, record.began_at, ended_at) if ended_at is not None else None
            record = replace(record, began_at=now, ran_on=worker)
        job.record = record
        job.lease, job.worker, job.settled, job.released_at = lease, worker, None, None
        return lost_by

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

    def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Mapping[str, bytes] | None = None
    ) -> list[Lease | Refusal]:
        results: list[Lease | Refusal] = []
        for lease in leases:
            refused, job = self.refusal(lease, now), self.jobs.get(lease.job_id)
            if refused is None and job is not None and job.lease is not None:
                job.lease = replace(job.lease, expires_at=max(job.lease.expires_at, now + lease_for))
                job.record = replace(job.record, note=(notes or {}).get(lease.token, job.record.note))
                results.append(job.lease)
            elif refused is not None:
                results.append(refused)
        return results

    def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> Refusal | None:
        refused, job = self.refusal(lease, now), self.jobs.get(lease.job_id)
        if refused is None and job is not None:
            job.memos[name] = Memo(name, value, now, job.record.deliveries)
            job.record = replace(job.record, has_memos=True)
        return refused

    def release(self, worker: str, now: datetime, keep: Collection[str]) -> int:
        """Give back what the worker has under valid leases, in the order in which the jobs had joined."""
        held = [job for job in self.jobs.values() if job.worker == worker and job.state(now) is State.INFLIGHT]
        given_back = [job for job in held if job.lease is not None and job.lease.token not in keep]
        for job in sorted(given_back, key=lambda job: job.arrival):
            self.join(job, now, lost=job.record.lost + 1, run_at=None)
            job.released_at = now
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
                    error_class=outcome.error_class or record.error_class,
                    fingerprint=outcome.fingerprint or record.fingerprint,
                    trail=outcome.trail or record.trail,
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
                    error_class=outcome.error_class,
                    fingerprint=outcome.fingerprint,
                    trail=outcome.trail or record.trail,
                )
                self.store(fresh, now)
            case Cancelled():
                trail, reason = outcome.trail or record.trail, outcome.reason
                self.finish(job, State.CANCELLED, now, reason=reason, last_error=reason, lost=0, trail=trail)
                self.cancel_behind({job.record.id}, now)

    def ack(self, job: ModelJob, outcome: Ack, now: datetime) -> None:
        """Done; then its dependents are released, and the spawned jobs stored. With a heir, the other way round."""
        results, fresh = self.plan(outcome.spawn)
        id = job.record.id
        dependents = sorted((one for one in self.jobs.values() if self.depends(one, id)), key=lambda one: one.stored)
        heir = None
        if outcome.handover is not None:
            spawned = {each.id: result.id for each, result in zip(outcome.spawn, results, strict=True)}
            heir = self.heir_of(id, spawned.get(outcome.handover), fresh, {one.record.id for one in dependents})
        trail = outcome.trail or job.record.trail
        self.finish(job, State.DONE, now, result=outcome.result, lost=0, handed_to=heir, trail=trail)
        if heir is not None:
            self.store(fresh, now)
            for one in dependents:
                self.hand_over(one, id, heir)
            if self.jobs[heir].lasting is State.CANCELLED:
                self.strand([one for one in self.blocked_behind([heir]) if one in dependents], now)
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


def _differences(found: JobRecord, expected: JobRecord) -> str:
    """The fields in which a record is not as expected."""
    names = [name for name in found.__struct_fields__ if getattr(found, name) != getattr(expected, name)]
    return "; ".join(f"{name} is {getattr(found, name)!r}, expected {getattr(expected, name)!r}" for name in names)
