"""Workers killed, and the server killed with -9 and started again, under load. Real processes, with a journal."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


@contextmanager
def children(*commands):
    """Processes of postgres_child, killed at the end whatever happened."""
    started = [spawn(*command) for command in commands]
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def spawn(*command):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.drivers.postgres_child", *map(str, command)],
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


@pytest.fixture
def own():
    """A server of the test's own, to be killed."""
    server = postgres.Server()
    yield server
    server.stop()


def lines(journal: Path) -> int:
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def lived(scenario):
    async def live():
        async with asyncio.timeout(PATIENCE * 2):
            await scenario()

    asyncio.run(live())


def test_a_job_of_a_killed_process_runs_after_its_lease():
    address = postgres.shared().address(postgres.shared().database())

    async def scenario():
        driver = PostgresDriver(address)
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


def test_killed_under_load(own, tmp_path):
    """Nothing lost; executed more often only where a kill explains it; the same workers go on by themselves."""
    number, rounds = lanes.figure(test=1500, chaos=20_000), lanes.figure(test=2, chaos=20)
    address, journal = own.address(own.database()), tmp_path / "journal"
    chance = random.Random(lanes.seed())
    killed: set[int] = set()
    outages: list[tuple[int, int]] = []  # how long the journal was before the server died, and when it was back

    async def scenario():
        driver = PostgresDriver(address)
        await driver.open()
        sent: list[str] = []
        up, moved = asyncio.Event(), asyncio.Condition()
        up.set()

        async def produce() -> None:
            for start in range(0, number, 10):
                jobs = [JobRecord(id=f"{n:06d}", type="t", payload=b'{"n":%d}' % n) for n in range(start, start + 10)]
                while True:
                    try:
                        await driver.enqueue(jobs, await driver.server_time())
                        break
                    except BackendUnavailable:
                        await up.wait()
                async with moved:
                    sent.extend(job.id for job in jobs)
                    moved.notify_all()

        async def reached(share: float) -> None:
            async with moved:
                await moved.wait_for(lambda: len(sent) >= min(number, share * number))

        with children(*[("work", address, journal)] * 3) as started:
            for child in started:
                assert await asyncio.to_thread(line, child) == "ready"
            producing = asyncio.create_task(produce())
            for turn in range(rounds):
                await reached((turn + chance.random()) / rounds)
                up.clear()
                before = lines(journal)
                await asyncio.to_thread(own.kill)
                await asyncio.to_thread(own.start)
                # Until a worker has noticed that the server is back it may run what it had reserved before.
                outages.append((before, lines(journal) + 3 * 8))
                up.set()
                victim = chance.randrange(2)  # the third is never killed: it has to survive the server's death
                started[victim].kill()
                started[victim].wait()
                killed.add(started[victim].pid)
                started[victim].stdout.close()
                started[victim] = spawn("work", address, journal)
                await asyncio.to_thread(line, started[victim])
            await producing
            while (await driver.counts(await driver.server_time()))["default"].get("done") != number:
                await asyncio.sleep(0)
            assert started[2].poll() is None
        assert len(sent) == number
        await driver.close()

    lived(scenario)
    ran: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, text in enumerate(journal.read_text().splitlines()):
        job, pid = map(int, text.split())
        ran[job].append((place, pid))
    assert set(ran) == set(range(number)), "a job was never executed"
    for job, times in ran.items():
        for (place, pid), (later, _) in pairwise(times):
            explained = pid in killed or any(place <= after and later >= before for before, after in outages)
            assert explained, f"job {job} was executed again at {later} (first at {place} by {pid}) without a cause"


def test_calls_and_hints_come_back(own):
    """A driver outlives its server: calls fail with one word while it is away, and work when it is back."""
    address = own.address(own.database())

    async def scenario():
        driver, other = PostgresDriver(address), PostgresDriver(address)
        await driver.open()
        await other.open()
        now = await driver.server_time()
        lease = timedelta(seconds=60)
        await driver.enqueue([JobRecord(id="a", type="t")], now)
        (held,) = await driver.reserve(["default"], now, lease, 1)
        assert await other.wait(["default"], 0.2) is False
        await driver.pause("other")  # a claim is not flushed by itself; what is committed after it takes it along
        await asyncio.to_thread(own.kill)
        for call in (
            driver.enqueue([JobRecord(id="b", type="t")], now),
            driver.reserve(["default"], now, lease, 1),
            driver.settle([Ack(held.lease)], now),
            driver.wait(["default"], 1),
        ):
            with pytest.raises(BackendUnavailable) as raised:
                await asyncio.wait_for(call, 20)
            assert raised.value.__cause__ is not None
        await asyncio.to_thread(own.start)
        assert await driver.settle([Ack(held.lease)], now) == [None]
        # The stale connections in the other's pool cost it nothing, and its listening connection mends itself.
        assert await other.reserve(["default"], now, lease, 1) == []
        assert other._hints is not None
        await other._hints._listening.wait()
        waiting = asyncio.create_task(other.wait(["default"], PATIENCE))
        noted = "select 1 from taskharbor.waiting where queue = 'default'"
        while not await driver._do(noted):
            await asyncio.sleep(0)
        await driver.enqueue([JobRecord(id="b", type="t")], now)
        assert await asyncio.wait_for(waiting, 20) is True
        assert len(await other.reserve(["default"], now, lease, 1)) == 1
        await other.close()
        await driver.close()

    lived(scenario)


def test_a_reply_that_was_lost(own):
    """A reserve whose connection dies after the commit is repeated with its tokens, and gets the same jobs."""
    address = own.address(own.database())

    async def scenario():
        from taskharbor.drivers.postgres import pool

        driver = PostgresDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id=f"j{n}", type="t") for n in range(5)], now)
        real = pool.fetch
        lost: list[list[Any]] = []

        async def losing(connection, statement):
            rows = await real(connection, statement)
            if ".reserve(" in statement.sql and not lost:
                lost.append(rows)
                await connection.close()
                from psycopg import OperationalError

                raise OperationalError("the connection is lost")
            return rows

        pool.fetch = losing
        try:
            held = await driver.reserve(["default"], now, timedelta(seconds=60), 3)
        finally:
            pool.fetch = real
        assert [item.job.id for item in held] == [row[0] for row in lost[0]] == ["j0", "j1", "j2"]
        assert {item.job.deliveries for item in held} == {1}
        assert await driver.settle([Ack(item.lease) for item in held], now) == [None] * 3
        await driver.close()

    lived(scenario)


def test_what_cannot_be_repeated_is_sent_once(own):
    """A requeue whose reply was lost is not sent again: it would answer that the job is in the wrong state."""
    address = own.address(own.database())

    async def scenario():
        from psycopg import OperationalError

        from taskharbor.drivers.postgres import pool

        driver = PostgresDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="a", type="t")], now)
        assert await driver.cancel(["a"], now) == [None]
        real, sent = pool.fetch, []

        async def losing(connection, statement):
            rows = await real(connection, statement)
            if ".requeue(" in statement.sql:
                sent.append(rows)
                await connection.close()
                raise OperationalError("the connection is lost")
            return rows

        pool.fetch = losing
        try:
            with pytest.raises(BackendUnavailable):
                await driver.requeue(["a"], now)
        finally:
            pool.fetch = real
        assert len(sent) == 1
        assert (await driver.inspect("a", now)).state == "ready"
        # A stale connection in the pool is found out before anything is sent.
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start)
        assert await driver.cancel(["a"], now) == [None]
        await driver.close()

    lived(scenario)
