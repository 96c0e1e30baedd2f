"""What the Redis driver says when it opens, what it refuses, and what becomes of calls to a server that is away."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord, open_driver
from taskharbor.drivers.redis import RedisDriver, checks, hints
from taskharbor.drivers.redis.options import parse
from tests.drivers.redis_stores import emptied
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id: str) -> JobRecord:
    return JobRecord(id=id, type="work", queue="q", created_at=NOW)


def live(dsn, story):
    async def run():
        driver = RedisDriver(dsn)
        await driver.open()
        try:
            return await story(driver)
        finally:
            await driver.close()

    return asyncio.run(run())


async def nothing(driver):
    return None


@pytest.fixture(autouse=True)
def _unsaid(monkeypatch):
    monkeypatch.setattr(checks, "_said", set())


def test_eviction_and_persistence_are_named(caplog):
    server = servers.Server("redis7", maxmemory_policy="allkeys-lru")
    try:
        with caplog.at_level(logging.WARNING, "taskharbor.redis"):
            live(server.url, nothing)
            live(server.url, nothing)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2
        assert "allkeys-lru" in said[0]
        assert "noeviction" in said[0]
        assert "appendonly" in said[1]
        caplog.clear()
        live(f"{server.url}?checks=0", nothing)
        assert caplog.records == []
    finally:
        server.stop()


def test_a_server_that_is_set_up_well_gets_no_word(caplog):
    server = servers.Server("redis7", aof=True)
    try:
        live(server.url, nothing)
        assert caplog.records == []
    finally:
        server.stop()


def told(**facts: object) -> str:
    return "# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in facts.items())


def test_what_cannot_work_is_refused():
    options = parse("redis://localhost/0")
    with pytest.raises(DriverError, match=r"5\.0\.14: expected 6\.2"):
        checks.judge(options, told(redis_version="5.0.14"))
    with pytest.raises(DriverError, match=r"redis\+cluster"):
        checks.judge(options, told(redis_version="7.0.1", cluster_enabled=1))
    with pytest.raises(BackendUnavailable, match="replica"):
        checks.judge(options, told(redis_version="7.0.1", role="slave"))
    assert checks.judge(options, told(redis_version="6.2.0", aof_enabled=1, maxmemory_policy="noeviction")) == []
    assert checks.judge(options, "") == []


def test_nobody_there_is_backend_unavailable_and_tells_no_password():
    port = servers.free_port()
    with pytest.raises(BackendUnavailable) as caught:
        live(f"redis://ada:opensesame@127.0.0.1:{port}/0?connect_timeout=2s", nothing)
    assert caught.value.__cause__ is not None
    assert "opensesame" not in str(caught.value)


def test_a_wrong_password_is_backend_unavailable_and_tells_none():
    server = servers.Server("redis7")
    server.run("CONFIG", "SET", "requirepass", "rightword")
    try:
        live(f"redis://:rightword@127.0.0.1:{server.port}/0?checks=0", nothing)
        with pytest.raises(BackendUnavailable) as caught:
            live(f"redis://:wrongword@127.0.0.1:{server.port}/0?checks=0", nothing)
        assert "word" not in str(caught.value)
    finally:
        server.stop()


def test_a_call_before_open_says_so():
    with pytest.raises(BackendUnavailable, match=r"driver\.open"):
        asyncio.run(RedisDriver("redis://localhost/0").queues())


@pytest.mark.parametrize(
    ("dsn", "word"),
    [
        ("redis://localhost/x", "number of a database"),
        ("redis+cluster://a:1,b:2/3", "one database"),
        ("redis://localhost/0?durable=yes", "durable"),
        ("redis://localhost/0?colour=red", "colour"),
        ("redis://localhost:99999/0", "host:port"),
        ("redis://localhost/0?timeout=0", "timeout"),
    ],
)
def test_a_bad_address_says_what_was_expected(dsn, word):
    with pytest.raises(ValueError, match=word):
        open_driver(dsn)


def test_scripts_that_the_server_forgot_are_loaded_again():
    async def story(driver):
        await driver.enqueue([job("a")], NOW)
        servers.shared("redis7").run("SCRIPT", "FLUSH")
        (held,) = await driver.reserve(["q"], NOW, LEASE, 1)
        servers.shared("redis7").run("SCRIPT", "FLUSH")
        assert await driver.settle([Ack(held.lease)], NOW) == [None]

    live(f"{emptied()}?checks=0", story)


def test_waiting_is_woken_by_a_message_and_not_by_looking(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_EVERY", 1000.0)

    async def story(driver):
        assert await driver.reserve(["q"], NOW, LEASE, 1) == []
        waiting = asyncio.create_task(driver.wait(["q"], 60))
        assert driver._hints is not None
        while not driver._hints._heard or not all(event.is_set() for event in driver._hints._heard.values()):
            await asyncio.sleep(0)
        other = driver.sibling()
        await other.open()
        await other.enqueue([job("a")], NOW)
        await other.close()
        assert await waiting is True

    live(f"{emptied()}?checks=0", story)


def test_durable_without_a_replica_says_that_it_was_written():
    async def story(driver):
        with pytest.raises(BackendUnavailable, match="not confirmed"):
            await driver.enqueue([job("a")], NOW)
        return (await driver.inspect("a", NOW)).state

    assert live(f"{emptied()}?checks=0&durable=1&timeout=1s", story) == "ready"
