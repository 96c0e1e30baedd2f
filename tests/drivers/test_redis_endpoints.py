"""What a Cluster calls its nodes: addresses, host names, or nothing ("as you reached me")."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = ("north", "east", "south")
NAMED = {
    "by address": {"cluster-preferred-endpoint-type": "ip"},
    "by host name": {"cluster-preferred-endpoint-type": "hostname", "cluster-announce-hostname": "localhost"},
    "by a host name that the nodes do not know": {"cluster-preferred-endpoint-type": "hostname"},
    "as you reached me": {"cluster-preferred-endpoint-type": "unknown-endpoint"},
}
USUAL = {"cluster-preferred-endpoint-type": "ip", "cluster-announce-hostname": ""}


@pytest.fixture(params=NAMED)
def cluster(request):
    """The shared Cluster, whose nodes call each other so."""
    shared = servers.shared_cluster()
    shared.empty()

    def configure(settings):
        for node in shared.nodes:
            for name, value in settings.items():
                node.run("CONFIG", "SET", name, value)

    configure({**USUAL, **NAMED[request.param]})
    try:
        hosts = {"localhost"} if request.param == "by host name" else None
        servers.until(lambda: hosts is None or told(shared) == hosts, "the nodes to learn their names")
        yield shared
    finally:
        configure(USUAL)
        servers.until(lambda: told(shared) == {"127.0.0.1"}, "the nodes to forget their names")


def told(shared):
    slots = [part for node in shared.nodes for part in node.run("CLUSTER", "SLOTS")]
    return {owner[0] for _, _, *owners in slots for owner in owners}


def test_a_driver_finds_the_nodes(cluster):
    async def story():
        driver = RedisDriver(f"{cluster.url}?checks=0")
        await driver.open()
        await lives(driver)
        await driver.close()

    asyncio.run(story())


def test_a_driver_follows_a_moved_reply(cluster):
    async def story():
        driver = RedisDriver(f"{cluster.url}?checks=0")
        await driver.open()
        endpoint = driver.store.endpoint
        assert isinstance(endpoint, ClusterEndpoint)
        right, asked = sorted(endpoint._hash_slots), []
        assert len({address for _, _, address in right}) == 3
        real = endpoint._refresh

        async def refresh():
            asked.append(1)
            await real()

        endpoint._refresh = refresh  # type: ignore[method-assign]  # replaced for the test
        endpoint._hash_slots = [(0, 16383, right[0][2])]
        await lives(driver)
        assert asked
        assert sorted(endpoint._hash_slots) == right
        await driver.close()

    asyncio.run(story())


async def lives(driver):
    jobs = [JobRecord(id=f"{queue}-1", type="t", queue=queue, created_at=NOW) for queue in QUEUES]
    assert [answer.existed for answer in await driver.enqueue(jobs, NOW)] == [False] * 3
    held = await driver.reserve(QUEUES, NOW, timedelta(seconds=30), 3)
    assert await driver.settle([Ack(one.lease) for one in held], NOW) == [None] * 3
