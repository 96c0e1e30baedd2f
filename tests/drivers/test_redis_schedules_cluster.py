"""Schedules on a Cluster: a row and its jobs lie in different hash slots, and clients die, wait or send again."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import BackendUnavailable, JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.redis import RedisDriver, outbox
from taskharbor.drivers.redis.cluster_router import BUSY, ClusterRouter
from taskharbor.drivers.redis.housekeeping import visit
from taskharbor.drivers.redis.schedules import HOME
from taskharbor.model.times import to_ms
from tests import lanes
from tests.drivers.redis_stores import on_cluster
from tests.drivers.redis_stores import with_cluster_clients as live
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = ("a", "b", "c")  # on different nodes
OUTBOX = f"{{{HOME}}}:th:outbox"


class Died(BaseException):
    """The client was killed."""


def row(queue: str, revision: str, *, name: str = "s", at: datetime | None = NOW) -> StoredSchedule:
    return StoredSchedule(name=name, queue=queue, revision=revision, next_at=at, body=revision.encode())


def job(id: str, queue: str) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, created_at=NOW)


def change(old: StoredSchedule | None, new: StoredSchedule | None, *jobs: JobRecord) -> ScheduleChange:
    name = next(row.name for row in (new, old) if row is not None)
    return ScheduleChange(name=name, expect=None if old is None else old.revision, to=new, jobs=jobs)


OLD, NEW = row("a", "old"), row("b", "new")
MOVE = change(OLD, NEW, job("fired", "b"))


def outbox_of(driver: RedisDriver) -> Any:
    assert isinstance(driver.store.router, ClusterRouter)
    return driver.store.router.outbox


async def dies(*_: Any) -> Any:
    raise Died


async def moved_by_one_that_dies(driver: RedisDriver, step: str) -> None:
    """A client that moves and fires the schedule, and dies before this step of its delivery."""
    await driver.change_schedules([change(None, OLD)], NOW)
    setattr(outbox_of(driver), step, dies)
    with pytest.raises(Died):
        await driver.change_schedules([MOVE], NOW)


async def seen(driver: RedisDriver) -> list[StoredSchedule]:
    """What listings show, which all agree."""
    by_name = list((await driver.schedules()).items)
    assert list((await driver.schedules(names=["s"])).items) == by_name
    assert [one for queue in QUEUES for one in (await driver.schedules(queue=queue)).items] == by_name
    assert list((await driver.due_schedules(QUEUES, NOW)).items) == by_name
    return by_name


async def fired(driver: RedisDriver) -> list[str]:
    """The jobs that changes have stored."""
    return [held.job.id for held in await driver.reserve(QUEUES, NOW, timedelta(seconds=9), 99)]


def waiting() -> int:
    """How many messages wait to be delivered."""
    with servers.shared_cluster().client() as client:
        count: int = client.zcard(OUTBOX)
        return count


@on_cluster
async def test_a_client_dies_before_it_delivers(one, two):
    """The row has changed, and a worker that looks after the Cluster brings the job."""
    await moved_by_one_that_dies(one, "deliver")
    assert await seen(two) == [NEW]
    assert waiting() == 1
    assert HOME in await two.store.router._walk(BUSY, 100, 0)
    await visit(two.store, HOME, to_ms(NOW), 0)
    assert (await fired(two), waiting()) == (["fired"], 0)


@pytest.mark.parametrize("step", ["deliver", "_hand_in"])
@on_cluster
async def test_a_client_dies_and_the_change_is_sent_again(one, two, step):
    await moved_by_one_that_dies(one, step)
    assert await two.change_schedules([MOVE], NOW) == [True]
    assert await seen(two) == [NEW]
    assert (await fired(two), waiting()) == (["fired"], 0)


@on_cluster
async def test_a_client_dies_and_another_changes_the_row(one, two):
    """What was decided stays: the job of the first change comes with that of the second."""
    await moved_by_one_that_dies(one, "deliver")
    third = row("c", "third")
    changes = [change(OLD, third, job("refused", "c")), change(NEW, third, job("second", "c"))]
    assert await two.change_schedules(changes, NOW) == [False, True]
    assert await seen(two) == [third]
    assert sorted(await fired(two)) == ["fired", "second"]


@on_cluster
async def test_a_client_dies_and_the_schedule_is_deleted(one, two):
    await moved_by_one_that_dies(one, "deliver")
    assert await two.change_schedules([change(NEW, None)], NOW) == [True]
    await visit(two.store, HOME, to_ms(NOW), 0)
    assert (await seen(two), await fired(two)) == ([], ["fired"])


@on_cluster
async def test_a_message_that_comes_again_after_its_job_was_deleted(one, two):
    """A client stands still between reading the message and handing it in. Meanwhile others run and delete the job."""
    await one.change_schedules([change(None, OLD)], NOW)
    real = outbox_of(one)._hand_in

    async def slow(target: str, part: Any) -> Any:
        await visit(two.store, HOME, to_ms(NOW), 0)
        (held,) = await two.reserve(QUEUES, NOW, timedelta(seconds=9), 9)
        await two.ack(held.lease, NOW)
        assert await two.delete([held.job.id]) == [None]
        return await real(target, part)

    outbox_of(one)._hand_in = slow
    assert await one.change_schedules([MOVE], NOW) == [True]
    assert (await fired(two), waiting()) == ([], 0)


@on_cluster
async def test_a_client_that_stood_still_for_long_reads_messages_again(one, two, monkeypatch):
    """Longer than the queue remembers what came: it hands in nothing that it read before."""
    await one.change_schedules([change(None, OLD)], NOW)
    handed_in: list[Any] = []

    async def noted(target: str, part: Any) -> list[int]:
        handed_in.append(target)
        return [1] * len(part)

    outbox_of(one)._hand_in = noted
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(outbox, "monotonic", lambda: float(next(clock)))
    assert await one.change_schedules([MOVE], NOW) == [True]
    assert (handed_in, waiting()) == ([], 1)


@on_cluster
async def test_the_job_comes_when_the_node_of_its_queue_is_back(one, two, monkeypatch):
    """The change is made: its row lies on another node."""
    await one.change_schedules([change(None, OLD)], NOW)
    endpoint: Any = two.store.endpoint
    real = endpoint.run

    async def away(args: Any, **how: Any) -> Any:
        if args.home == "b":
            raise BackendUnavailable("the node is away")
        return await real(args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(endpoint, "run", away)
        assert await two.change_schedules([MOVE], NOW) == [True]
    assert (await seen(one), waiting()) == ([NEW], 1)
    await visit(one.store, HOME, to_ms(NOW), 0)
    assert (await fired(one), waiting()) == (["fired"], 0)


@on_cluster
async def test_a_refused_change_leaves_nothing_behind(one, two):
    await one.change_schedules([change(None, OLD)], NOW)
    other = row("b", "other")
    refused = [change(None, other, job("x", "b")), change(NEW, other, job("x", "b")), change(NEW, None)]
    assert await two.change_schedules(refused, NOW) == [False] * 3
    assert await seen(two) == [OLD]
    assert (await fired(two), waiting()) == ([], 0)


@on_cluster
async def test_a_row_that_has_the_revision_already_stays_where_it_is(one, two):
    await one.change_schedules([change(None, OLD)], NOW)
    there = row("b", OLD.revision)
    assert await two.change_schedules([change(OLD, there), change(None, there)], NOW) == [True, True]
    assert await seen(two) == [OLD]


@on_cluster
async def test_jobs_of_a_queue_come_in_the_order_of_their_changes(one, two):
    """Of rows that are there, that are new, and that come from elsewhere."""
    names = "edfabc"
    old = [row("b" if name in "af" else "a", f"{name}1", name=name) for name in names if name in "abf"]
    await one.change_schedules([change(None, each) for each in old], NOW)
    known = {each.name: each for each in old}
    changes = [change(known.get(name), row("a", f"{name}2", name=name), job(f"{name}-job", "a")) for name in names]
    assert await two.change_schedules(changes, NOW) == [True] * 6
    assert await fired(two) == [f"{name}-job" for name in names]
    assert [each.revision for each in (await two.schedules(queue="a")).items] == [f"{name}2" for name in "abcdef"]


@on_cluster
async def test_the_job_of_a_change_is_known_in_another_queue(one, two):
    await one.enqueue([job("fired", "c")], NOW)
    assert await two.change_schedules([change(None, OLD), MOVE], NOW) == [True, True]
    assert (await seen(two), await fired(two), waiting()) == ([NEW], ["fired"], 0)


class Shaky:
    """Deliveries of a client that waits before each of them, dies at some, and whose packets may arrive again later."""

    def __init__(self, driver: RedisDriver, seed: int) -> None:
        self._random = random.Random(seed)
        self.late: list[asyncio.Task[Any]] = []
        deliveries = outbox_of(driver)
        self._real, deliveries._hand_in = deliveries._hand_in, self._hand_in

    async def _hand_in(self, target: str, part: Any) -> Any:
        await self._wait()
        if self._random.random() < 0.1:
            raise Died
        if self._random.random() < 0.3:
            self.late.append(asyncio.create_task(self._again(target, part)))
        results = await self._real(target, part)
        if self._random.random() < 0.1:
            raise Died
        return results

    async def _again(self, target: str, part: Any) -> None:
        for _ in range(5):
            await self._wait()
        await self._real(target, part)

    async def _wait(self) -> None:
        for _ in range(self._random.choice((0, 0, 1, 5, 40))):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(lanes.figure(test=2, full=40)))
def test_deliveries_of_several_clients_in_any_order(seed):
    """Each change that was made has its job delivered once, though jobs are run and deleted as soon as they come."""
    turns, ran = 25, list[str]()

    async def change_on(driver: RedisDriver, number: int, made: set[str]) -> None:
        chances = random.Random(f"{lanes.seed()}/{seed}/{number}")
        for turn in range(turns):
            found = (await driver.schedules(names=["s"])).items
            revision = f"{number}-{turn}"
            new = row(chances.choice(QUEUES), revision)
            wanted = change(found[0] if found else None, new, job(f"job-{revision}", new.queue))
            try:
                if await driver.change_schedules([wanted], NOW) == [True]:
                    made.add(revision)
            except Died:
                pass
            made |= {one.revision for one in (await driver.schedules(names=["s"])).items}

    async def run_and_delete(driver: RedisDriver) -> None:
        for held in await driver.reserve(QUEUES, NOW, timedelta(seconds=9), 99):
            ran.append(held.job.id)
            await driver.ack(held.lease, NOW)
            assert await driver.delete([held.job.id]) == [None]

    async def story(worker, *drivers):
        made: set[str] = set()
        shaky = [Shaky(driver, seed * 10 + number) for number, driver in enumerate(drivers)]
        changes = asyncio.gather(*(change_on(driver, number, made) for number, driver in enumerate(drivers)))
        while not changes.done():
            await run_and_delete(worker)
        await changes
        for one in shaky:
            await asyncio.gather(*one.late)
        await visit(worker.store, HOME, to_ms(NOW), 0)
        await run_and_delete(worker)
        assert sorted(ran) == sorted(set(ran))
        assert {f"job-{revision}" for revision in made} <= set(ran)
        assert waiting() == 0

    live(story, clients=5)
