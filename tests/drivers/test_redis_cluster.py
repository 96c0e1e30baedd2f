"""Edges between the slots of a Cluster, when the client that should deliver them dies: the join still fires, once."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, Fail, JobRecord
from taskharbor.drivers.redis.cluster_router import ClusterRouter
from tests.drivers.redis_stores import on_cluster, visit_all
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id: str, queue: str, *depends_on: str, **fields) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW, **fields)


def router_of(driver) -> ClusterRouter:
    assert isinstance(driver.store.router, ClusterRouter)
    return driver.store.router


def doomed(driver, monkeypatch):
    """The client dies before it delivers anything."""

    async def dies(queues):
        return False

    monkeypatch.setattr(router_of(driver).outbox, "deliver", dies)


async def tended(driver):
    await visit_all(driver.store, ["a", "b", "c"], int(NOW.timestamp() * 1000))


async def taken(driver, queue, limit=10):
    return await driver.reserve([queue], NOW, LEASE, limit)


async def acked(driver, queue, *spawn, handover=None):
    (held,) = await taken(driver, queue, 1)
    assert await driver.settle([Ack(held.lease, b"r", spawn, handover)], NOW) == [None]


def outboxes() -> int:
    with servers.shared_cluster().client() as client:
        return sum(client.zcard(f"{{{queue}}}:th:outbox") for queue in "abc")


@on_cluster
async def test_a_join_over_three_hash_slots(one, two, monkeypatch):
    """Both acks come from a client that dies: another releases the join, and only after the second."""
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


@on_cluster
async def test_messages_that_come_twice(one, two, monkeypatch):
    """The client dies after delivering, before it takes the messages out."""
    await two.enqueue([job("x", "a"), job("j", "b", "x")], NOW)
    doomed(one, monkeypatch)
    await acked(one, "a")
    with servers.shared_cluster().client() as client:
        posted = client.zrange("{a}:th:outbox", 0, -1, withscores=True)
        assert len(posted) == 1
        for _ in range(3):
            await router_of(two).outbox.deliver(["a"])
            client.zadd("{a}:th:outbox", dict(posted))
    (held,) = await taken(two, "b")
    await tended(two)
    assert await taken(two, "b") == []
    assert await two.settle([Ack(held.lease)], NOW) == [None]
    assert await two.counts(NOW) == {"a": {"done": 1}, "b": {"done": 1}}


@on_cluster
async def test_a_spawn_into_another_hash_slot(one, two, monkeypatch):
    await two.enqueue([job("x", "a"), job("after", "c", "x")], NOW)
    doomed(one, monkeypatch)
    await acked(one, "a", job("s1", "b"), job("s2", "c", "s1"), handover="s2")
    await tended(two)
    assert (await two.inspect("after", NOW)).job.depends_on == ("s2",)
    assert (await two.inspect("x", NOW)).job.handed_to == "s2"
    await acked(two, "b")
    assert [held.job.id for held in await taken(two, "c")] == ["s2"]


@pytest.mark.parametrize("again", [False, True])
@on_cluster
async def test_an_enqueue_that_stops_half_way_is_completed_by_others(one, two, monkeypatch, again):
    """One script takes in the whole call: the rest comes by message, whether or not the call is sent again."""
    jobs = [job("x", "a"), job("y", "b", "x", idempotency_key="k"), job("z", "c", "y", "x")]
    doomed(one, monkeypatch)
    with pytest.raises(BackendUnavailable):
        await one.enqueue(jobs, NOW)
    if again:
        answers = await two.enqueue(jobs, NOW)
        assert [(answer.id, answer.existed) for answer in answers] == [("x", True), ("y", False), ("z", False)]
    await tended(two)
    for queue in "abc":
        await acked(two, queue)
    assert await two.counts(NOW) == {queue: {"done": 1} for queue in "abc"}
    assert outboxes() == 0


@on_cluster
async def test_prune_keeps_a_job_that_another_hash_slot_needs(one, two, monkeypatch):
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
    assert {key for key in left - lasting if not key.endswith((":tended", ":swept"))} == {"{th}:queues", "{th}:busy"}


@on_cluster
async def test_a_cancelled_flow_accepts_no_job_in_any_hash_slot(one, two):
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


@on_cluster
async def test_no_job_runs_before_a_dependency_that_comes_late(one, two, monkeypatch):
    """The dependent is stored and the client dies: what the dependent waits for comes by message."""
    doomed(one, monkeypatch)
    await one.enqueue([job("y", "b", "x"), job("x", "a")], NOW)
    assert await taken(two, "b") == []
    assert (await two.inspect("y", NOW)).state == "blocked"
    await tended(two)
    assert await taken(two, "b") == []
    await acked(two, "a")
    assert [held.job.id for held in await taken(two, "b")] == ["y"]


@on_cluster
async def test_a_key_that_is_taken_before_its_job_arrives(one, two, monkeypatch):
    """What waits for the job that lost waits for the one that has the key; the caller gets its id."""
    real = router_of(one).outbox.deliver

    async def overtaken(queues):
        await two.enqueue([job("known", "b", idempotency_key="k")], NOW)
        return await real(queues)

    monkeypatch.setattr(router_of(one).outbox, "deliver", overtaken)
    jobs = [job("first", "a"), job("lost", "b", idempotency_key="k"), job("join", "c", "lost", "first")]
    assert [(answer.id, answer.existed) for answer in await one.enqueue(jobs, NOW)] == [
        ("first", False),
        ("known", True),
        ("join", False),
    ]
    assert set((await two.inspect("join", NOW)).waiting_for) == {"known", "first"}
    assert (await two.inspect("join", NOW)).job.depends_on == ("known", "first")
    await acked(two, "b")
    await acked(two, "a")
    assert [held.job.id for held in await taken(two, "c")] == ["join"]


@on_cluster
async def test_a_job_is_handed_over_to_one_whose_key_is_taken_before_it_arrives(one, two, monkeypatch):
    await two.enqueue([job("x", "a"), job("after", "c", "x")], NOW)
    real = router_of(one).outbox.deliver

    async def overtaken(queues):
        await two.enqueue([job("known", "b", idempotency_key="k")], NOW)
        return await real(queues)

    (held,) = await taken(one, "a")
    monkeypatch.setattr(router_of(one).outbox, "deliver", overtaken)
    heir = job("lost", "b", idempotency_key="k")
    assert await one.settle([Ack(held.lease, b"r", (heir,), "lost")], NOW) == [None]
    assert (await two.inspect("x", NOW)).job.handed_to == "known"
    assert (await two.inspect("after", NOW)).job.depends_on == ("known",)
    await two.enqueue([job("later", "c", "x")], NOW)
    assert (await two.inspect("later", NOW)).waiting_for == ("known",)
    await acked(two, "b")
    assert sorted(held.job.id for held in await taken(two, "c")) == ["after", "later"]
    assert await two.results(["x"]) == {"x": b"r"}


@on_cluster
async def test_a_job_that_comes_while_its_dependency_is_handed_over_waits_for_the_heir(one, two, monkeypatch):
    """Planned before the handover, linked after it, and in the moment in which the heir is still under way."""
    await two.enqueue([job("x", "a")], NOW)
    (held,) = await taken(two, "a")
    real = router_of(one).endpoint.run

    async def overtaken(args, **how):
        if args.script == "enqueue":
            doomed(two, monkeypatch)
            assert await two.settle([Ack(held.lease, b"r", (job("y", "b"),), "y")], NOW) == [None]
        return await real(args, **how)

    monkeypatch.setattr(router_of(one).endpoint, "run", overtaken)
    await one.enqueue([job("d", "c", "x")], NOW)
    monkeypatch.undo()
    assert await taken(one, "c") == []
    await one.enqueue([job("e", "c", "x")], NOW)
    assert (await one.inspect("e", NOW)).job.depends_on == ("y",)
    await tended(one)
    assert await taken(one, "c") == []
    assert (await one.inspect("d", NOW)).job.depends_on == ("y",)
    await acked(one, "b")
    assert sorted(held.job.id for held in await taken(one, "c")) == ["d", "e"]


@on_cluster
async def test_a_job_whose_dependency_is_deleted_while_it_is_stored_is_set_aside(one, two, monkeypatch):
    """Nobody can tell whether the dependency ran: the job does not run by itself, and does not wait for ever."""
    await two.enqueue([job("x", "a")], NOW)
    real = router_of(one).endpoint.run

    async def overtaken(args, **how):
        if args.script == "enqueue":
            assert await two.delete(["x"]) == [None]
        return await real(args, **how)

    monkeypatch.setattr(router_of(one).endpoint, "run", overtaken)
    await one.enqueue([job("y", "b", "x", flow_id="run")], NOW)
    found = await two.inspect("y", NOW)
    assert (str(found.state), found.job.reason) == ("dlq", "depends on x, which was deleted")
    assert (await two.flow("run", NOW)).status == "failed"
    assert await two.requeue(["y"], NOW) == [None]
    assert [held.job.id for held in await taken(two, "b")] == ["y"]


@on_cluster
async def test_a_requeued_job_does_not_wait_for_what_is_gone(one, two):
    await one.enqueue([job("x", "a"), job("y", "b", "x")], NOW)
    assert await one.cancel(["y"], NOW) == [None]
    assert await two.delete(["x"]) == [None]
    assert await one.requeue(["y"], NOW) == [None]
    assert [held.job.id for held in await taken(two, "b")] == ["y"]
