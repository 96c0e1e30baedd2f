"""Queue figures: read from the store at a scrape, within bounds, and never the payloads."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from taskharbor.drivers import Driver, Fail, JobRecord, Page, QueueHead, Retry
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.observe.prometheus import QueueCollector, serve
from taskharbor.observe.prometheus.queues import MAX_COUNTED_JOBS
from taskharbor.testing import ManualClock
from tests.observe.scrape import Samples, fetch, only, parse, read, value

CANARY = "c4n4ry"
JOBS, AGE, UP = "taskharbor_queue_jobs", "taskharbor_queue_oldest_ready_age_seconds", "taskharbor_store_up"
COMPLETE, CAP = "taskharbor_queue_figures_complete", "taskharbor_queue_jobs_cap"


class Watched(MemoryDriver):
    """A memory driver that notes, for all its siblings, what was asked of it, and takes or refuses its time."""

    def __init__(self, dsn: str = "memory://", parent: "Watched | None" = None) -> None:
        super().__init__(dsn)
        self.parent = self if parent is None else parent
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.before_counting: Any = None
        self.before_heads: Any = None
        self.open_ones = 0
        self.unknown: set[str] = set()  # queues of which it cannot tell how long the oldest waits

    def sibling(self) -> "Watched":
        other = Watched(parent=self.parent)
        other.store = self.store
        return other

    async def open(self) -> None:
        self.parent.open_ones += 1
        await super().open()

    async def close(self) -> None:
        self.parent.open_ones -= 1
        await super().close()

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        assert 0 < (cap or 0) <= MAX_COUNTED_JOBS, "a scrape must not count millions"
        self.parent.asked.append(("counts",))
        if self.parent.before_counting is not None:
            await self.parent.before_counting()
        return await super().counts(now, cap)

    async def server_time(self) -> datetime:
        if self.parent.error is not None:
            raise self.parent.error
        return await super().server_time()

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        self.parent.asked.append(("heads", *queues))
        if self.parent.before_heads is not None:
            await self.parent.before_heads()
        found = await super().heads(queues, now, n)
        unknown = self.parent.unknown
        return [QueueHead(head.queue, oldest_known=False) if head.queue in unknown else head for head in found]

    async def list(self, **options: Any) -> Page:
        raise AssertionError("a page is no answer")


class World:
    def __init__(self, **options: Any) -> None:
        self.driver = Watched()
        self.clock = ManualClock()
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(QueueCollector(self.driver, clock=self.clock, **options))

    def enqueue(self, *jobs: JobRecord) -> None:
        asyncio.run(self.driver.enqueue(jobs, self.clock.now()))

    async def take(self, queue: str) -> Any:
        (reserved,) = await self.driver.reserve([queue], self.clock.now(), timedelta(seconds=30), 1)
        return reserved

    def read(self) -> Samples:
        return read(self.registry)


@pytest.fixture
def world() -> World:
    return World()


def job(id: str, queue: str = "mail", **fields: Any) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, payload=CANARY.encode(), metadata={CANARY: CANARY}, **fields)


def test_registering_does_not_read_the_store(world: World):
    assert world.driver.asked == []


def test_depth_by_queue_and_state_includes_zeros(world: World):
    later = world.clock.now() + timedelta(hours=1)
    world.enqueue(job("a"), job("b"), job("c", run_at=later), job("d", "heavy"), job("e", depends_on=("a",)))

    async def some_end() -> None:
        reserved = await world.take("heavy")
        await world.driver.settle([Fail(reserved.lease, CANARY, 1, world.clock.now())], world.clock.now())
        await world.take("mail")

    asyncio.run(some_end())
    found = only(world.read(), JOBS)
    assert {key: number for key, number in found.items() if number} == {
        ("mail", "ready"): 1,
        ("mail", "inflight"): 1,
        ("mail", "scheduled"): 1,
        ("mail", "blocked"): 1,
        ("heavy", "dlq"): 1,
    }
    assert len(found) == 2 * 7
    assert CANARY not in generate_latest(world.registry).decode()


def test_the_age_is_that_of_the_oldest_ready_job(world: World):
    start = world.clock.now()
    world.enqueue(job("a", run_at=start + timedelta(seconds=90)))  # the oldest id, but due last
    world.clock.advance(60)
    world.enqueue(job("b"), job("z", "idle", run_at=start + timedelta(hours=1)))
    world.clock.advance(60)
    assert only(world.read(), AGE) == {("mail",): 60, ("idle",): 0}


def test_a_retried_job_waits_since_it_failed(world: World):
    world.enqueue(job("a"))
    world.clock.advance(600)

    async def fail() -> None:
        reserved = await world.take("mail")
        now = world.clock.now()
        await world.driver.settle([Retry(reserved.lease, None, 1, "no", now)], now)

    asyncio.run(fail())
    world.clock.advance(5)
    assert only(world.read(), AGE) == {("mail",): 5}


def test_what_is_not_known_has_no_sample(world: World):
    """Not 0, which would say that nothing waits; the other figures are there."""
    world.enqueue(job("a"), job("b", "huge"), job("c", "idle", run_at=world.clock.now() + timedelta(days=1)))
    world.driver.unknown = {"huge"}
    world.clock.advance(5)
    samples = world.read()
    assert only(samples, AGE) == {("mail",): 5, ("idle",): 0}
    assert only(samples, JOBS)[("huge", "ready")] == 1
    assert value(samples, UP) == 1


def test_one_read_serves_several_scrapes(world: World):
    world.enqueue(job("a"), job("b", "idle", run_at=world.clock.now() + timedelta(days=1)))
    world.read()
    world.enqueue(job("c"))
    assert only(world.read(), JOBS)[("mail", "ready")] == 1
    assert world.driver.asked == [("counts",), ("heads", "mail")]  # none for a queue without ready jobs
    world.clock.advance(15)
    assert only(world.read(), JOBS)[("mail", "ready")] == 2
    assert world.driver.asked.count(("counts",)) == 2


def test_slow_reads_are_rarer(world: World):
    async def slow() -> None:
        world.clock.advance(3)

    world.driver.before_counting = slow
    world.read()
    for _ in range(3):
        world.clock.advance(19)
        world.read()
    assert world.driver.asked.count(("counts",)) == 1
    world.clock.advance(15)
    world.read()
    assert world.driver.asked.count(("counts",)) == 2


def test_whether_the_store_answers_is_known_while_slow_figures_rest(world: World):
    async def slow() -> None:
        world.clock.advance(4)

    world.enqueue(job("a"))
    world.driver.before_counting = slow
    assert value(world.read(), UP) == 1
    world.driver.error = OSError()
    world.clock.advance(15)
    assert world.read() == {(UP, ()): 0}
    world.driver.error = None
    world.clock.advance(15)
    samples = world.read()  # it is back, and so are the figures
    assert (value(samples, UP), only(samples, JOBS)[("mail", "ready")]) == (1, 1)


@pytest.mark.parametrize("error", [OSError(CANARY), RuntimeError(CANARY)])
def test_a_store_that_is_away_is_down_and_has_no_figures(world: World, error: Exception):
    world.enqueue(job("a"))
    assert value(world.read(), UP) == 1
    world.driver.error = error
    world.clock.advance(15)
    assert world.read() == {(UP, ()): 0}
    world.driver.error = None
    world.clock.advance(15)
    assert value(world.read(), UP) == 1
    assert world.driver.open_ones == 0


async def never() -> None:
    await asyncio.Event().wait()


async def broken() -> None:
    raise OSError(CANARY)


@pytest.mark.parametrize("trouble", [never, broken])
def test_figures_that_are_not_there_in_time_do_not_mean_that_the_store_is_down(trouble: Any):
    world = World(timeout=0.01)
    world.enqueue(job("a"))
    world.driver.before_heads = trouble
    samples = world.read()
    assert (value(samples, UP), value(samples, COMPLETE)) == (1, 0)
    assert only(samples, JOBS)[("mail", "ready")] == 1  # what was read is shown
    assert only(samples, AGE) == {}
    assert world.driver.open_ones == 0
    world = World(timeout=0.01)
    world.driver.before_counting = trouble
    samples = world.read()
    assert (value(samples, UP), value(samples, COMPLETE), only(samples, JOBS)) == (1, 0, {})


def test_beside_many_queues_each_is_counted_less_far(world: World):
    world.enqueue(job("a"))
    assert value(world.read(), CAP) == MAX_COUNTED_JOBS
    world = World()
    world.enqueue(*(job(f"j{number}", f"q{number}") for number in range(100)))
    assert value(world.read(), CAP) == 10_000


def test_queues_are_bounded():
    world = World(max_queues=2)
    world.enqueue(*(job(f"j{number}", f"q{number}") for number in range(9)))
    found = only(world.read(), JOBS)
    assert {queue for queue, _ in found} == {"q0", "q1", "other"}
    assert found[("other", "ready")] == 7
    assert only(world.read(), AGE).keys() == {("q0",), ("q1",)}
    assert ("heads", "q0", "q1") in world.driver.asked
    asyncio.run(world.driver.delete(["j0"]))
    world.clock.advance(15)
    assert {queue for queue, _ in only(world.read(), JOBS)} == {"q1", "q2", "other"}  # a place became free


def test_it_may_be_scraped_on_a_running_loop(world: World):
    world.enqueue(job("a"))

    async def scrape() -> Samples:
        return world.read()

    assert value(asyncio.run(scrape()), UP) == 1


# Over HTTP


def served(driver: Driver, **options: Any) -> contextlib.closing[Any]:
    return contextlib.closing(serve(0, driver, registry=CollectorRegistry(), **options))


def test_metrics_are_served_and_the_port_is_free_again_afterwards(world: World):
    world.enqueue(job("a"))
    with served(world.driver, clock=world.clock) as server:
        samples = parse(fetch(server.port))
        port = server.port
        with pytest.raises(OSError, match=rf"metrics: 127\.0\.0\.1:{port}: .*; choose another"):
            serve(port)
    assert value(samples, JOBS, queue="mail", state="ready") == 1
    with pytest.raises(OSError, match="refused"):
        fetch(port)
    with contextlib.closing(serve(port, registry=CollectorRegistry())):
        assert fetch(port) == ""


def test_a_store_may_be_added_later_and_the_first_one_counts(world: World):
    with contextlib.closing(serve(0, registry=CollectorRegistry())) as server:
        assert fetch(server.port) == ""
        server.watch(world.driver, world.clock)
        server.watch(MemoryDriver("memory://"))
        assert value(parse(fetch(server.port)), UP) == 1
    assert world.driver.asked == [("counts",)]


def test_a_port_opens_without_asking_for_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch):
    def without_dns(name: str = "") -> str:
        raise AssertionError("a lookup takes seconds where there is no DNS")

    monkeypatch.setattr("socket.getfqdn", without_dns)
    with contextlib.closing(serve(0, registry=CollectorRegistry(), address="0.0.0.0")) as server:
        assert server.port
