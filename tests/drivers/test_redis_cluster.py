"""Edges between the slots of a Cluster, when the client that should deliver them dies: the join still fires, once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, Fail, JobRecord
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.cluster import ClusterCalls
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id: str, queue: str, *depends_on: str, **fields) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW, **fields)


def live(story):
    async def run():
        servers.shared_cluster().empty()
        drivers = [RedisDriver(f"{servers.shared_cluster().url}?checks=0") for _ in range(2)]
        for driver in drivers:
            await driver.open()
        try:
            await story(*drivers)
        finally:
            for driver in drivers:
                await driver.close()

    asyncio.run(run())


def calls_of(driver) -> ClusterCalls:
    assert isinstance(driver.calls, ClusterCalls)
    return driver.calls


def doomed(driver, monkeypatch):
    """The client dies before it delivers anything."""

    async def dies(queues):
        return False

    monkeypatch.setattr(calls_of(driver).outbox, "deliver", dies)


async def tended(driver):
    await driver.calls.tend(["a", "b", "c"], int(NOW.timestamp() * 1000))


async def taken(driver, queue, limit=10):
    return await driver.reserve([queue], NOW, LEASE, limit)


async def acked(driver, queue, *spawn, handover=None):
    (held,) = await taken(driver, queue, 1)
    assert await driver.settle([Ack(held.lease, b"r", spawn, handover)], NOW) == [None]


def outboxes() -> int:
    with servers.shared_cluster().client() as client:
        return sum(client.zcard(f"{{{queue}}}:th:outbox") for queue in "abc")


def test_a_join_over_three_slots(monkeypatch):
    """Both acks come from a client that dies: another releases the join, and only after the second."""

    async def story(one, two):
        await two.enqueue([job("j", "c", "x", "y"), job("x", "a"), job("y", "b")], NOW)
        doomed(one, monkeypatch)
        await acked(one, "a")
        await tended(two)
        assert (await two.inspect("j", NOW)).waiting_for == ("y",)
        await acked(one, "b")
        assert (await two.inspect("j", NOW)).state == "blocked"
        await tended(two)
        assert [held.job.id for held in await taken(two, "c")] == ["j"]
        await tended(two)
        assert await taken(two, "c") == []
        assert outboxes() == 0

    live(story)


def test_messages_that_come_twice(monkeypatch):
    """The client dies after delivering, before it takes the messages out."""

    async def story(one, two):
        await two.enqueue([job("x", "a"), job("j", "b", "x")], NOW)
        doomed(one, monkeypatch)
        await acked(one, "a")
        with servers.shared_cluster().client() as client:
            posted = client.zrange("{a}:th:outbox", 0, -1, withscores=True)
            assert len(posted) == 1
            for _ in range(3):
                await calls_of(two).outbox.deliver(["a"])
                client.zadd("{a}:th:outbox", dict(posted))
        (held,) = await taken(two, "b")
        await tended(two)
        assert await taken(two, "b") == []
        assert await two.settle([Ack(held.lease)], NOW) == [None]
        assert await two.counts(NOW) == {"a": {"done": 1}, "b": {"done": 1}}

    live(story)


def test_a_spawn_into_another_slot(monkeypatch):
    async def story(one, two):
        await two.enqueue([job("x", "a"), job("after", "c", "x")], NOW)
        doomed(one, monkeypatch)
        await acked(one, "a", job("s1", "b"), job("s2", "c", "s1"), handover="s2")
        await tended(two)
        assert (await two.inspect("after", NOW)).job.depends_on == ("s2",)
        assert (await two.inspect("x", NOW)).job.handed_to == "s2"
        await acked(two, "b")
        assert [held.job.id for held in await taken(two, "c")] == ["s2"]

    live(story)


def test_an_enqueue_that_stops_half_way_may_be_sent_again(monkeypatch):
    """Each queue is atomic: what is missing comes with the second call, and the edges hold."""

    async def story(one, two):
        jobs = [job("x", "a"), job("y", "b", "x"), job("z", "c", "y", "x")]
        real = calls_of(one).link.run
        stored: list[str] = []

        async def breaks(script, queue, args, **how):
            if script.name == "enqueue":
                if stored:
                    raise BackendUnavailable("the client lost its way")
                stored.append(queue)
            return await real(script, queue, args, **how)

        monkeypatch.setattr(calls_of(one).link, "run", breaks)
        with pytest.raises(BackendUnavailable):
            await one.enqueue(jobs, NOW)
        await tended(two)
        answers = await two.enqueue(jobs, NOW)
        assert [answer.id for answer in answers] == ["x", "y", "z"]
        assert [answer.existed for answer in answers].count(True) == 1
        for queue in "abc":
            await acked(two, queue)
        assert await two.counts(NOW) == {queue: {"done": 1} for queue in "abc"}

    live(story)


def test_what_is_needed_in_another_slot_stays_until_it_is_not(monkeypatch):
    async def story(one, two):
        await two.enqueue([job("x", "a", flow_id="run"), job("y", "b", "x", flow_id="run")], NOW)
        await acked(two, "a")
        late = NOW + timedelta(days=1)
        assert [type(answer).__name__ for answer in await two.delete(["x"])] == ["WrongState"]
        assert await two.prune(late, 10) == 0
        doomed(one, monkeypatch)
        await acked(one, "b")
        await tended(two)
        assert await two.prune(late, 10) == 2
        with servers.shared_cluster().client() as client:
            left = {key.decode() for key in client.scan_iter("*", count=1000)}
        lasting = {f"{{{queue}}}:{name}" for queue in "ab" for name in ("th:seq", "th:posted", "stats", "lane:rr")}
        assert left - lasting == {"{th}:queues"}

    live(story)


def test_a_run_that_was_cancelled_takes_nothing_in_any_slot():
    async def story(one, two):
        await one.enqueue([job("x", "a", flow_id="run"), job("y", "b", "x", flow_id="run")], NOW)
        (held,) = await taken(one, "a")
        assert await two.cancel_flow("run", NOW) == 2
        await one.enqueue([job("z", "c", flow_id="run")], NOW)
        assert (await two.flow("run", NOW)).status == "cancelled"
        assert [str(node.state) for node in (await two.flow("run", NOW)).nodes] == ["cancelled"] * 3
        refused = await one.settle([Fail(held.lease, "late", 1, NOW)], NOW)
        assert [type(answer).__name__ for answer in refused] == ["JobNotInflight"]
        assert await one.requeue(["x", "y", "z"], NOW) == [None] * 3
        assert [held.job.id for held in await taken(one, "a")] == ["x"]

    live(story)


def test_nobody_runs_without_a_dependency_that_never_came(monkeypatch):
    """The dependent is stored first, then the client dies: it waits, and the call that is sent again completes it."""

    async def story(one, two):
        jobs = [job("y", "b", "x"), job("x", "a")]
        real = calls_of(one).link.run

        async def breaks(script, queue, args, **how):
            if script.name == "enqueue" and queue == "a":
                raise BackendUnavailable("the client lost its way")
            return await real(script, queue, args, **how)

        monkeypatch.setattr(calls_of(one).link, "run", breaks)
        with pytest.raises(BackendUnavailable):
            await one.enqueue(jobs, NOW)
        await tended(two)
        await tended(two)
        assert [str((await two.inspect(id, NOW)).state) for id in ("y",)] == ["blocked"]
        assert await taken(two, "b") == []
        assert [answer.existed for answer in await two.enqueue(jobs, NOW)] == [True, False]
        await acked(two, "a")
        await tended(two)
        assert [held.job.id for held in await taken(two, "b")] == ["y"]

    live(story)


def test_a_requeued_job_does_not_wait_for_what_is_gone():
    async def story(one, two):
        await one.enqueue([job("x", "a"), job("y", "b", "x")], NOW)
        assert await one.cancel(["y"], NOW) == [None]
        assert await two.delete(["x"]) == [None]
        assert await one.requeue(["y"], NOW) == [None]
        assert [held.job.id for held in await taken(two, "b")] == ["y"]

    live(story)
