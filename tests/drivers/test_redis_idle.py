"""What idle workers cost, and what a job costs beside them: commands and scripts counted by the server, as ceilings."""

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.clock import StoreClock
from taskharbor.model.times import from_ms
from taskharbor.worker import Worker
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


# Whole workers, on time that runs faster

FAST = 20
IDLE_S = 60.0  # of that time
MAX_A_SECOND = 4  # commands of a worker, those inside scripts included
SHARED = {"redis7": 100, "cluster": 300}  # commands of the one worker that sweeps, and tends what nobody serves
NOT_COUNTED = ("info", "cluster", "client", "hello", "role", "ping", "repl", "psync", "flush", "script", "subscribe")


class FastSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(timeout / FAST if timeout else timeout)


class FastLoop(asyncio.SelectorEventLoop):
    """Its seconds are short: what a worker does in a minute takes three seconds. A busy machine makes it do less."""

    def __init__(self) -> None:
        super().__init__(FastSelector())

    def time(self) -> float:
        return super().time() * FAST


class FastClock(StoreClock):
    def __init__(self) -> None:
        super().__init__()
        self._began_ms = time.time() * 1000 - time.monotonic() * 1000 * FAST
        self.monotonic = lambda: time.monotonic() * FAST

    def now(self) -> datetime:
        return from_ms(int(self._began_ms + self.monotonic() * 1000))

    def stale(self) -> bool:
        return False


def commands(nodes: Sequence[servers.Server]) -> Counter[str]:
    """What the primaries were asked to do since they began, by name."""
    found: Counter[str] = Counter()
    for node in nodes:
        with node.client(decode_responses=True) as client:
            if client.role()[0] == "master":
                stats = client.info("commandstats")
                found.update({name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()})
    return Counter({name: calls for name, calls in found.items() if not name.startswith(NOT_COUNTED)})


def spent_idle(url: str, nodes: Sequence[servers.Server], workers: int) -> Counter[str]:
    """Commands of idle workers in IDLE_S, after each of them has begun."""

    async def story() -> Counter[str]:
        idle = [
            Worker(f"{url}?checks=0&timeout=600s&connect_timeout=600s", clock=FastClock(), name=f"w{n}", heart="loop")
            for n in range(workers)
        ]
        running = [asyncio.create_task(each.arun()) for each in idle]
        seen = RedisDriver(f"{url}?checks=0&timeout=600s&connect_timeout=600s")
        await seen.open()
        while len(await seen.workers(await seen.server_time())) < workers:
            await asyncio.sleep(1)
        await seen.close()
        await asyncio.sleep(10)  # the first rounds are over
        before = commands(nodes)
        await asyncio.sleep(IDLE_S)
        spent = commands(nodes) - before
        for each in idle:
            each.hurry()
        await asyncio.gather(*running)
        return spent

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(story())


LARGE = pytest.mark.left_to("full")


@pytest.mark.parametrize("workers", [1, pytest.param(20, marks=LARGE), pytest.param(100, marks=LARGE)])
@pytest.mark.parametrize("kind", ["redis7", "cluster"])
def test_an_idle_worker_sends_few_commands(kind, workers):
    if kind == "cluster":
        cluster = servers.shared_cluster()
        cluster.empty()
        spent = spent_idle(cluster.url, cluster.nodes, workers)
    else:
        spent = spent_idle(emptied(), [servers.shared()], workers)
    assert spent.total() <= MAX_A_SECOND * IDLE_S * workers + SHARED[kind], spent
