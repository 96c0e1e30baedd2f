"""What a failover or another program takes away is compared again: a flow goes on, or says why it cannot."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, Enqueued, JobRecord
from taskharbor.drivers.redis.housekeeping import visit
from tests.drivers.redis_stores import on_quiet_store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)
SERVERS = pytest.mark.parametrize("server", ["redis7", "cluster"])
CLUSTER = pytest.mark.parametrize("server", ["cluster"])


def job(id: str, queue: str, *depends_on: str, **fields) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW, **fields)


def snapshot(client, queue: str) -> dict[bytes, bytes]:
    """The keys of a queue, which a promoted replica may have instead of later ones."""
    return {key: client.dump(key) for key in client.scan_iter(f"{{{queue}}}:*", count=1000)}


def put_back(client, queue: str, keys: dict[bytes, bytes]) -> None:
    for key in list(client.scan_iter(f"{{{queue}}}:*", count=1000)):
        client.delete(key)
    for key, value in keys.items():
        client.restore(key, 0, value)


async def run(driver, id: str, queue: str, **ack) -> None:
    (held,) = await driver.reserve([queue], NOW, LEASE, 1)
    assert held.job.id == id
    assert await driver.settle([Ack(held.lease, **ack)], NOW) == [None]


async def heal(driver, *queues: str) -> None:
    """What the visits of two minutes do, for blocked jobs that nobody looked at for a minute."""
    for _ in range(2):
        for queue in queues:
            await visit(driver.store, queue, NOW_MS, 0, compare_every_s=0)


async def states(driver, *ids: str) -> list[str]:
    return [(await driver.inspect(id, NOW)).state for id in ids]


@CLUSTER
@on_quiet_store
async def test_a_dependent_whose_release_was_lost_is_released(driver, client, server):
    await driver.enqueue([job("first", "a"), job("then", "b", "first"), job("last", "c", "then")], NOW)
    before = snapshot(client, "b")
    await run(driver, "first", "a")
    put_back(client, "b", before)
    assert await states(driver, "first", "then") == ["done", "blocked"]
    await heal(driver, "a", "b", "c")
    assert await states(driver, "then", "last") == ["ready", "blocked"]
    await run(driver, "then", "b")
    await run(driver, "last", "c")


@CLUSTER
@on_quiet_store
async def test_a_dependent_of_a_lost_job_is_set_aside(driver, client, server):
    """With the reason, and it runs when it is requeued."""
    before = snapshot(client, "a")
    await driver.enqueue([job("other", "b"), job("first", "a"), job("then", "b", "first", "other")], NOW)
    put_back(client, "a", before)
    await heal(driver, "a", "b")
    info = await driver.inspect("then", NOW)
    assert (info.state, info.job.reason) == ("dlq", "depends on first, which was deleted")
    await run(driver, "other", "b")
    assert await driver.requeue(["then"], NOW) == [None]
    await run(driver, "then", "b")


@CLUSTER
@on_quiet_store
async def test_a_job_that_is_still_under_way_is_waited_for(driver, client, server, monkeypatch):
    """Its message lies in an outbox."""
    real = driver.store.router.deliver

    async def no_delivery(queues):
        pass

    await driver.enqueue([job("root", "a")], NOW)
    monkeypatch.setattr(driver.store.router.outbox, "_apply", lambda *_: nothing())
    await driver.enqueue([job("then", "a", "first"), job("first", "b", "root")], NOW)
    await heal(driver, "a", "b")
    assert await states(driver, "then") == ["blocked"]
    monkeypatch.undo()
    await real(["a"])
    await run(driver, "root", "a")
    await run(driver, "first", "b")
    await run(driver, "then", "a")


async def nothing():
    return set(), []


@SERVERS
@on_quiet_store
async def test_a_dependency_that_forgot_its_dependent_learns_of_it(driver, client, server):
    await driver.enqueue([job("first", "a"), job("then", "b", "first")], NOW)
    client.delete("{a}:th:after:first")
    await heal(driver, "a", "b")
    await run(driver, "first", "a")
    assert await states(driver, "then") == ["ready"]


@SERVERS
@on_quiet_store
async def test_an_edge_that_was_lost_before_the_end_is_found_after_it(driver, client, server):
    await driver.enqueue([job("first", "a"), job("then", "b", "first")], NOW)
    client.delete("{a}:th:after:first")
    await run(driver, "first", "a")
    assert await states(driver, "then") == ["blocked"]
    await heal(driver, "a", "b")
    await run(driver, "then", "b")


@SERVERS
@on_quiet_store
async def test_a_job_that_forgot_what_it_waits_for_waits_again(driver, client, server):
    await driver.enqueue([job("first", "a"), job("second", "c"), job("then", "b", "first", "second")], NOW)
    client.delete("{b}:th:open:then")
    await run(driver, "first", "a")
    await heal(driver, "a", "b")
    assert await states(driver, "then") == ["blocked"]
    await run(driver, "second", "c")
    assert await states(driver, "then") == ["ready"]


@SERVERS
@on_quiet_store
async def test_a_handover_that_missed_a_dependent_reaches_it(driver, client, server):
    """The dependent waits for the job that took the place, and never runs before it."""
    await driver.enqueue([job("first", "a"), job("then", "b", "first")], NOW)
    client.delete("{a}:th:after:first")
    await run(driver, "first", "a", spawn=(job("heir", "c"),), handover="heir")
    await heal(driver, "a", "b", "c")
    assert (await driver.inspect("then", NOW)).job.depends_on == ("heir",)
    assert await states(driver, "then") == ["blocked"]
    await run(driver, "heir", "c")
    assert await states(driver, "then") == ["ready"]


@SERVERS
@on_quiet_store
async def test_a_visit_compares_a_blocked_job_once_a_minute(driver, client, server):
    """Those first that were compared longest ago, and a wide join by itself."""
    wide = [f"w{number:03}" for number in range(600)]
    await driver.enqueue([*(job(id, "a") for id in wide), job("join", "a", *wide), job("then", "a", "join")], NOW)
    client.zadd("{a}:th:blocked", {"join": 1, "then": 2})
    seen: list[int] = []
    real = driver.store.endpoint.run

    async def counting(args, **options):
        if args.script == "compare_edges":
            seen.append(len(args.arguments["edges"]))
        return await real(args, **options)

    driver.store.endpoint.run = counting
    while await visit(driver.store, "a", NOW_MS, 0):
        pass
    assert sum(seen) == 601
    assert max(seen) <= 200
    assert not await visit(driver.store, "a", NOW_MS, 0)
    assert sum(seen) == 601


@CLUSTER
@on_quiet_store
async def test_a_dependent_that_did_not_hear_of_a_cancel_is_cancelled(driver, client, server):
    """And what is behind it; one that a person requeued alone waits for the job before it."""
    await driver.enqueue(
        [
            job("first", "a", flow_id="flow"),
            job("then", "b", "first", flow_id="flow"),
            job("last", "c", "then", flow_id="flow"),
        ],
        NOW,
    )
    before = snapshot(client, "b") | snapshot(client, "c")
    assert await driver.cancel(["first"], NOW) == [None]
    for queue in ("b", "c"):
        put_back(
            client, queue, {key: value for key, value in before.items() if key.startswith(b"{%s}" % queue.encode())}
        )
    assert await states(driver, "first", "then", "last") == ["cancelled", "blocked", "blocked"]
    await heal(driver, "a", "b", "c")
    assert await states(driver, "then", "last") == ["cancelled", "cancelled"]
    assert await driver.requeue(["then"], NOW) == [None]
    await heal(driver, "a", "b", "c")
    assert await states(driver, "first", "then", "last") == ["cancelled", "blocked", "blocked"]


@SERVERS
@on_quiet_store
async def test_a_lost_idempotency_key_comes_back(driver, client, server):
    await driver.enqueue([job("first", "a", idempotency_key="k")], NOW)
    client.delete("{a}:th:keys")
    await driver.opened.sweeper.sweep("a", NOW_MS)
    assert (await driver.enqueue([job("again", "a", idempotency_key="k")], NOW))[0] == Enqueued("first", True)
