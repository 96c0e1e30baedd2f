"""A node of a Cluster is gone: each part of a call by itself, and a worker that serves a queue there and another one.

The healthy part is compared with a driver that never knew the other one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from taskharbor.drivers import Ack, Amend, BackendUnavailable, Fail, Figures, JobRecord, Retry, WorkerInfo
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.audit import StoredAudit
from taskharbor.model.schedule import ScheduleChange, StoredSchedule
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATE = NOW + timedelta(days=3)
LEASE = timedelta(seconds=30)
SHARED = ("{th}", "{th:fig}", "{th:audit}", "{th:schedules}")  # what belongs to no queue
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

    def __init__(self, dsn: str, tag: str, flow: str, healthy: str, lost: str | None) -> None:
        self.driver = RedisDriver(dsn)
        self.flow = flow
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
            first = job(f"{tag}-first", queue, flow_id=f"{self.flow}{queue}", run_at=NOW + timedelta(hours=2))
            then = job(f"{tag}-then", queue, flow_id=f"{self.flow}{queue}", depends_on=(first.id,))
            await self.driver.enqueue([first, then], NOW)

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
        said["list"] = len((await driver.list(queue=self.healthy, now=NOW)).items)
        said["requeue"] = await driver.requeue([mine[2].job.id], NOW)
        said["inspect"] = (await driver.inspect(mine[2].job.id, NOW)).state
        (head,) = await driver.heads([self.healthy], NOW, 3)
        said["heads"] = (head.oldest_at, len(head.next or ()))
        waiting = await driver.inspect(f"{self.tag}-later", NOW)
        edit = Amend(id=waiting.job.id, deliveries=0, edits=0, priority=3)
        said["amend"] = await driver.amend([edit], NOW)
        said["cancel"] = await driver.cancel([waiting.job.id], NOW)
        said["delete"] = await driver.delete([waiting.job.id])
        await driver.pause(self.healthy)
        said["pause"] = await driver.is_paused(self.healthy)
        await driver.resume(self.healthy)
        said["resume"] = await driver.is_paused(self.healthy)
        flow = f"{self.flow}{self.healthy}"
        said["flow"] = [each.state for each in (await driver.flow(flow, NOW)).nodes]
        said["cancel_flow"] = await driver.cancel_flow(flow, NOW)
        said["prune"] = await driver.prune(LATE, 100)
        return said

    async def shared(self, is_away: Callable[[str], bool]) -> None:
        """What lies in one hash slot, whatever the queue: it answers unless it lies on the node that is gone."""
        driver = self.driver
        row = StoredSchedule(name=self.tag, queue=self.healthy, revision="r1", next_at=NOW)
        worker = WorkerInfo(worker=self.tag, queues=(self.healthy,), running=0, started_at=NOW)
        calls: dict[str, list[Callable[[], Awaitable[Any]]]] = {
            "{th}": [lambda: driver.beat(worker, NOW), lambda: driver.workers(NOW)],
            "{th:fig}": [
                lambda: driver.add_figures([Figures(NOW, self.healthy, {"done": 1})], NOW),
                lambda: driver.figures(NOW, LATE),
            ],
            "{th:audit}": [
                lambda: driver.put_audit([StoredAudit(id=self.tag, at=NOW, by="me")], NOW),
                driver.audit,
            ],
            "{th:schedules}": [
                lambda: driver.change_schedules([ScheduleChange(name=self.tag, expect=None, to=row)], NOW),
                driver.schedules,
                lambda: driver.due_schedules(self.queues, NOW),
            ],
        }
        for place, asked in calls.items():
            for call in asked:
                if is_away(place):
                    with pytest.raises(BackendUnavailable):
                        await call()
                else:
                    await call()

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

    def is_away(key: str) -> bool:
        return cluster.slot_of(key) in slots

    slots = {cluster.slot_of(key) for key in SHARED if cluster.primary_of(key) is node}
    flow = next(
        name
        for name in map("f{}-".format, range(1000))
        if node not in {cluster.primary_of(f"{{th:flow:{name}{queue}}}") for queue in (healthy, same)}
    )

    async def story() -> None:
        dsn = f"{cluster.url}?timeout=2s"
        both, alone = Story(dsn, "both", flow, healthy, lost), Story(dsn, "alone", flow, same, None)
        newcomer = RedisDriver(f"redis+cluster://{','.join(f'127.0.0.1:{each.port}' for each in cluster.nodes)}")
        try:
            await both.prepare()
            await alone.prepare()
            pair = gone(cluster, node)
            async with asyncio.timeout(60):
                expected, said = await alone.verbs(), await both.verbs()
                assert said == expected
                await both.shared(is_away)
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
