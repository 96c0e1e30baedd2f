"""The memory driver against the model of the contract, with what the state machine does not have.

The clock also goes back, leases may last no time, prune has a limit, and reads are made at other moments than writes.
After each call the result, every job and all counts are compared, and the driver's own counters are counted again.
"""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.conformance.model import ContractModel
from taskharbor.drivers import (
    Ack,
    Amend,
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

START = datetime(2030, 1, 1, tzinfo=UTC)


def classes(results: Any) -> list[type[TaskHarborError] | None]:
    return [type(result) if isinstance(result, TaskHarborError) else None for result in results]


class Walk:
    """One seeded walk of both side by side."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = MemoryDriver()
        self.model = ContractModel()
        self.now = START
        self.leases: list[Lease] = []
        self.made = 0

    def tick(self) -> None:
        self.now += timedelta(seconds=self.random.choice([0, 0, 0, 1, 1, 2, 5, -1, -4]))

    def some_id(self) -> str:
        return self.random.choice([*self.model.jobs, "unknown"])

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
            depends_on=tuple(pick.choice([*known, "unknown"] if pick.random() < 0.02 else known) for _ in range(count)),
            flow_id=pick.choice([None, None, "f", f"f{self.made // 10}"]),
            metadata={"n": str(self.made)} if pick.random() < 0.3 else {},
            keep_for=pick.choice([None, None, None, self.driver.retention + timedelta(seconds=pick.randint(-4, 4))]),
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
        trail = pick.choice([b"", b"", b"%d" % self.made])
        if kind < 0.45:
            spawn = self.batch(pick.choice([0, 0, 0, 1, 2, 3]))
            if spawn and record and pick.random() < 0.5:
                spawn[0] = replace(spawn[0], depends_on=(record.id,))
            ids = [job.id for job in spawn]
            handover = pick.choice([None, *ids, *ids]) if pick.random() < 0.97 else "unknown"
            return Ack(lease, pick.choice([None, b"r"]), tuple(spawn), handover, trail)
        error = pick.choice([("", ""), (pick.choice("AB"), "f")])
        if kind < 0.7:
            return Retry(lease, self.soon(), attempts + pick.randint(0, 1), "", None, *error, trail)
        if kind < 0.9:
            return Fail(lease, "bad", attempts + 1, self.now, "", (), *error, trail)
        return Cancelled(lease, "no", trail)

    def change(self) -> Amend:
        pick = self.random
        id = self.some_id()
        job = self.model.jobs.get(id)
        seen = (job.record.deliveries, job.record.edits) if job is not None else (0, 0)
        changes: dict[str, Any] = pick.choice(
            [{}, {"run_at": self.soon()}, {"priority": pick.randint(-2, 2)}, {"payload": b"new"}, {"timeout": None}]
        )
        return Amend(id=id, deliveries=seen[0], edits=seen[1] + (pick.random() < 0.1), **changes)

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
                "amend",
            ],
            [20, 25, 25, 5, 2, 2, 8, 4, 1, 3, 2, 8],
        )[0]
        if verb == "enqueue":
            jobs = self.batch(pick.choice([1, 1, 2, 4]))
            try:
                expected = model.enqueue(jobs, now)
            except InvalidJob:
                with pytest.raises(InvalidJob):
                    await driver.enqueue(jobs, now)
            else:
                assert await driver.enqueue(jobs, now) == expected
        elif verb == "reserve":
            await self.reserve()
        elif verb == "settle":
            recent = self.leases[-8:]
            outcomes = [
                self.outcome(lease) for lease in pick.sample(recent, min(len(recent), pick.choice([1, 1, 2, 3])))
            ]
            # A spawn is made before the outcomes of its batch are applied, as by a worker: what it names may be gone.
            for _ in range(pick.choice([1, 1, 2])):
                assert classes(await driver.settle(outcomes, now)) == model.settle(outcomes, now)
        elif verb == "extend":
            span = timedelta(seconds=pick.randint(0, 8))
            leases = pick.sample(self.leases[-6:], min(len(self.leases), 2))
            notes = {lease.token: b"%d" % self.made for lease in leases[:1]}
            found = await driver.extend(leases, now, span, notes)
            assert [each if isinstance(each, Lease) else type(each) for each in found] == model.extend(
                leases, now, span, notes
            )
        elif verb == "release":
            keep = [lease.token for lease in pick.sample(self.leases, min(len(self.leases), 3))]
            assert await driver.release("w1", now, keep) == model.release("w1", now, keep)
        elif verb == "pause":
            queue = pick.choice(["a", "b"])
            (model.paused.discard if queue in model.paused else model.paused.add)(queue)
            await (driver.pause if queue in model.paused else driver.resume)(queue)
        elif verb == "requeue":
            ids, run_at, reset = [self.some_id(), self.some_id()], self.soon(), pick.random() < 0.3
            dead = [id for id, job in model.jobs.items() if job.lasting in (State.DLQ, State.CANCELLED)]
            ids += pick.sample(dead, min(len(dead), 2))
            assert classes(await driver.requeue(ids, now, run_at, reset)) == model.requeue(ids, now, run_at, reset)
        elif verb == "cancel":
            ids = [self.some_id(), self.some_id()]
            assert classes(await driver.cancel(ids, now)) == model.cancel(ids, now)
        elif verb == "cancel_flow":
            members = {job.record.flow_id for job in model.jobs.values() if job.record.flow_id}
            flow = pick.choice([*sorted(members), "none"])
            assert await driver.cancel_flow(flow, now) == model.cancel_flow(flow, now)
        elif verb == "delete":
            ids = [self.some_id() for _ in range(3)]
            assert classes(await driver.delete(ids)) == model.delete(ids)
        elif verb == "amend":
            changes = [self.change() for _ in range(pick.choice([1, 3]))]
            assert classes(await driver.amend(changes, now)) == model.amend(changes, now)
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
        model.follow(taken, queues, now, now + span, limit, worker)
        self.leases += [each.lease for each in taken]

    async def prune(self) -> None:
        before, limit = self.now - timedelta(seconds=self.random.randint(-2, 6)), self.random.choice([1, 3, 100])
        candidates = self.model.prunable(before)
        assert await self.driver.prune(before, limit) == min(limit, len(candidates))
        left = {info.job.id for info in (await self.driver.list(now=self.now, limit=10_000)).items}
        gone = set(self.model.jobs) - left
        assert gone <= set(candidates)
        for has_own in (False, True):  # each kind in its own order
            own = {id: at for id, at in candidates.items() if (self.model.jobs[id].record.keep_for is None) != has_own}
            kept = [at for id, at in own.items() if id in left]
            assert all(own[id] <= min(kept) for id in gone & own.keys() if kept)
        for id in gone:
            self.model.forget(id)

    async def compare(self) -> None:
        driver, model, now = self.driver, self.model, self.now
        if self.random.random() < 0.3:  # reading at another moment changes nothing
            now += timedelta(seconds=self.random.randint(-5, 5))
        page = await driver.list(now=now, limit=10_000)
        assert list(page.items) == model.listing(now)
        assert await driver.counts(now) == model.counts(now)
        assert await driver.queues() == model.queues()
        ids = list(model.jobs)[-5:]
        assert await driver.results(ids) == model.results(ids)
        assert await driver.upcoming(["a", "b"], now) == model.upcoming(["a", "b"], now)
        state, order = self.random.choice([None, *State]), self.random.choice(["id", "-id"])
        found = [
            each for queue in "ab" for each in (await driver.list(now=now, queue=queue, state=state, order=order)).items
        ]
        assert found == [each for queue in "ab" for each in model.search(now, queue, state, order=order)]
        assert list((await driver.flows(now=now, order=order)).items) == model.flows(now, order=order)
        recount(driver.store)


@pytest.mark.lane("machine-memory")
@pytest.mark.parametrize("number", range(lanes.figure(4, 150)))
def test_random_walk(number):
    walk = Walk(lanes.seed() + number)

    async def go():
        for _ in range(250):
            await walk.step()

    asyncio.run(go())
