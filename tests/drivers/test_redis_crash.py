"""Workers killed, Redis killed with -9 and started again, primaries lost, under load: real processes, and a journal."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as Lost

from taskharbor.drivers import Ack, BackendUnavailable, JobRecord
from taskharbor.drivers.redis import RedisDriver, pool
from tests import lanes
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")
ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
HELD = 8 * 4  # what a worker of eight may have taken, or not yet reported, when it or its store dies


@contextmanager
def children(*commands):
    """Processes of redis_child, killed at the end whatever happened."""
    started = [spawn(*command) for command in commands]
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def spawn(*command):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.drivers.redis_child", *map(str, command)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def line(child):
    text = child.stdout.readline()
    assert text, f"the child ended with {child.wait()}"
    return text.strip()


def lived(scenario):
    async def live():
        async with asyncio.timeout(PATIENCE * 3):
            await scenario()

    asyncio.run(live())


@contextmanager
def own(**settings):
    """A server of the test's own, to be killed."""
    server = servers.Server("redis7", aof=True, **settings)
    try:
        yield server
    finally:
        server.stop()


def jobs_of(numbers):
    """Every third in another queue; on a Cluster that is another slot."""
    queues = ("default", "default", "other")
    return [JobRecord(id=f"{n:06d}", type="t", queue=queues[n % 3], payload=b'{"n":%d}' % n) for n in numbers]


class Load:
    """A producer and three workers on one store, until every job that was acknowledged is done."""

    def __init__(self, dsn, number, journal):
        self.dsn, self.number, self.journal = dsn, number, journal
        self.sent: set[str] = set()
        self.moved = asyncio.Condition()

    async def produce(self, driver):
        for start in range(0, self.number, 10):
            jobs = jobs_of(range(start, start + 10))
            while True:
                try:
                    await driver.enqueue(jobs, await driver.server_time())
                    break
                except BackendUnavailable:
                    await asyncio.sleep(0)
            async with self.moved:
                self.sent.update(job.id for job in jobs)
                self.moved.notify_all()

    async def reached(self, share):
        async with self.moved:
            await self.moved.wait_for(lambda: len(self.sent) >= min(self.number, share * self.number))

    async def run(self, disturb, rounds, chance):
        driver = RedisDriver(self.dsn)
        await driver.open()
        with children(*[("work", self.dsn, self.journal)] * 3) as started:
            for child in started:
                assert await asyncio.to_thread(line, child) == "ready"
            producing = asyncio.create_task(self.produce(driver))
            for turn in range(rounds):
                await self.reached((turn + chance.random()) / rounds)
                await asyncio.to_thread(disturb)
                victim = chance.randrange(2)  # the third is never killed: it has to survive the store's death
                started[victim].kill()
                started[victim].wait()
                started[victim].stdout.close()
                started[victim] = spawn("work", self.dsn, self.journal)
                await asyncio.to_thread(line, started[victim])
            await producing
            while await self.left(driver):
                await asyncio.sleep(0)
            assert started[2].poll() is None
        await driver.close()

    async def left(self, driver):
        try:
            counts = await driver.counts(await driver.server_time())
        except BackendUnavailable:
            return True
        return sum(queue.get("done", 0) for queue in counts.values()) != self.number

    def judge(self, rounds):
        ran = Counter(int(text.split()[0]) for text in self.journal.read_text().splitlines())
        assert set(ran) == set(range(self.number)), "a job was never executed"
        again = sum(times - 1 for times in ran.values())
        assert again <= rounds * (3 + 1) * HELD, f"{again} executions that no kill explains"


def test_a_job_of_a_killed_process_runs_after_its_lease():
    address = f"{emptied()}?checks=0"

    async def scenario():
        driver = RedisDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="a", type="t")], now)
        with children(("reserve_and_hang", address)) as (child,):
            assert await asyncio.to_thread(line, child) == "a"
            child.send_signal(signal.SIGKILL)
            child.wait()
        held = await driver.inspect("a", now)
        assert (held.state, held.worker) == ("inflight", "doomed")
        end = held.lease_expires_at
        assert end is not None
        assert await driver.reserve(["default"], end - timedelta(milliseconds=1), timedelta(seconds=9), 1) == []
        (again,) = await driver.reserve(["default"], end, timedelta(seconds=9), 1)
        assert (again.job.lost, again.job.deliveries) == (1, 2)
        await driver.close()

    lived(scenario)


def test_killed_under_load(tmp_path):
    """kill -9 of Redis with its AOF, lost scripts, killed workers: nothing lost, nothing stuck."""
    number, rounds = lanes.figure(test=1500, chaos=20_000), lanes.figure(test=2, chaos=20)
    with own() as server:
        load = Load(f"{server.url}?checks=0", number, tmp_path / "journal")

        def disturb():
            server.kill()
            server.start()
            server.run("SCRIPT", "FLUSH")

        lived(lambda: load.run(disturb, rounds, random.Random(lanes.seed())))
        load.judge(rounds)
        assert sorted(key for key in server.run("KEYS", "*inflight*")) == []


def test_a_manual_failover_under_load_loses_nothing(tmp_path):
    number, rounds = lanes.figure(test=600, chaos=10_000), lanes.figure(test=1, chaos=10)
    cluster = servers.Cluster(node_timeout=2000)
    try:
        load = Load(f"{cluster.url}?checks=0", number, tmp_path / "journal")

        def disturb():
            primary = cluster.primary_of("{default}")
            replica = cluster.replica_of(primary)
            replica.run("CLUSTER", "FAILOVER")
            servers.until(lambda: replica.run("ROLE")[0] == "master", "the failover")

        lived(lambda: load.run(disturb, rounds, random.Random(lanes.seed())))
        load.judge(rounds)
    finally:
        cluster.stop()


@pytest.mark.parametrize("durable", [1, 0])
def test_a_lost_primary(durable):
    """Its replica hears nothing for a while, then it dies. In durable mode nothing that was acknowledged is lost; else
    exactly what was acknowledged while the replica heard nothing."""
    cluster = servers.Cluster(node_timeout=2000)
    try:
        primary = cluster.primary_of("{default}")
        replica = cluster.replica_of(primary)

        async def scenario():
            driver = RedisDriver(f"{cluster.url}?checks=0&durable={durable}&timeout=2s")
            await driver.open()
            now = await driver.server_time()

            async def stored(first, last):
                """The ids of what was acknowledged."""
                ids: set[str] = set()
                for start in range(first, last, 20):
                    names = [f"{n:06d}" for n in range(start, start + 20)]
                    try:
                        await driver.enqueue([JobRecord(id=name, type="t") for name in names], now)
                    except BackendUnavailable:
                        continue
                    ids.update(names)
                return ids

            before = await stored(0, 400)
            assert len(before) == 400
            while (await asyncio.to_thread(acknowledged, primary))[0] != (
                await asyncio.to_thread(acknowledged, primary)
            )[1]:
                await asyncio.sleep(0)
            os.kill(replica.pid, signal.SIGSTOP)
            try:
                primary.run("CLIENT", "KILL", "TYPE", "replica")  # else the kernel keeps for it what it does not read
                dark = await stored(400, 440)
                primary.kill()
            finally:
                os.kill(replica.pid, signal.SIGCONT)
            await driver.close()
            there = await found(cluster)
            assert before - there == set()
            assert dark - there == dark
            assert len(dark) == (0 if durable else 40)

        lived(scenario)
    finally:
        cluster.stop()


def acknowledged(primary):
    """How far a primary has written, and how far its replica says that it has read."""
    replication = primary.run("INFO", "replication")
    return replication["master_repl_offset"], replication["slave0"]["offset"]


async def found(cluster):
    """The ids of all jobs, once the Cluster answers again."""
    seed = next(node.port for node in cluster.nodes if node.process is not None and node.process.poll() is None)
    driver = RedisDriver(f"redis+cluster://127.0.0.1:{seed}?checks=0")
    while True:
        try:
            await driver.open()
            page = await driver.list(now=await driver.server_time(), queue="default", limit=5000)
        except BackendUnavailable:
            await asyncio.sleep(0)
        else:
            await driver.close()
            return {info.job.id for info in page.items}


def test_calls_and_hints_come_back():
    """A driver outlives its server: calls fail with one word while it is away, and work when it is back."""
    with own() as server:

        async def scenario():
            driver, other = RedisDriver(f"{server.url}?checks=0"), RedisDriver(f"{server.url}?checks=0")
            await driver.open()
            await other.open()
            now, lease = await driver.server_time(), timedelta(seconds=60)
            await driver.enqueue([JobRecord(id="a", type="t")], now)
            (held,) = await driver.reserve(["default"], now, lease, 1)
            assert await other.reserve(["default"], now, lease, 1) == []
            assert await other.wait(["default"], 0.2) is False
            await asyncio.to_thread(server.kill)
            for call in (
                driver.enqueue([JobRecord(id="b", type="t")], now),
                driver.reserve(["default"], now, lease, 1),
                driver.settle([Ack(held.lease)], now),
                driver.wait(["default"], 1),
            ):
                with pytest.raises(BackendUnavailable) as raised:
                    await asyncio.wait_for(call, 20)
                assert raised.value.__cause__ is not None
            await asyncio.to_thread(server.start)
            assert await driver.settle([Ack(held.lease)], now) == [None]
            # The stale connections in the other's pool cost it nothing, and its subscription mends itself.
            assert await other.reserve(["default"], now, lease, 1) == []
            waiting = asyncio.create_task(other.wait(["default"], PATIENCE))
            await driver.enqueue([JobRecord(id="b", type="t")], now)
            assert await asyncio.wait_for(waiting, 20) is True
            assert len(await other.reserve(["default"], now, lease, 1)) == 1
            await other.close()
            await driver.close()

        lived(scenario)


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
        real = pool.Pool.call
        lost: list[object] = []

        async def losing(self, *commands):
            replies = await real(self, *commands)
            if commands[0][0] == "EVALSHA" and commands[0][1] == load(word).sha and not lost:
                lost.append(replies)
                raise Lost("the connection is lost")
            return replies

        monkeypatch.setattr(pool.Pool, "call", losing)
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
