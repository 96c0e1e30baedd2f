"""The contract read literally: a model that knows no index, no heap and no counter, and looks at every job each time.

It decides nothing that drivers may decide: `legal` names all jobs that may be reserved next.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from taskharbor.drivers import Ack, Fail, InvalidJob, JobRecord, Lease, Retry, State, replace

START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Job:
    record: JobRecord
    stored: int
    fixed: State | None = None  # None: waiting or leased
    time: datetime = START
    arrival: int = 0
    token: str = ""
    worker: str = ""
    expires: datetime | None = None
    settled: tuple[str, type] | None = None
    edges: dict[str, "Job"] = field(
        default_factory=dict
    )  # what it depends on: the job that had the id when it was linked

    def state(self, now: datetime) -> State:
        if self.fixed is not None:
            return self.fixed
        if self.expires is not None:
            return State.INFLIGHT if self.expires > now else State.READY
        return State.SCHEDULED if self.record.run_at is not None and self.record.run_at > now else State.READY

    def place(self) -> tuple[Any, ...]:
        time = self.expires or self.time
        return (time, self.arrival) if self.record.group else (-self.record.priority, time, self.arrival)


@dataclass
class Model:
    """The contract, read literally."""

    jobs: dict[str, Job] = field(default_factory=dict)
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    cancelled_flows: set[str] = field(default_factory=set)
    number: int = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    def link(self, job: Job) -> None:
        job.edges = {id: self.jobs[id] for id in job.record.depends_on if id in self.jobs}

    def linked(self, job: Job, id: str) -> bool:
        return id in job.edges and job.edges[id] is self.jobs.get(id)

    def open_of(self, job: Job) -> list[str]:
        return [id for id in job.edges if self.linked(job, id) and self.jobs[id].fixed is not State.DONE]

    def heir(self, id: str) -> str:
        while (heir := self.jobs[id].record.handed_to) is not None and heir in self.jobs:
            id = heir
        return id

    def needed(self, id: str) -> bool:
        return any(
            self.linked(job, id) and job.fixed not in (State.DONE, State.CANCELLED) for job in self.jobs.values()
        )

    # enqueue

    def plan(self, jobs: list[JobRecord]) -> tuple[list[tuple[str, bool]], dict[str, JobRecord]]:
        fresh: dict[str, JobRecord] = {}
        alias: dict[str, str] = {}
        answers = []
        for job in jobs:
            everyone = [*(stored.record for stored in self.jobs.values()), *fresh.values()]
            same_key = [
                one.id
                for one in everyone
                if job.idempotency_key and (one.queue, one.idempotency_key) == (job.queue, job.idempotency_key)
            ]
            if job.id in self.jobs or job.id in fresh:
                known: str | None = job.id
            else:
                known = alias.get(job.id) or (same_key[0] if same_key else None)
            if known is None:
                fresh[job.id] = job
            elif known != job.id:
                alias[job.id] = known
            answers.append((known or job.id, known is not None))
        for job in list(fresh.values()):
            names = [alias.get(id, id) for id in job.depends_on]
            if any(id not in fresh and id not in self.jobs for id in names):
                raise InvalidJob("unknown")
            fresh[job.id] = replace(job, depends_on=tuple(id if id in fresh else self.heir(id) for id in names))
        if any(self.reaches(fresh, id, {id}) for id in fresh):
            raise InvalidJob("cycle")
        return answers, fresh

    def reaches(self, fresh: dict[str, JobRecord], start: str, targets: set[str]) -> bool:
        seen: set[str] = set()
        todo = [start]
        while todo:
            id = todo.pop()
            if id in fresh:
                names = fresh[id].depends_on
            else:
                names = (
                    self.jobs[id].record.depends_on if id in self.jobs and self.jobs[id].fixed is not State.DONE else ()
                )
            if any(name in targets for name in names):
                return True
            todo += [name for name in names if name not in seen]
            seen.update(names)
        return False

    def carry_out(self, fresh: dict[str, JobRecord], now: datetime) -> None:
        for record in fresh.values():
            self.jobs[record.id] = Job(record, self.next())
            if record.group and record.group_limit:
                self.limits.setdefault((record.queue, record.group), record.group_limit)
        for id in fresh:
            self.link(self.jobs[id])
        for id in fresh:
            job = self.jobs[id]
            if job.record.flow_id in self.cancelled_flows:
                self.finish(job, State.CANCELLED, now, reason="flow cancelled")
            elif self.open_of(job):
                job.fixed = State.BLOCKED
            else:
                self.join(job, now)

    # transitions

    def join(self, job: Job, now: datetime, **changes: Any) -> None:
        job.record = replace(job.record, **changes)
        job.fixed, job.expires, job.token, job.worker = None, None, "", ""
        job.time = max(job.record.run_at or now, now)
        job.arrival = self.next()

    def finish(self, job: Job, state: State, now: datetime, **changes: Any) -> None:
        job.record = replace(job.record, finished_at=now, **changes)
        job.fixed, job.expires, job.token, job.worker = state, None, "", ""

    def settle(self, outcome: Any, now: datetime) -> str:
        job = self.jobs.get(outcome.lease.job_id)
        token = outcome.lease.token
        if job is None:
            return "JobNotFound"
        if job.settled == (token, type(outcome)):
            return "ok"
        if job.expires is None:
            return "JobNotInflight"
        if job.token != token:
            return "LeaseMismatch"
        if job.expires <= now:
            return "LeaseExpired"
        if isinstance(outcome, Ack):
            try:
                self.ack(job, outcome, now)
            except InvalidJob:
                return "InvalidJob"
        elif isinstance(outcome, Retry):
            lost = job.record.lost if outcome.attempts == job.record.attempts else 0
            self.join(job, now, run_at=outcome.run_at, attempts=outcome.attempts, lost=lost)
        elif isinstance(outcome, Fail):
            changes = {"reason": outcome.reason, "last_error": outcome.reason, "failed_at": now, "lost": 0}
            self.finish(job, State.DLQ, now, attempts=outcome.attempts, **changes)
        else:
            self.finish(job, State.CANCELLED, now, reason=outcome.reason, last_error=outcome.reason, lost=0)
        job.settled = (token, type(outcome))
        return "ok"

    def ack(self, job: Job, outcome: Ack, now: datetime) -> None:
        answers, fresh = self.plan(list(outcome.spawn))
        id = job.record.id
        dependents = sorted((one for one in self.jobs.values() if self.linked(one, id)), key=lambda one: one.stored)
        heir = None
        if outcome.handover is not None:
            stored = {spawned.id: answer[0] for spawned, answer in zip(outcome.spawn, answers, strict=True)}
            heir = stored.get(outcome.handover)
            if heir in self.jobs:
                heir = self.heir(heir)
            waiting = {one.record.id for one in dependents}
            if heir is None or heir == id or (waiting and (heir in waiting or self.reaches(fresh, heir, waiting))):
                raise InvalidJob("handover")
        self.finish(job, State.DONE, now, result=outcome.result, lost=0, handed_to=heir)
        if heir is not None:
            self.carry_out(fresh, now)
            for one in dependents:
                names = tuple(heir if name == id else name for name in one.record.depends_on)
                one.record = replace(one.record, depends_on=names)
                one.edges = {
                    name: self.jobs[heir] if name == heir else one.edges[name]
                    for name in names
                    if name == heir or name in one.edges
                }
        for one in dependents:
            if one.fixed is State.BLOCKED and not self.open_of(one):
                self.join(one, now)
        if heir is None:
            self.carry_out(fresh, now)

    # reserve

    def held(self, queue: str, group: str, now: datetime) -> int:
        members = [job for job in self.jobs.values() if (job.record.queue, job.record.group) == (queue, group)]
        return sum(job.state(now) is State.INFLIGHT for job in members)

    def legal(self, queue: str, now: datetime) -> set[str]:
        """The ids of which any may be reserved next: the head of the line, and of each group that has room."""
        if queue in self.paused:
            return set()
        heads: dict[str | None, Job] = {}
        for job in self.jobs.values():
            group = job.record.group
            if job.record.queue != queue or job.state(now) is not State.READY:
                continue
            if group is not None and self.held(queue, group, now) >= self.limits.get((queue, group), 1):
                continue
            if group not in heads or job.place() < heads[group].place():
                heads[group] = job
        return {job.record.id for job in heads.values()}

    def grant(self, id: str, lease: Lease, worker: str) -> None:
        job = self.jobs[id]
        changes: dict[str, Any] = {"deliveries": job.record.deliveries + 1}
        if job.expires is not None:
            changes |= {"lost": job.record.lost + 1, "run_at": None}
        job.record = replace(job.record, **changes)
        job.token, job.worker, job.expires, job.settled = lease.token, worker, lease.expires_at, None

    # admin

    def requeue(self, id: str, now: datetime, run_at: datetime | None) -> str:
        job = self.jobs.get(id)
        if job is None:
            return "JobNotFound"
        if job.fixed not in (State.DLQ, State.CANCELLED):
            return "WrongState"
        self.cancelled_flows.discard(job.record.flow_id or "")
        job.record = replace(job.record, reason="", finished_at=None, lost=0, run_at=run_at)
        self.link(job)
        if self.open_of(job):
            job.fixed = State.BLOCKED
        else:
            self.join(job, now)
        return "ok"

    def cancel(self, id: str, now: datetime, reason: str = "cancelled") -> str:
        job = self.jobs.get(id)
        if job is None:
            return "JobNotFound"
        if job.fixed in (State.DONE, State.DLQ):
            return "WrongState"
        if job.fixed is not State.CANCELLED:
            self.finish(job, State.CANCELLED, now, reason=reason)
        return "ok"

    def delete(self, id: str) -> str:
        if id not in self.jobs:
            return "JobNotFound"
        if self.needed(id):
            return "WrongState"
        self.forget(id)
        return "ok"

    def forget(self, id: str) -> None:
        flow = self.jobs.pop(id).record.flow_id
        if not any(job.record.flow_id == flow for job in self.jobs.values()):
            self.cancelled_flows.discard(flow or "")

    def prunable(self, before: datetime) -> dict[str, datetime]:
        open_flows = {
            job.record.flow_id for job in self.jobs.values() if job.fixed not in (State.DONE, State.CANCELLED)
        }
        return {
            id: job.record.finished_at
            for id, job in self.jobs.items()
            if job.fixed in (State.DONE, State.CANCELLED)
            and job.record.finished_at is not None
            and job.record.finished_at < before
            and not self.needed(id)
            and (job.record.flow_id is None or job.record.flow_id not in open_flows)
        }
