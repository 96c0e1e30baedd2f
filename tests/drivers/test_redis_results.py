"""Results of jobs whose location (in which queue they are) was lost: evicted, or forgotten by a failover."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Ack, BackendUnavailable, JobRecord, State
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
from taskharbor.drivers.redis.cluster_router import ClusterRouter
from taskharbor.flow import chain
from tests.drivers.redis_stores import as_test, emptied, with_driver
from tests.servers import redis as servers
from tests.servers.ports import free_port

pytestmark = pytest.mark.lane("redis")

CHAINS = 20
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
KINDS = pytest.mark.parametrize("kind", ["server", "cluster"])


def store_of(kind: str) -> tuple[str, Any]:
    """The address of an empty store, and what makes a client of it."""
    if kind == "server":
        return emptied(), servers.shared()
    servers.shared_cluster().empty()
    return f"{servers.shared_cluster().url}?checks=0", servers.shared_cluster()


def forget_locations(client: Any) -> int:
    """Delete every stored location."""
    keys = [key for key in client.scan_iter("{th:ids:*}:*", 1000) if key.rsplit(b":", 1)[-1].isdigit()]
    return sum(client.delete(key) for key in keys)


@KINDS
def test_a_step_gets_the_result_of_a_job_without_a_location(kind: str) -> None:
    dsn, store = store_of(kind)
    harbor, charged = Harbor(dsn), list[Any]()

    @harbor.task(name="price", queue="first")
    def price(amount: int) -> dict[str, int]:
        return {"amount": amount}

    @harbor.task(name="charge", queue="second")
    def charge(order: dict[str, int] | None) -> None:
        charged.append(order)

    for amount in range(CHAINS):
        chain(price.s(amount), charge.s()).enqueue()
    harbor.worker(queues=["first"], heart="loop").run(until_empty=True)
    with store.client() as client:
        assert forget_locations(client) > 0
    harbor.worker(queues=["second"], heart="loop").run(until_empty=True)
    harbor.close()
    assert sorted(charged, key=str) == sorted(({"amount": amount} for amount in range(CHAINS)), key=str)


def live(story: Callable[[RedisDriver, Any], Awaitable[None]], kind: str) -> None:
    dsn, store = store_of(kind)
    with store.client() as client:
        with_driver(dsn, lambda driver: story(driver, client))


on_store = as_test(live)


def job(id: str, queue: str, *depends_on: str) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, depends_on=depends_on, created_at=NOW)


async def acked(driver: RedisDriver, queue: str, result: bytes | None = None) -> None:
    (held,) = await driver.reserve([queue], NOW, LEASE, 1)
    assert await driver.settle([Ack(held.lease, result)], NOW) == [None]


@KINDS
@on_store
async def test_results_are_found_by_a_search_without_a_location(driver: RedisDriver, client: Any, kind: str) -> None:
    await driver.enqueue([job("a", "one"), job("b", "two"), job("c", "three")], NOW)
    await acked(driver, "one", b"1")
    await acked(driver, "two")
    forget_locations(client)
    assert await driver.results(["a", "b", "c", "d"]) == {"a": b"1", "b": None}


@KINDS
@on_store
async def test_a_search_begins_in_the_queue_that_the_waiting_job_names(driver, client, kind, monkeypatch):
    """In a large store, and where the list of queues was lost as well, a search may not come to that queue."""
    await driver.enqueue([job("a", "one"), job("b", "two", "a")], NOW)
    await acked(driver, "one", b"1")
    forget_locations(client)
    (held,) = await driver.reserve(["two"], NOW, LEASE, 1)
    assert held.job.depends_on == ("a",)

    async def none() -> list[str]:
        return []

    monkeypatch.setattr(driver.reader, "queues", none)
    assert await driver.results(["a"]) == {"a": b"1"}


@KINDS
@on_store
async def test_a_sweep_stores_lost_locations_again(driver, client, kind, monkeypatch):
    ids = [f"job-{number}" for number in range(30)]
    await driver.enqueue([job(id, "one") for id in ids], NOW)
    await acked(driver, "one", b"1")
    forget_locations(client)
    await driver.prune(NOW - LEASE, 100)

    async def none(*_: Any) -> dict[str, str]:
        return {}

    monkeypatch.setattr(driver.reader, "find_queues", none)
    assert set(await driver.reader.find(ids, 0)) == set(ids)


def test_while_a_node_is_away_no_result_is_called_gone() -> None:
    """The search could not look everywhere: the store cannot tell, and says so."""

    async def story(driver: RedisDriver, client: Any) -> None:
        await driver.enqueue([job("a", "one"), job("b", "two", "a")], NOW)
        await acked(driver, "one", b"1")
        router = driver.store.router
        assert isinstance(router, ClusterRouter)
        run = driver.store.endpoint.run

        async def away(args: Any, **options: Any) -> Any:
            if args.home == "one":
                raise BackendUnavailable("the node is away")
            return await run(args, **options)

        for lost in (False, True):
            if lost:
                forget_locations(client)
            driver.store.endpoint.run = away  # type: ignore[method-assign,assignment]  # one node of the shared Cluster is cut off
            try:
                with pytest.raises(BackendUnavailable):
                    await driver.results(["a"])
            finally:
                driver.store.endpoint.run = run  # type: ignore[method-assign]  # and is back
            assert await driver.results(["a"]) == {"a": b"1"}

    live(story, "cluster")


def test_a_search_that_a_dead_node_stops_is_an_outage() -> None:
    """Not an error of the client library: that one nobody retries."""

    async def story(driver: RedisDriver, client: Any) -> None:
        endpoint = driver.store.endpoint
        assert isinstance(endpoint, ClusterEndpoint)
        endpoint._hash_slots.append((1, 0, ("127.0.0.1", free_port())))  # a primary that nobody reaches
        await driver.enqueue([job("b", "one")], NOW)
        for call in (lambda: driver.results(["a"]), lambda: driver.inspect("a", NOW)):
            with pytest.raises(BackendUnavailable):
                await call()
        with pytest.raises(BackendUnavailable):
            await driver.results(["a", "b"])
        assert (await driver.inspect("b", NOW)).state is State.READY
        assert await driver.counts(NOW) == {"one": {"ready": 1}}  # those that can be reached

    live(story, "cluster")
