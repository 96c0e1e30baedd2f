"""What idle workers cost, and what a job costs beside them: commands and scripts counted by the server, as ceilings."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis import RedisDriver
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)
PAUSE_S = 60.0  # between two reserves of a worker that gets hints


class Looks:
    """Counts when a driver that waits looks for itself and finds something: a reserve follows, for which it had no
    hint. On a busy machine a job lies there for long enough to be seen by many."""

    def __init__(self) -> None:
        self.found = 0

    def watch(self, driver: RedisDriver) -> None:
        poll = driver.opened.hints._poll

        async def counted(queues: Sequence[str]) -> float | None:
            seconds = await poll(queues)
            self.found += seconds is not None and seconds <= 0
            return seconds

        driver.opened.hints._poll = counted


class Idle:
    """A driver that does what an idle worker does: reserve, and wait."""

    def __init__(self, dsn: str, done: dict[str, int]) -> None:
        self.driver = RedisDriver(f"{dsn}?checks=0")
        self.done = done
        self.rests = 0
        self.rested = asyncio.Event()

    async def serve(self) -> None:
        while True:
            held = await self.driver.reserve(["q"], NOW, LEASE, 1)
            for each in held:
                assert await self.driver.settle([Ack(each.lease)], NOW) == [None]
                self.done[each.job.id] = self.done.get(each.job.id, 0) + 1
            if not held:
                self.rests += 1
                self.rested.set()
                await self.driver.wait(["q"], PAUSE_S)


@pytest.fixture
def server() -> servers.Server:
    emptied()
    return servers.shared()


def scripts(server: servers.Server) -> int:
    with server.client(decode_responses=True) as client:
        stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


@pytest.mark.parametrize("workers", [1, 20, 100])
def test_a_job_wakes_as_many_workers_as_can_take_it(server, workers):
    """Enqueue, reserve, ack, and the reserve that finds nothing more."""
    jobs, looks = 20, Looks()

    async def story() -> None:
        before, done = 0, dict[str, int]()
        idle = [Idle(server.url, done) for _ in range(workers)]
        sender = RedisDriver(f"{server.url}?checks=0")
        await sender.open()
        tasks = []
        try:
            for each in idle:
                await each.driver.open()
                each.driver.opened.housekeeper.serve = lambda *_: None  # type: ignore[method-assign]  # counted elsewhere
                if workers == 100:
                    looks.watch(each.driver)
                tasks.append(asyncio.create_task(each.serve()))
            async with asyncio.timeout(60):
                for each in idle:
                    await each.rested.wait()
                while not all(each.driver.opened.hints.is_listening() for each in idle):
                    await asyncio.sleep(0)
                for number in range(-2, jobs):  # the first ones make the scripts known
                    before = scripts(server) if number == 0 else before
                    await sender.enqueue([JobRecord(id=f"j{number}", type="t", queue="q", created_at=NOW)], NOW)
                    while f"j{number}" not in done:
                        await asyncio.sleep(0)
                spent = scripts(server) - before
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for driver in [sender, *(each.driver for each in idle)]:
                await driver.close()
        assert done == {f"j{number}": 1 for number in range(-2, jobs)}
        assert spent <= 5 * jobs + looks.found

    asyncio.run(story())
