"""Hints: which channels carry them, and when a wait ends."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor.conformance.cases.argument_bounds import NOBODY
from taskharbor.drivers import JobRecord
from taskharbor.drivers.redis import RedisDriver
from taskharbor.omniq import OmniQ
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.lane("redis")
@pytest.mark.parametrize("database", [0, 3])
def test_hints_stay_in_their_database(database: int) -> None:
    """Channels belong to the whole server."""
    emptied()
    server, other = servers.shared("redis7"), 3 - database
    suffix = ":3" if database else ""

    async def scenario() -> None:
        driver = RedisDriver(f"redis://127.0.0.1:{server.port}/{database}?checks=0")
        await driver.open()
        waiting = asyncio.create_task(driver.wait(["mine"], 60))
        try:
            with server.client() as client, client.pubsub() as ear:
                ear.psubscribe("*")
                await asyncio.to_thread(
                    servers.until, lambda: listeners(client, f"{{mine}}:th:wake{suffix}"), "it listens"
                )
                assert [name for name in client.pubsub_channels() if b"mine" in name] == [
                    f"{{mine}}:th:wake{suffix}".encode()
                ]
                for number in (other, database):
                    with OmniQ(f"redis://127.0.0.1:{server.port}/{number}") as q:
                        q.publish("theirs", {})
                await driver.enqueue([JobRecord(id="a", type="t", queue="mine")], NOW)
                await driver.enqueue([JobRecord(id="b", type="t", queue="mine", group="g")], NOW)
                assert await asyncio.wait_for(waiting, 60)
                heard = [message["channel"] for message in heard_by(ear, 4)]
                wanted = ["{theirs}:th:wake" + (":3" if number else "") for number in (other, database)]
                assert heard == [name.encode() for name in [*wanted, *[f"{{mine}}:th:wake{suffix}"] * 2]]
        finally:
            waiting.cancel()
            await driver.close()

    asyncio.run(scenario())


@pytest.mark.lane("redis")
@pytest.mark.parametrize("cluster", [False, True], ids=["one server", "Cluster"])
def test_a_name_that_no_queue_can_have_costs_the_others_no_hint(cluster: bool) -> None:
    emptied()
    url = servers.shared_cluster().url if cluster else servers.shared().url

    async def scenario() -> None:
        driver = RedisDriver(f"{url}?checks=0")
        await driver.open()
        try:
            assert not await driver.wait([*NOBODY, "mine"], 0)
            hints = driver.opened.hints
            assert "mine" in hints._subscribed
            async with asyncio.timeout(60):
                await hints._subscribed["mine"].wait()
            assert hints._task is not None
            assert not hints._task.done()
        finally:
            await driver.close()

    asyncio.run(scenario())


def listeners(client: Any, channel: str) -> int:
    return int(client.pubsub_numsub(channel)[0][1])


def heard_by(ear: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = ear.get_message(timeout=60)
        assert message is not None, "it was published"
        found += [message] if message["type"] == "pmessage" else []
    return found
