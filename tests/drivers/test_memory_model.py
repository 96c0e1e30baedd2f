"""The memory driver against a model that knows no index, no heap and no counter: it looks at every job each time.

Random calls with clocks that also go back; after each call every answer, every job as it reads and all counts are
compared, and the driver's own bookkeeping is counted again by hand. Which lane comes first is the driver's choice:
the model checks that each reserved job was a legal one, and that nothing runnable was left when there was room.
"""

import asyncio
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor.conformance.model import START, Model
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
from tests.drivers.memory_recount import recount


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
            # A spawn is made before the outcomes of its batch are applied, as by a worker: what it names may be gone.
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
