"""A node of a Cluster is gone: each part of a call by itself, and a worker that serves a queue there and another one.

The healthy part is compared with a driver that never knew the other one.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, Fail, JobRecord, Retry
from taskharbor.drivers.redis import RedisDriver
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATE = NOW + timedelta(days=3)
LEASE = timedelta(seconds=30)
NODES = [0, pytest.param(1, marks=pytest.mark.left_to("full")), pytest.param(2, marks=pytest.mark.left_to("full"))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[servers.Cluster]:
    made = servers.Cluster(primaries=3, node_timeout=1000, cluster_require_full_coverage="no")
    yield made
    made.stop()


def queues_of(cluster: servers.Cluster, node: servers.Server, count: int) -> list[str]:
    return list(islice((f"q{n}" for n in range(1000) if cluster.primary_of(f"{{q{n}}}") is node), count))


def job(id: str, queue: str, **fields: Any) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, created_at=NOW, **fields)


def gone(cluster: servers.Cluster, node: servers.Server) -> list[servers.Server]:
    """Kill a primary and its replica; returns both when the others have seen it."""
    pair = [node, cluster.replica_of(node)]
    for each in pair:
        each.kill()
    survivor = next(each for each in cluster.nodes if each not in pair)
    servers.until(lambda: "master,fail " in survivor.run("CLUSTER", "NODES"), "the others to see that it is gone")
    return pair


class Story:
    """The same calls by a driver that serves a lost queue too, and by one that does not know it."""

    def __init__(self, dsn: str, tag: str, healthy: str, lost: str | None) -> None:
        self.driver = RedisDriver(dsn)
        self.tag, self.healthy, self.lost = tag, healthy, lost
        self.queues = [healthy] if lost is None else [lost, healthy]
        self.held: list[Any] = []

    async def prepare(self) -> None:
        await self.driver.open()
        for queue in self.queues:
            tag = self.tag if queue == self.healthy else f"{self.tag}-lost"
            jobs = [job(f"{tag}-{number}", queue) for number in range(6)]
            later = job(f"{tag}-later", queue, run_at=NOW + timedelta(minutes=5))
            await self.driver.enqueue([*jobs, later], NOW)
            self.held += await self.driver.reserve([queue], NOW, LEASE, 3, f"worker-{self.tag}")

    async def verbs(self) -> dict[str, object]:
        """What the calls say of the healthy queue."""
        driver, mine = self.driver, [held for held in self.held if held.lease.queue == self.healthy]
        said: dict[str, object] = {}
        granted = []
        for _ in range(2):  # the first call finds out that the node is gone
            granted += await driver.reserve(self.queues, NOW, LEASE, 1)
        said["reserve"] = [each.lease.queue == self.healthy for each in granted]
        extended = await driver.extend([held.lease for held in self.held], NOW, LEASE * 2)
        said["extend"] = [each.expires_at for each in self._healthy(extended)]
        outcomes = [
            outcome
            for first, second, third in zip(*[iter([held.lease for held in self.held])] * 3, strict=True)
            for outcome in (
                Ack(first, b"r"),
                Retry(second, NOW + timedelta(hours=1), 1, "late"),
                Fail(third, "bad", 1, NOW, spawn=(job(f"{third.job_id}-spawn", third.queue),)),
            )
        ]
        said["settle"] = self._healthy(await driver.settle(outcomes, NOW))
        said["upcoming"] = await driver.upcoming(self.queues, NOW)
        said["counts"] = (await driver.counts(NOW))[self.healthy]
        said["queues"] = self.healthy in await driver.queues()
        said["wait"] = await driver.wait(self.queues, 0.05)
        said["wait again"] = await driver.wait(self.queues, 0.05)
        said["release"] = await driver.release(f"worker-{self.tag}", NOW)
        said["results"] = list((await driver.results([mine[0].job.id])).values())
        said["prune"] = await driver.prune(LATE, 100)
        said["list"] = len((await driver.list(queue=self.healthy, now=NOW)).items)
        said["requeue"] = await driver.requeue([mine[2].job.id], NOW)
        return said

    def _healthy(self, results: Any) -> list[Any]:
        """The results of the healthy queue; of the other one each is BackendUnavailable."""
        paired = list(zip(self.held, results, strict=True))
        assert all(isinstance(result, BackendUnavailable) for held, result in paired if held.lease.queue == self.lost)
        return [result for held, result in paired if held.lease.queue == self.healthy]


@pytest.mark.parametrize("number", NODES)
def test_each_verb_with_a_node_gone(cluster, number):
    node = cluster.nodes[number] if cluster.nodes[number].run("ROLE")[0] == "master" else None
    if node is None:
        node = cluster.replica_of(cluster.nodes[number])
    primaries = {cluster.primary_of(f"{{{number}}}") for number in range(99)}
    other = next(each for each in cluster.nodes if each in primaries - {node})
    healthy, same = queues_of(cluster, other, 2)
    (lost,) = queues_of(cluster, node, 1)

    async def story() -> None:
        dsn = f"{cluster.url}?timeout=2s"
        both, alone = Story(dsn, "both", healthy, lost), Story(dsn, "alone", same, None)
        newcomer = RedisDriver(f"redis+cluster://{','.join(f'127.0.0.1:{each.port}' for each in cluster.nodes)}")
        try:
            await both.prepare()
            await alone.prepare()
            pair = gone(cluster, node)
            async with asyncio.timeout(60):
                expected, said = await alone.verbs(), await both.verbs()
                assert said == expected
                with pytest.raises(BackendUnavailable):
                    await both.driver.enqueue([job("more", lost)], NOW)
                with pytest.raises(BackendUnavailable):
                    await both.driver.reserve([lost], NOW, LEASE, 1)
                with pytest.raises(BackendUnavailable):
                    await both.driver.settle([Ack(both.held[0].lease)], NOW)
                await newcomer.open()
                assert len(await newcomer.reserve([lost, healthy], NOW, LEASE, 1)) == 1
            for each in pair:
                each.start()
            cluster.settle()
            async with asyncio.timeout(60):
                await both.driver.enqueue([job("more", lost)], NOW)
                while lost not in {each.lease.queue for each in await both.driver.reserve(both.queues, NOW, LEASE, 1)}:
                    await asyncio.sleep(0)
        finally:
            for driver in (both.driver, alone.driver, newcomer):
                await driver.close()

    try:
        asyncio.run(story())
    finally:
        for each in cluster.nodes:
            if each.process.poll() is not None:
                each.start()
        cluster.settle()
        cluster.empty()
