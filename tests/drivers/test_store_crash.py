"""Stores killed with -9 and started again, and workers killed, under load: real processes, and a journal."""

import asyncio
import signal
from datetime import timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, JobRecord, open_driver
from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.drivers.crash import PATIENCE, Load, children, line, lived
from tests.drivers.redis_stores import emptied
from tests.servers import postgres
from tests.servers import redis as servers

STORES = [pytest.param(name, marks=pytest.mark.lane(name)) for name in ("postgres", "redis")]
every = pytest.mark.parametrize("store", STORES)


@pytest.fixture
def own(store):
    """A server of the test's own, to be killed, and its address."""
    server = postgres.Server() if store == "postgres" else servers.Server("redis7", aof=True)
    address = server.address(server.database()) if isinstance(server, postgres.Server) else f"{server.url}?checks=0"
    yield server, address
    server.stop()


@every
def test_a_job_of_a_killed_process_runs_after_its_lease(store):
    shared = postgres.shared() if store == "postgres" else None
    address = shared.address(shared.database()) if shared else f"{emptied()}?checks=0"

    async def scenario():
        driver = open_driver(address)
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


@every
@pytest.mark.left_to("full", except_for=lanes.Chosen("postgres"))
def test_killed_under_load(store, own, tmp_path):
    """Nothing lost, nothing stuck; what ran twice is explained by a kill; the same workers go on by themselves."""
    number, rounds = lanes.figure(test=1500, full=8_000), lanes.figure(test=2, full=8)
    server, address = own
    load = Load(address, number, tmp_path / "journal", lease=6.0 if store == "postgres" else 2.0)

    def disturb():
        server.kill()
        server.start()
        if store == "redis":
            server.run("SCRIPT", "FLUSH")

    lived(lambda: load.run(disturb, rounds))
    if store == "redis":
        load.all_are_explained()
        assert server.run("KEYS", "*inflight*") == []
    else:
        load.each_is_explained()


@pytest.mark.left_to("full", except_for=lanes.Chosen("postgres"))
@every
def test_calls_and_hints_come_back(store, own):
    """A driver outlives its server: calls fail with one word while it is away, and work when it is back."""
    server, address = own

    async def scenario():
        driver, other = open_driver(address), open_driver(address)
        await driver.open()
        await other.open()
        now = await driver.server_time()
        lease = timedelta(seconds=60)
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
        # The stale connections in the other's pool cost it nothing, and its listening connection mends itself.
        assert await other.reserve(["default"], now, lease, 1) == []
        waiting = asyncio.create_task(other.wait(["default"], PATIENCE))
        if isinstance(driver, PostgresDriver):
            while not await driver._execute("select 1 from taskharbor.waiting where queue = 'default'"):
                await asyncio.sleep(0)
        await driver.enqueue([JobRecord(id="b", type="t")], now)
        assert await asyncio.wait_for(waiting, 20) is True
        assert len(await other.reserve(["default"], now, lease, 1)) == 1
        await other.close()
        await driver.close()

    lived(scenario)
