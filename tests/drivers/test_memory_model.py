"""The memory driver against a model that knows no index, no heap and no counter: it looks at every job each time.

Random calls with clocks that also go back; after each call every answer, every job as it reads and all counts are
compared, and the driver's own bookkeeping is counted again by hand. Which lane comes first is the driver's choice:
the model checks that each reserved job was a legal one, and that nothing runnable was left when there was room.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import (
    Ack,
    Cancelled,
    Fail,
    InvalidJob,
    JobRecord,
    Lease,
    Retry,
    State,
    TaskHarborError,
    replace,
)
from taskharbor.drivers.memory import MemoryDriver
from tests import lanes
from tests.drivers.test_memory_bookkeeping import recount

START = datetime(2030, 1, 1, tzinfo=UTC)
UNFINISHED = {State.BLOCKED, State.READY, State.SCHEDULED, State.INFLIGHT, State.DLQ}
FIXED = {State.BLOCKED, State.DONE, State.DLQ, State.CANCELLED}


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
        for job in fresh.values():
            self.jobs[job.id] = Job(job, self.next())
            if job.group and job.group_limit:
                self.limits.setdefault((job.queue, job.group), job.group_limit)
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


def names(answers: Any) -> list[str]:
    return [type(answer).__name__ if isinstance(answer, TaskHarborError) else "ok" for answer in answers]


class Walk:
    """One seeded walk of both side by side."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = MemoryDriver()
        self.model = Model()
        self.now = START
        self.leases: list[Lease] = []
        self.made = 0

    def tick(self) -> None:
        self.now += timedelta(seconds=self.random.choice([0, 0, 0, 1, 1, 2, 5, -1, -4]))

    def some_id(self) -> str:
        return self.random.choice([*self.model.jobs, "nobody"])

    def soon(self) -> datetime | None:
        return self.random.choice([None, None, self.now + timedelta(seconds=self.random.randint(-3, 6))])

    def job(self, near: list[str]) -> JobRecord:
        pick = self.random
        self.made += 1
        id = self.some_id() if pick.random() < 0.05 else f"{pick.randint(0, 9)}-{self.made}"
        known = [*near, *list(self.model.jobs)[-12:]]
        count = pick.choice([0, 0, 0, 0, 1, 2, 3]) if known else 0
        group = pick.choice([None, None, "g", "h", "i"])
        return JobRecord(
            id=id,
            type=pick.choice(["t", "u"]),
            queue=pick.choice(["a", "a", "b"]),
            run_at=self.soon(),
            priority=pick.choice([0, 0, 0, 1, -1]) if group is None else pick.randint(-5, 5),
            group=group,
            group_limit=pick.choice([0, 0, 0, 1, 2, 3]) if group else 0,
            idempotency_key=pick.choice([None, None, None, "k", "l", "m"]),
            depends_on=tuple(pick.choice([*known, "nobody"] if pick.random() < 0.02 else known) for _ in range(count)),
            flow_id=pick.choice([None, None, "f", f"f{self.made // 10}"]),
            metadata={"n": str(self.made)} if pick.random() < 0.3 else {},
            created_at=self.now,
        )

    def batch(self, size: int) -> list[JobRecord]:
        jobs: list[JobRecord] = []
        for _ in range(size):
            jobs.append(self.job([job.id for job in jobs]))
        if self.random.random() < 0.3:
            self.random.shuffle(jobs)
        return jobs

    def outcome(self, lease: Lease) -> Any:
        pick = self.random
        record = self.model.jobs[lease.job_id].record if lease.job_id in self.model.jobs else None
        attempts = record.attempts if record else 0
        kind = pick.random()
        if kind < 0.45:
            spawn = self.batch(pick.choice([0, 0, 0, 1, 2, 3]))
            if spawn and record and pick.random() < 0.5:
                spawn[0] = replace(spawn[0], depends_on=(record.id,))
            ids = [job.id for job in spawn]
            handover = pick.choice([None, *ids, *ids]) if pick.random() < 0.97 else "nobody"
            return Ack(lease, pick.choice([None, b"r"]), tuple(spawn), handover)
        if kind < 0.7:
            return Retry(lease, self.soon(), attempts + pick.randint(0, 1))
        if kind < 0.9:
            return Fail(lease, "bad", attempts + 1, self.now)
        return Cancelled(lease, "no")

    async def step(self) -> None:
        self.tick()
        pick, driver, model, now = self.random, self.driver, self.model, self.now
        verb = pick.choices(
            [
                "enqueue",
                "reserve",
                "settle",
                "extend",
                "release",
                "pause",
                "requeue",
                "cancel",
                "cancel_flow",
                "delete",
                "prune",
            ],
            [20, 25, 25, 5, 2, 2, 8, 4, 1, 3, 2],
        )[0]
        if verb == "enqueue":
            jobs = self.batch(pick.choice([1, 1, 2, 4]))
            try:
                expected, fresh = model.plan(jobs)
            except InvalidJob:
                with pytest.raises(InvalidJob):
                    await driver.enqueue(jobs, now)
            else:
                answers = await driver.enqueue(jobs, now)
                assert [(answer.id, answer.existed) for answer in answers] == expected
                model.carry_out(fresh, now)
        elif verb == "reserve":
            await self.reserve()
        elif verb == "settle":
            recent = self.leases[-8:]
            outcomes = [
                self.outcome(lease) for lease in pick.sample(recent, min(len(recent), pick.choice([1, 1, 2, 3])))
            ]
            # A spawn is made before the outcomes of its batch are applied, as by a worker: what it names may be gone by then.
            assert names(await driver.settle(outcomes, now)) == [model.settle(outcome, now) for outcome in outcomes]
            if pick.random() < 0.3:
                assert names(await driver.settle(outcomes, now)) == [model.settle(outcome, now) for outcome in outcomes]
        elif verb == "extend":
            span = timedelta(seconds=pick.randint(0, 8))
            for lease in pick.sample(self.leases[-6:], min(len(self.leases), 2)):
                answer = (await driver.extend([lease], now, span))[0]
                probe = model.jobs.get(lease.job_id)
                held = probe and probe.expires and probe.token == lease.token and probe.expires > now
                assert isinstance(answer, Lease) == bool(held)
                if held and probe and probe.expires:
                    probe.expires = max(probe.expires, now + span)
                    assert answer == Lease(lease.job_id, lease.queue, lease.token, probe.expires)
        elif verb == "release":
            keep = [lease.token for lease in pick.sample(self.leases, min(len(self.leases), 3))]
            held_jobs = [
                job
                for job in model.jobs.values()
                if job.worker == "w1" and job.state(now) is State.INFLIGHT and job.token not in keep
            ]
            assert await driver.release("w1", now, keep) == len(held_jobs)
            for job in sorted(held_jobs, key=lambda job: job.arrival):
                model.join(job, now, lost=job.record.lost + 1, run_at=None)
        elif verb == "pause":
            queue = pick.choice(["a", "b"])
            (model.paused.discard if queue in model.paused else model.paused.add)(queue)
            await (driver.pause if queue in model.paused else driver.resume)(queue)
        elif verb == "requeue":
            ids, run_at = [self.some_id(), self.some_id()], self.soon()
            dead = [id for id, job in model.jobs.items() if job.fixed in (State.DLQ, State.CANCELLED)]
            ids += pick.sample(dead, min(len(dead), 2))
            assert names(await driver.requeue(ids, now, run_at)) == [model.requeue(id, now, run_at) for id in ids]
        elif verb == "cancel":
            ids = [self.some_id(), self.some_id()]
            assert names(await driver.cancel(ids, now)) == [model.cancel(id, now) for id in ids]
        elif verb == "cancel_flow":
            members = {job.record.flow_id for job in model.jobs.values() if job.record.flow_id}
            flow = pick.choice([*sorted(members), "none"])
            open_ids = [
                id for id, job in model.jobs.items() if job.record.flow_id == flow and not job.state(now).terminal
            ]
            assert await driver.cancel_flow(flow, now) == len(open_ids)
            if flow in members:
                model.cancelled_flows.add(flow)
            for id in open_ids:
                model.cancel(id, now, "flow cancelled")
        elif verb == "delete":
            ids = [self.some_id() for _ in range(3)]
            assert names(await driver.delete(ids)) == [model.delete(id) for id in ids]
        else:
            await self.prune()
        await self.compare()

    async def reserve(self) -> None:
        pick, model, now = self.random, self.model, self.now
        queues, limit, worker = (
            pick.choice([["a"], ["b"], ["a", "b"], ["b", "c", "a"]]),
            pick.choice([1, 1, 2, 5]),
            pick.choice(["w1", "w2"]),
        )
        span = timedelta(seconds=pick.randint(0 if pick.random() < 0.05 else 1, 6))
        taken = await self.driver.reserve(queues, now, span, limit, worker)
        assert len(taken) <= limit
        for reserved in taken:
            id = reserved.job.id
            choices = model.legal(reserved.job.queue, now)
            assert id in choices
            assert reserved.lease == Lease(id, reserved.job.queue, reserved.lease.token, now + span)
            model.grant(id, replace_end(reserved.lease, now + timedelta(days=1)), worker)
            assert model.jobs[id].record == reserved.job
        if len(taken) < limit:
            assert not any(model.legal(queue, now) for queue in queues)
        for reserved in taken:  # until here held for long, so that a lease of no time is not taken twice by the model
            model.jobs[reserved.job.id].expires = reserved.lease.expires_at
            self.leases.append(reserved.lease)

    async def prune(self) -> None:
        before, limit = self.now - timedelta(seconds=self.random.randint(-2, 6)), self.random.choice([1, 3, 100])
        candidates = self.model.prunable(before)
        assert await self.driver.prune(before, limit) == min(limit, len(candidates))
        left = {info.job.id for info in (await self.driver.list(now=self.now, limit=10_000)).items}
        gone = set(self.model.jobs) - left
        assert gone <= set(candidates)
        kept = [at for id, at in candidates.items() if id in left]
        assert all(candidates[id] <= min(kept) for id in gone if kept)
        for id in gone:
            self.model.forget(id)

    async def compare(self) -> None:
        driver, model, now = self.driver, self.model, self.now
        if self.random.random() < 0.3:  # reading at another moment changes nothing
            now += timedelta(seconds=self.random.randint(-5, 5))
        page = await driver.list(now=now, limit=10_000)
        assert [info.job.id for info in page.items] == sorted(model.jobs)
        for info in page.items:
            job = model.jobs[info.job.id]
            state = job.state(now)
            record = (
                replace(job.record, run_at=None) if state is State.READY and job.expires is not None else job.record
            )
            assert (info.job, info.state) == (record, state)
            held = state is State.INFLIGHT
            assert (info.worker, info.lease_expires_at) == ((job.worker, job.expires) if held else ("", None))
            assert list(info.waiting_for) == (model.open_of(job) if state is State.BLOCKED else [])
        counted = Counter((job.record.queue, str(job.state(now))) for job in model.jobs.values())
        answer = await driver.counts(now)
        assert {(queue, state): n for queue, states in answer.items() for state, n in states.items()} == counted
        assert await driver.queues() == sorted({job.record.queue for job in model.jobs.values()} | model.paused)
        recount(driver.store)


def replace_end(lease: Lease, end: datetime) -> Lease:
    return Lease(lease.job_id, lease.queue, lease.token, end)


@pytest.mark.lane("machine-memory")
@pytest.mark.parametrize("number", range(lanes.figure(12, 400)))
def test_random_walk(number):
    walk = Walk(lanes.seed() + number)

    async def go():
        for _ in range(250):
            await walk.step()

    asyncio.run(go())
