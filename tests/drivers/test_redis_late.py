"""A node of a Cluster that stalls for a moment, or refuses a call: what was granted is not lost until leases end."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord
from taskharbor.drivers.redis import cluster_rest
from taskharbor.drivers.redis.late import LateGrants
from taskharbor.drivers.redis.router import QueueGrants
from tests.drivers.redis_stores import on_cluster
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)


def queues_of_two_nodes() -> list[str]:
    cluster = servers.shared_cluster()
    return list({cluster.primary_of(f"{{q{number}}}").port: f"q{number}" for number in range(99)}.values())[:2]


@on_cluster
async def test_a_stall_of_one_node_loses_no_lease(driver, other):
    queues = queues_of_two_nodes()
    assert await driver.reserve(queues, NOW, LEASE, 2, "w") == []  # the scripts and connections are there
    jobs = [JobRecord(id=queue, type="t", queue=queue, created_at=NOW) for queue in queues]
    await other.enqueue(jobs, NOW)
    process = servers.shared_cluster().primary_of(f"{{{queues[1]}}}").process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        granted = await driver.reserve(queues, NOW, LEASE, 2, "w")
    finally:
        process.send_signal(signal.SIGCONT)
    assert [each.job.id for each in granted] == queues[:1]
    async with asyncio.timeout(10):
        while len(granted) < 2:
            granted += await driver.reserve(queues, NOW, LEASE, 2, "w")
            await asyncio.sleep(0)
    assert [each.job.id for each in granted] == queues
    for each in granted:
        assert await driver.settle([Ack(each.lease)], NOW) == [None]


def test_late_grants_go_to_the_worker_that_asked_up_to_its_limit_while_they_last():
    async def story() -> None:
        late, answered = LateGrants(), asyncio.Event()

        async def node() -> list[QueueGrants]:
            await answered.wait()
            return [QueueGrants("q", b"3", ["a", "b", "c"], 100), QueueGrants("empty", b"0", [], 100)]

        asked = asyncio.create_task(late.reserve("w", node()))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert late.take("w", ["q"], 9, 50) == []
        answered.set()
        await asyncio.gather(*late._under_way)
        await asyncio.sleep(0)
        assert late.take("x", ["q"], 9, 50) == late.take("w", ["p"], 9, 50) == []
        assert late.take("w", ["q"], 2, 50) == [QueueGrants("q", None, ["a", "b"], 100)]
        assert late.take("w", ["q"], 2, 100) == late.take("w", ["q"], 2, 50) == []
        await late.close()

    asyncio.run(story())


class Granting:
    """Stands in for the script of a reserve: queue → how many jobs each call grants there, or what it raises."""

    def __init__(self, **queues: list[int | Exception]) -> None:
        self.queues = queues
        self.granted = queues["a"][0]

    async def __call__(self, home, some, share, own):
        (queue,) = some
        said = self.queues[queue].pop(0)
        if isinstance(said, Exception):
            raise said
        return [QueueGrants(queue, b"0", list(own[:said]), 1)]


@pytest.mark.parametrize(
    "script",
    [
        Granting(a=[1], b=[DriverError("Redis refused the call")]),
        Granting(a=[2, BackendUnavailable("gone")], b=[0]),
        Granting(a=[2, DriverError("Redis refused the call")], b=[0]),
    ],
    ids=["a queue is refused", "gone in the second round", "refused in the second round"],
)
@on_cluster
async def test_what_was_granted_is_returned(driver, other, script):
    granted = await driver.store.router.reserve(["a", "b"], 4, list("stuv"), script)
    assert sum(len(each.jobs) for each in granted if each.queue == "a") == script.granted


@on_cluster
async def test_a_refusal_is_raised_when_nothing_was_granted(driver, other):
    with pytest.raises(DriverError, match="refused"):
        await driver.store.router.reserve(["a", "b"], 4, list("stuv"), Granting(a=[0], b=[DriverError("refused")]))


@on_cluster
async def test_a_user_of_one_queue_gets_it_back_when_its_node_answers(driver, other, monkeypatch):
    """Such a user may use the keys that begin with `{mine}:`, as docs/driver-redis.md says."""
    sent, cluster = [], driver.store.endpoint

    async def ask(*command, key):
        sent.append(command)
        raise DriverError("this user may not do everything that is needed")

    monkeypatch.setattr(cluster_rest, "ASK_EVERY_S", 0)
    monkeypatch.setattr(cluster, "ask", ask)
    resting = driver.store.router.resting
    error = BackendUnavailable("gone")
    error.__cause__ = ConnectionError("gone")
    resting.failed("mine", error)
    assert resting.reason("mine") is error
    async with asyncio.timeout(10):
        await resting._task
    assert resting.reason("mine") is None
    assert sent == [("EXISTS", "{mine}:paused")]
