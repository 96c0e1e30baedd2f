"""Several clients at once on flows over several hash slots of a Cluster, at random, and what must hold then.

Clients enqueue flows with keys that others use too, with dependencies on jobs of other flows; they reserve, ack, hand
over to jobs that they spawn, fail, cancel jobs and whole flows. Some die in the middle of an enqueue and never come
back. Between two exchanges with a server a client may stand still while the others go on. When nothing is left to run,
the record of what was reserved and acked is held against the store.
"""

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    Driver,
    Fail,
    InvalidJob,
    JobInfo,
    JobRecord,
    Reserved,
)
from taskharbor.drivers.redis import RedisDriver
from tests.drivers.redis_stores import visit_all

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(hours=1)
QUEUES = ("north", "east", "south", "west")
KEYS = 2  # at a time: few, so that clients meet on them
SHARE = 16  # jobs that are made before the keys change, so that clients meet on unused ones
TURNS = 30  # of the event loop, for which a client stands still at most


class Dead(BackendUnavailable):
    """The client is gone: whatever it would have sent is not sent."""


class World:
    """What the clients did, in the order in which they did it."""

    def __init__(self, seed: int) -> None:
        self.chances = random.Random(seed)
        self.made: dict[str, JobRecord] = {}
        self.acknowledged: list[str] = []
        self.events: list[tuple[str, str]] = []  # ("reserved", id) and ("acked", id)
        self.heirs: dict[str, str] = {}  # acked job → the job that it was handed over to, as the client named it

    def job(self, *depends_on: str, **fields: Any) -> JobRecord:
        id, key = f"{len(self.made):05d}", fields.get("idempotency_key")
        queue = QUEUES[zlib.crc32(key.encode()) % len(QUEUES)] if key else self.chances.choice(QUEUES)
        made = JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW, **fields)
        self.made[id] = made
        return made

    def key(self, kind: str) -> str | None:
        """A key that others use too, or none. Those of heirs are their own: they depend on nothing, so that no two
        flows wait for each other."""
        number = len(self.made) // SHARE * KEYS + self.chances.randrange(KEYS)
        return f"{kind}{number}" if self.chances.random() < 0.5 else None


def unsteady(driver: RedisDriver, chances: random.Random, dies_after: int | None = None) -> RedisDriver:
    """The client stands still before some of its exchanges; after `dies_after` of them it is dead."""
    endpoint = driver.store.endpoint
    real = endpoint._send
    left = dies_after

    async def send(*given: Any, **named: Any) -> Any:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                raise Dead("the client is dead")
        for _ in range(chances.randrange(TURNS) if chances.random() < 0.5 else 0):
            await asyncio.sleep(0)
        return await real(*given, **named)

    endpoint._send = send  # type: ignore[method-assign]  # replaced for the test
    return driver


class Client:
    """One of them."""

    def __init__(
        self, world: World, driver: RedisDriver, mortal: Callable[[], Coroutine[Any, Any, RedisDriver]]
    ) -> None:
        self.world = world
        self.driver = driver
        self.mortal = mortal

    async def live(self, turns: int) -> None:
        chances = self.world.chances
        for _ in range(turns):
            step = chances.choices(
                [self.enqueue, self.die, self.work, self.cancel, self.cancel_flow], weights=[8, 2, 12, 1, 1]
            )[0]
            await step()

    def _flow(self) -> list[JobRecord]:
        """A chain or a join over several queues; steps may have keys, the first may wait for another client's job."""
        world, chances = self.world, self.world.chances
        flow = f"flow{len(world.made)}" if chances.random() < 0.8 else None
        outside = tuple(chances.sample(world.acknowledged, min(len(world.acknowledged), chances.randrange(2))))
        first = world.job(*outside, flow_id=flow, idempotency_key=None if outside else world.key("k"))
        jobs = [first]
        for _ in range(chances.randrange(1, 4)):
            before = chances.sample(jobs, chances.randrange(1, min(len(jobs), 2) + 1))
            jobs.append(world.job(*[job.id for job in before], flow_id=flow, idempotency_key=world.key("k")))
        chances.shuffle(jobs)
        return jobs

    async def enqueue(self) -> None:
        jobs = self._flow()
        try:
            answers = await self.driver.enqueue(jobs, NOW)
        except InvalidJob:  # of two jobs with the same key one depends on the other
            return
        self.world.acknowledged += [answer.id for answer in answers]

    async def die(self) -> None:
        """A client is killed in the middle of an enqueue, and no client sends it again."""
        doomed = await self.mortal()
        try:
            await doomed.enqueue(self._flow(), NOW)
        except (Dead, InvalidJob):
            pass
        finally:
            await doomed.close()

    async def work(self) -> None:
        chances = self.world.chances
        for held in await self.driver.reserve(chances.sample(QUEUES, 2), NOW, LEASE, chances.randrange(1, 3)):
            self.world.events.append(("reserved", held.job.id))
            await self._settle(held)

    async def _settle(self, held: Reserved) -> None:
        world, chances, id = self.world, self.world.chances, held.job.id
        if chances.random() < 0.03:
            await self.driver.settle([Fail(held.lease, "broken", 1, NOW)], NOW)
            return
        spawn: tuple[JobRecord, ...] = ()
        heir = None
        if chances.random() < 0.3 and len(world.made) < 2000:
            flow = held.job.flow_id
            spawn = (world.job(flow_id=flow), world.job(flow_id=flow, idempotency_key=world.key("h")))
            if chances.random() < 0.7 and not (held.job.idempotency_key or "").startswith("h"):
                heir = spawn[1].id
        world.events.append(("acked", id))
        if heir is not None:
            world.heirs[id] = heir
        (answer,) = await self.driver.settle([Ack(held.lease, b"r", spawn, heir)], NOW)
        if isinstance(answer, InvalidJob):  # the heir that it names waits for it
            world.heirs.pop(id, None)
            (answer,) = await self.driver.settle([Ack(held.lease, b"r")], NOW)
        assert answer is None or (await self.driver.inspect(id, NOW)).state == "cancelled", repr(answer)

    async def cancel(self) -> None:
        if self.world.acknowledged:
            await self.driver.cancel([self.world.chances.choice(self.world.acknowledged)], NOW)

    async def cancel_flow(self) -> None:
        if self.world.acknowledged:
            flow = self.world.made[self.world.chances.choice(self.world.acknowledged)].flow_id
            if flow is not None:
                await self.driver.cancel_flow(flow, NOW)


async def story(dsn: str, seed: int, clients: int, turns: int) -> tuple[int, int]:
    """Let them live, run what is left, and check. Returns the number of jobs, and how many of them ran."""
    world = World(seed)
    opened: list[RedisDriver] = []

    async def made(dies_after: int | None = None) -> RedisDriver:
        driver = RedisDriver(dsn)
        await driver.open()
        opened.append(driver)
        return unsteady(driver, world.chances, dies_after)

    async def mortal() -> RedisDriver:
        return await made(world.chances.randrange(1, 40))

    try:
        crowd = [Client(world, await made(), mortal) for _ in range(clients)]
        await asyncio.gather(*(client.live(turns) for client in crowd))
        last = crowd[0]
        while await finish(last):
            pass
        await look(world, last.driver)
    finally:
        for driver in opened:
            await driver.close()
    return len(world.made), len(world.events) // 2


async def finish(client: Client) -> int:
    """Deliver what the dead left, and run what is ready; returns the number of jobs run."""
    await visit_all(client.driver.store, QUEUES, int(NOW.timestamp() * 1000))
    before = len(client.world.events)
    for held in await client.driver.reserve(QUEUES, NOW, LEASE, 50):
        client.world.events.append(("reserved", held.job.id))
        await client._settle(held)
    return len(client.world.events) - before


async def look(world: World, driver: Driver) -> None:
    """What must hold."""
    stored: dict[str, JobInfo] = {}
    for queue in QUEUES:
        page = await driver.list(queue=queue, now=NOW, limit=10_000)
        stored |= {info.job.id: info for info in page.items}
    for id in world.acknowledged:
        assert id in stored, f"{id} was acknowledged and is not stored"
    runs = Counter(id for what, id in world.events if what == "reserved")
    assert {id: count for id, count in runs.items() if count > 1} == {}, "reserved more than once"
    for id, info in stored.items():
        assert info.state in {"done", "dlq", "cancelled", "blocked"}, (
            f"{id} is {info.state}, and nothing moves any more"
        )
        if info.state == "blocked":
            assert waits_for_reason(stored, id), f"{id} is blocked for ever: {reason(stored, id)}"
    check_order(world, stored)


def reason(stored: dict[str, JobInfo], id: str) -> str:
    return ", ".join(
        f"{one} is {stored[one].state if one in stored else 'not stored'}" for one in stored[id].waiting_for
    )


def waits_for_reason(stored: dict[str, JobInfo], id: str) -> bool:
    """Whether a blocked job waits, over however many others, for one that is dead or cancelled; each must be there."""
    path, seen, found = [id], {id}, False
    while path:
        info = stored[path.pop()]
        if not info.waiting_for:
            return False
        for one in info.waiting_for:
            if one not in stored or stored[one].state == "done":
                return False
            if stored[one].state in {"dlq", "cancelled"}:
                found = True
            elif one not in seen:
                seen.add(one)
                path.append(one)
    return found


def check_order(world: World, stored: dict[str, JobInfo]) -> None:
    """No job was reserved before all that it depends on were acked, and those that took their places."""
    holders: dict[tuple[str, str | None], str] = {
        (info.job.queue, info.job.idempotency_key): id for id, info in stored.items() if info.job.idempotency_key
    }
    acked: set[str] = set()
    for what, id in world.events:
        if what == "acked":
            acked.add(id)
            continue
        for named in world.made[id].depends_on:
            dependency: str | None = named
            while dependency is not None:
                if dependency not in stored:  # its key was taken
                    job = world.made[dependency]
                    dependency = holders[job.queue, job.idempotency_key]
                assert dependency in acked, f"{id} was reserved before {dependency}, for which it waited as {named}"
                dependency = world.heirs.get(dependency)
