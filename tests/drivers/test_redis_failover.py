"""Primaries that are taken over or lost, and replies of Redis that are lost."""

import asyncio
import os
import signal
from datetime import timedelta

import pytest
from redis.exceptions import ConnectionError as Lost

from taskharbor.drivers import Ack, BackendUnavailable, JobRecord
from taskharbor.drivers.redis import RedisDriver, pool
from taskharbor.drivers.redis.housekeeping import visit
from tests import lanes
from tests.drivers.crash import Load, jobs_of, lived
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")


@pytest.mark.left_to("full")
def test_a_manual_failover_under_load_loses_nothing(tmp_path):
    number, rounds = lanes.figure(test=600, full=10_000), lanes.figure(test=1, full=4)
    cluster = servers.shared_cluster()
    cluster.empty()
    load = Load(f"{cluster.url}?checks=0", number, tmp_path / "journal", lease=2.0)

    def disturb():
        cluster.settle()
        cluster.fail_over(cluster.replica_of(cluster.primary_of("{default}")))

    lived(lambda: load.run(disturb, rounds))
    load.all_are_explained()
    cluster.settle()


@pytest.mark.left_to("full")
def test_a_lost_primary():
    """Its replica receives nothing for a while, then it dies. In durable mode nothing that was acknowledged is lost;
    else exactly what was acknowledged while the replica received nothing."""
    cluster = servers.Cluster(node_timeout=2000)
    first, second = cluster.nodes[:2]
    try:
        lived(lambda: lose(cluster, first, durable=1))
        lived(lambda: lose(cluster, second, durable=0))
    finally:
        cluster.stop()


async def lose(cluster, primary, durable):
    queue = next(name for name in map(str, range(100)) if cluster.primary_of(f"{{{name}}}") is primary)
    replica = cluster.replica_of(primary)
    driver = await opened(cluster, f"?checks=0&durable={durable}&timeout=2s")
    now = await driver.server_time()

    async def stored(first, last):
        """The ids of what was acknowledged."""
        ids: set[str] = set()
        for start in range(first, last, 20):
            names = [f"{queue}-{n:06d}" for n in range(start, start + 20)]
            try:
                await driver.enqueue([JobRecord(id=name, type="t", queue=queue) for name in names], now)
            except BackendUnavailable:
                continue
            ids.update(names)
        return ids

    before = await stored(0, 400)
    assert len(before) == 400
    while not await asyncio.to_thread(is_in_step, primary):
        await asyncio.sleep(0)
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        primary.run("CLIENT", "KILL", "TYPE", "replica")  # else the kernel keeps for it what it does not read
        dark = await stored(400, 440)
        primary.kill()
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    await driver.close()
    there = await found(cluster, queue)
    assert before - there == set()
    assert dark - there == dark
    assert len(dark) == (0 if durable else 40)


def is_in_step(primary):
    """Whether the replica of a primary says that it has read all that was written."""
    replication = primary.run("INFO", "replication")
    return replication["master_repl_offset"] == replication["slave0"]["offset"]


async def opened(cluster, options):
    seed = next(node.port for node in cluster.nodes if node.process is not None and node.process.poll() is None)
    driver = RedisDriver(f"redis+cluster://127.0.0.1:{seed}{options}")
    await driver.open()
    return driver


async def found(cluster, queue):
    """The ids of all jobs of a queue, once the Cluster answers again."""
    while True:
        try:
            driver = await opened(cluster, "?checks=0")
            try:
                page = await driver.list(now=await driver.server_time(), queue=queue, limit=5000)
                return {info.job.id for info in page.items}
            finally:
                await driver.close()
        except BackendUnavailable:
            await asyncio.sleep(0)


@pytest.mark.parametrize("word", ["reserve", "admin"])
def test_a_reply_that_was_lost(monkeypatch, word):
    """A reserve is asked for its grants once more; what would answer otherwise the second time is sent once."""
    from taskharbor.drivers.redis.scripts import load

    address = f"{emptied()}?checks=0"

    async def scenario():
        driver = RedisDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue(jobs_of(range(0, 9, 3)), now)
        await driver.enqueue([JobRecord(id="dead", type="t", queue="x")], now)
        await driver.cancel(["dead"], now)
        real = pool.RedisPool.call
        lost: list[object] = []

        async def losing(self, *commands, **options):
            replies = await real(self, *commands, **options)
            if commands[0][0] == "EVALSHA" and commands[0][1] == load(word).sha and not lost:
                lost.append(replies)
                raise Lost("the connection is lost")
            return replies

        monkeypatch.setattr(pool.RedisPool, "call", losing)
        if word == "reserve":
            held = await driver.reserve(["default"], now, timedelta(seconds=60), 2, "w")
            assert [item.job.id for item in held] == ["000000", "000003"]
            assert {(item.job.deliveries, item.job.attempts, item.job.lost) for item in held} == {(1, 0, 0)}
            assert await driver.settle([Ack(item.lease) for item in held], now) == [None] * 2
        else:
            with pytest.raises(BackendUnavailable):
                await driver.requeue(["dead"], now)
            assert (await driver.inspect("dead", now)).state == "ready"
        await driver.close()

    async def warm():
        driver = RedisDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.reserve(["nobody"], now, timedelta(seconds=1), 1)
        await driver.cancel(["nobody"], now)
        await driver.close()

    lived(warm)
    lived(scenario)


@pytest.mark.left_to("full")
def test_flows_over_a_primary_that_lost_its_last_second():
    """Chains over three hash slots; a replica is cut off while they run, and takes over: whatever is still there goes
    on, or is dead with the reason. Nothing is blocked for ever."""
    cluster = servers.Cluster(node_timeout=2000)
    try:
        lived(lambda: lose_in_flows(cluster, lanes.figure(test=20, full=100)))
    finally:
        cluster.stop()


async def lose_in_flows(cluster, chains):
    primary = cluster.primary_of("{a}")
    elsewhere = [name for name in map(str, range(200)) if cluster.primary_of(f"{{{name}}}") is not primary]
    queues = ["a", elsewhere[0], next(name for name in elsewhere if cluster.primary_of(f"{{{name}}}")
              is not cluster.primary_of(f"{{{elsewhere[0]}}}"))]  # fmt: skip
    replica = cluster.replica_of(primary)
    driver = await opened(cluster, "?checks=0&timeout=2s")
    now = await driver.server_time()

    def chain(number):
        ids = [f"{number:04}-{step}" for step in range(3)]
        order = [queues[(number + step) % 3] for step in range(3)]
        return [
            JobRecord(id=id, type="t", queue=queue, depends_on=tuple(ids[:step][-1:]), flow_id=f"f{number}")
            for step, (id, queue) in enumerate(zip(ids, order, strict=True))
        ]

    async def work(of, most):
        ran = 0
        while ran < most and (held := await of.reserve(queues, now, timedelta(minutes=5), 10)):
            await of.settle([Ack(each.lease) for each in held], now)
            ran += len(held)

    for number in range(chains):
        await driver.enqueue(chain(number), now)
    while not await asyncio.to_thread(is_in_step, primary):
        await asyncio.sleep(0)
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        primary.run("CLIENT", "KILL", "TYPE", "replica")
        await work(driver, chains)  # what it forgets
        primary.kill()
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    await driver.close()
    await found(cluster, "a")  # it answers again
    after = await opened(cluster, "?checks=0")
    try:
        later = now
        for _ in range(20):
            for queue in queues:
                await visit(after.store, queue, int(later.timestamp() * 1000), 0, compare_every_s=0)
            later += timedelta(minutes=10)  # leases that it forgot to be settled end
            while held := await after.reserve(queues, later, timedelta(minutes=5), 50):
                await after.settle([Ack(each.lease) for each in held], later)
        states = (await after.counts(later)).values()
        left = {state for each in states for state in each} - {"done"}
        assert left <= {"dlq"}, states
        dead = (await after.list(state="dlq", now=later, limit=500)).items
        assert {info.job.reason.rpartition(", ")[2] for info in dead} <= {"which was deleted"}
    finally:
        await after.close()
