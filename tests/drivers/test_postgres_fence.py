"""The fence over a crash of the server: a number that a worker was given is never given to another one.

The server is stopped as by a crash right after the reply of a reserve, before anything is committed that would take
the claim along to the disk.
"""

import asyncio
from datetime import timedelta

import pytest

from taskharbor.drivers import JobRecord, LeaseMismatch, Retry, open_driver
from taskharbor.drivers.postgres.options import parse
from tests import lanes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)
CRASHES = lanes.figure(test=2, full=8)


@pytest.fixture
def server():
    own = postgres.Server()
    yield own
    own.stop()


def test_the_fence_grows_across_a_crash(server):
    """By turns through both ways of a reserve, the short one and the one for several queues."""
    address = server.address(server.database())

    async def scenario():
        driver = open_driver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="j", type="t", queue="a")], now)
        granted = []
        for turn in range(CRASHES):
            queues = ("a", "b")[: 1 + turn % 2]
            (held,) = await driver.reserve(queues, now, LEASE, 10)
            await asyncio.to_thread(server.abort)
            await asyncio.to_thread(server.start)
            # Nobody but the holder has it until the lease ends: then it is lost, and known to be.
            assert await driver.reserve(queues, now, LEASE, 10) == []
            now += LEASE
            (again,) = await driver.reserve(queues, now, LEASE, 10)
            granted += [held.job.deliveries, again.job.deliveries]
            assert again.job.lost == 1
            (refused,) = await driver.settle([Retry(held.lease, None, turn + 1)], now)
            assert isinstance(refused, LeaseMismatch)
            assert await driver.settle([Retry(again.lease, None, turn + 1)], now) == [None]
        assert granted == list(range(1, 2 * CRASHES + 1)), "a fence was given out twice, or left out"
        await driver.close()

    asyncio.run(scenario())


def test_an_unflushed_reserve_must_be_requested():
    assert parse("postgresql://h/d").durable_reserve
    assert not parse("postgresql://h/d?reserve=unflushed").durable_reserve
    with pytest.raises(ValueError, match="reserve: expected durable or unflushed, got 'no'"):
        parse("postgresql://h/d?reserve=no")
