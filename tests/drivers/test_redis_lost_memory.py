"""Any key of the driver is deleted, holds another type of value, or is what it was some time ago, at random moments
under load: no job runs with wrong data or before what it depends on, and within a bounded number of rounds all that is
there has run, ended, and can be pruned."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Reserved, Retry
from taskharbor.drivers.base import DAMAGED_PREFIX
from taskharbor.drivers.redis.housekeeping import visit
from tests import lanes
from tests.drivers.redis_stores import live

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = ("a", "b", "c")
LEASE = timedelta(seconds=30)
STEPS = 60
ROUNDS = 30  # of sweeps and visits, in which everything heals


class Load:
    """Jobs of every kind, and workers on them. `harmed`: what is written on a key that was damaged."""

    def __init__(self, driver: Any, client: Any, chance: random.Random) -> None:
        self.driver, self.client, self.chance = driver, client, chance
        self.now, self.made = NOW, 0
        self.jobs: dict[str, JobRecord] = {}
        self.done: set[str] = set()
        self.harmed: set[bytes] = set()
        self.old: dict[bytes, bytes] = {}  # key → what it was
        self.held: list[Reserved] = []

    def job(self, *depends_on: str, **fields: Any) -> JobRecord:
        self.made += 1
        id = f"j{self.made:04}"
        queue = self.chance.choice(QUEUES)
        job = JobRecord(
            id=id, type="t", queue=queue, payload=id.encode(), depends_on=depends_on, created_at=self.now, **fields
        )
        self.jobs[id] = job
        return job

    async def enqueue(self) -> None:
        kind, flow = self.chance.randrange(5), f"f{self.made}"
        if kind == 0:
            jobs = [self.job() for _ in range(3)]
        elif kind == 1:
            jobs = [
                self.job(group=self.chance.choice("gh"), group_limit=1),
                self.job(priority=self.chance.choice((-1, 5))),
            ]
        elif kind == 2:
            jobs = [
                self.job(run_at=self.now + timedelta(seconds=self.chance.randrange(20))),
                self.job(idempotency_key=flow),
            ]
        else:
            first = self.job(flow_id=flow)
            middle = [self.job(first.id, flow_id=flow) for _ in range(self.chance.randrange(1, 4))]
            jobs = [first, *middle, self.job(*(one.id for one in middle), flow_id=flow)]
        await self.driver.enqueue(jobs, self.now)

    async def reserve(self, limit: int = 3) -> int:
        found = await self.driver.reserve(QUEUES, self.now, LEASE, limit)
        for item in found:
            given = self.jobs[item.job.id]
            assert (item.job.payload, item.job.queue) == (given.payload, given.queue)
            for dependency in given.depends_on:
                assert dependency in self.done or self.is_harmed(item.job.id, dependency), f"{item.job.id} ran early"
        self.held += found
        return len(found)

    def is_harmed(self, *ids: str) -> bool:
        """Whether a key that says something of these jobs was damaged."""
        return any(id.encode() in key for id in ids for key in self.harmed)

    async def settle(self, outcome: Callable[[Reserved], Any]) -> None:
        some, self.held = self.held, []
        outcomes = [outcome(item) for item in some]
        for one, refused in zip(outcomes, await self.driver.settle(outcomes, self.now), strict=True) if some else ():
            if refused is None and isinstance(one, Ack):
                self.done.add(one.lease.job_id)

    def any_outcome(self, item: Reserved) -> Any:
        return self.chance.choice(
            [Ack(item.lease, b"1")] * 6 + [Retry(item.lease, None, 1), Fail(item.lease, "no", 1, self.now)]
        )

    def keys(self) -> list[bytes]:
        """All that a driver wrote, but not what only says which client did something last."""
        return sorted(key for key in self.client.scan_iter(count=1000) if not key.endswith(b":tended"))

    def remember(self) -> None:
        self.old |= {key: value for key in self.keys() if (value := self.client.dump(key))}

    def damage(self, how: str) -> None:
        key = self.chance.choice([key for key in self.keys() if how != "wrong type" or not key.startswith(b"{th}:")])
        self.harmed.add(key)
        if how == "put back" and key in self.old:
            self.client.restore(key, 0, self.old[key], replace=True)
            return
        kind = self.client.type(key)
        self.client.delete(key)
        if how == "wrong type":
            self.client.set(key, "text") if kind != b"string" else self.client.rpush(key, "text")

    async def heal(self) -> None:
        """What workers do in some minutes, at once."""
        ms = int(self.now.timestamp() * 1000)
        for queue in QUEUES:
            await visit(self.driver.store, queue, ms, 0, compare_every_s=0)
            await self.driver.opened.sweeper.sweep(queue, ms)

    async def end(self) -> None:
        """Everything runs that can."""
        for _ in range(ROUNDS):
            await self.heal()
            self.now += 2 * LEASE
            while await self.reserve(50):
                await self.settle(lambda item: Ack(item.lease, b"1"))
            dead = await self.driver.list(state="dlq", limit=500, now=self.now)
            damaged = [info.job.id for info in dead.items if info.job.reason.startswith(DAMAGED_PREFIX)]
            await self.driver.requeue([info.job.id for info in dead.items if info.job.id not in damaged], self.now)
            # A person has looked at them: what waits for one cannot run.
            waiting = [id for id, job in self.jobs.items() if set(job.depends_on) & set(damaged)]
            await self.driver.cancel(waiting, self.now)
            await self.driver.delete(damaged)


async def story(driver: Any, client: Any, seed: int, how: str) -> None:
    load = Load(driver, client, random.Random(seed))
    for step in range(STEPS):
        load.now += timedelta(seconds=1)
        await load.enqueue()
        await load.reserve()
        if load.chance.randrange(3):
            await load.settle(load.any_outcome)
        if step % 10 == 5:
            load.remember()
        if step > 20 and load.chance.randrange(3) == 0:
            load.damage(how)
        if step % 7 == 0:
            await load.heal()
    await load.end()
    left = {}
    for id, job in load.jobs.items():
        if client.type(f"{{{job.queue}}}:job:{id}") == b"hash":
            left[id] = (await driver.inspect(id, load.now)).state
    assert {id: state for id, state in left.items() if state not in ("done", "cancelled")} == {}
    far = load.now + timedelta(days=90)
    for _ in range(3):
        await driver.prune(far, 10_000)
        await load.heal()
    assert [id for id, job in load.jobs.items() if client.type(f"{{{job.queue}}}:job:{id}") == b"hash"] == []


@pytest.mark.left_to("full", except_for=lanes.Chosen("redis7-deleted", "redis7-put back", "cluster-put back"))
@pytest.mark.parametrize("how", ["deleted", "put back", "wrong type"])
@pytest.mark.parametrize("server", ["redis7", "cluster"])
def test_whatever_was_lost_heals(server, how):
    for seed in range(lanes.seed(), lanes.seed() + lanes.figure(test=1, full=20)):
        try:
            live(lambda driver, client: story(driver, client, seed, how), server, housekeeping=False)  # noqa: B023  # called at once
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
