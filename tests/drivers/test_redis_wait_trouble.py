"""A driver that waits in a full or damaged store: the wait ends, and the next reserve does what can be done."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import JobRecord
from taskharbor.drivers.redis import RedisDriver
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)


def test_a_full_server_hides_no_arrival():
    """It takes no claims."""

    async def story(client) -> None:
        driver, other = RedisDriver(f"{dsn}?checks=0"), RedisDriver(f"{dsn}?checks=0")
        await driver.open()
        await other.open()
        try:
            assert await driver.reserve(["q"], NOW, LEASE, 1) == []
            await other.enqueue([JobRecord(id="a", type="t", queue="q", created_at=NOW)], NOW)
            client.config_set("maxmemory", "1mb")
            assert await driver.wait(["q"], 60)
            assert [held.job.id for held in await driver.reserve(["q"], NOW, LEASE, 1)] == ["a"]
        finally:
            client.config_set("maxmemory", "0")
            await driver.close()
            await other.close()

    dsn = emptied()
    with servers.shared().client() as client:
        asyncio.run(story(client))


@pytest.mark.parametrize("key", ["wait", "delayed", "active", "th:seq"])
def test_a_damaged_key_ends_a_wait(key):
    async def story(client) -> None:
        driver = RedisDriver(f"{dsn}?checks=0")
        await driver.open()
        try:
            assert await driver.reserve(["q"], NOW, LEASE, 1) == []
            waiting = asyncio.create_task(driver.wait(["q"], 60))
            while not driver.opened.hints._waiters:
                await asyncio.sleep(0)
            client.set(f"{{q}}:{key}", "no list")
            if key == "th:seq":
                await driver.enqueue([JobRecord(id="a", type="t", queue="q", created_at=NOW)], NOW)
            assert await waiting
            await driver.reserve(["q"], NOW, LEASE, 1)
        finally:
            await driver.close()

    dsn = emptied()
    with servers.shared().client() as client:
        asyncio.run(story(client))
