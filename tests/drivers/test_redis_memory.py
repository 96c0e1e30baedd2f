"""What a job costs Redis in memory, and stores without the index of OmniQ 4.0."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bench import redis_memory
from taskharbor.drivers import Ack, JobRecord, Retry
from taskharbor.drivers.redis import RedisDriver
from taskharbor.omniq import OmniQ
from tests.drivers.redis_stores import emptied
from tests.lanes import figure
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
JOBS = 2000


def parts(options: str) -> dict[str, dict[str, int]]:
    """State → kind of key → bytes of a job."""
    return {state: found for state, _, found in asyncio.run(redis_memory.measure(emptied() + options, JOBS))}


@pytest.mark.left_to("full")
def test_a_waiting_job_costs_less_than_500_bytes_without_the_index():
    found = asyncio.run(redis_memory.measure(f"{emptied()}?omniq_index=0", figure(test=5_000, full=20_000)))
    assert found[0][0] == "waiting"
    assert found[0][1] < 500


def test_the_index_of_omniq_is_kept_unless_it_is_not_wanted():
    whole, bare = parts(""), parts("?omniq_index=0")
    for state, lane in (("waiting", "wait"), ("inflight", "active")):
        assert f"{{default}}:idx:{lane}" in whole[state]
        assert not [kind for kind in bare[state] if "idx" in kind]
        assert {kind for kind in whole[state] if "idx" not in kind} == set(bare[state])


@pytest.mark.parametrize("limit", [1, 10], ids=["one by one", "at once"])
def test_an_index_that_others_keep_is_never_wrong(limit):
    """Jobs of an OmniQ client and of a driver that keep one, taken by a driver that keeps none."""

    async def scenario() -> None:
        driver = RedisDriver(f"{emptied()}?checks=0&omniq_index=0")
        await driver.open()
        with OmniQ(servers.shared().url) as q:
            for number in range(4):
                q.publish("jobs", {}, job_id=f"j{number}")
        await driver.enqueue([JobRecord(id="own", type="t", queue="jobs")], NOW)
        other = RedisDriver(f"{servers.shared().url}?checks=0")
        await other.open()
        await other.enqueue([JobRecord(id=name, type="t", queue="plain") for name in "ab"], NOW)
        await other.close()
        with servers.shared().client(decode_responses=True) as client:
            assert client.zrange("{jobs}:idx:wait", 0, -1) == ["j0", "j1", "j2", "j3"]
            now, lanes = await driver.server_time(), ("wait", "active", "delayed", "completed", "failed")
            assert client.zrange("{plain}:idx:wait", 0, -1) == ["a", "b"]
            while found := await driver.reserve(["plain"], now, LEASE, limit):
                assert await driver.settle([Ack(each.lease) for each in found], now) == [None] * len(found)
            assert not [lane for lane in lanes if client.exists(f"{{plain}}:idx:{lane}")]
            held = []
            while found := await driver.reserve(["jobs"], now, LEASE, limit):
                held += found
            assert len(held) == 5
            await driver.settle([Retry(held[0].lease, now + LEASE, 1)], now)
            await driver.settle([Ack(each.lease) for each in held[1:]], now)
            assert not [lane for lane in lanes if client.exists(f"{{jobs}}:idx:{lane}")]
        await driver.close()

    asyncio.run(scenario())
