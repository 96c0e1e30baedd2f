"""What the Redis driver says when it opens, what it refuses, and what becomes of calls to a server that is away."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord, open_driver
from taskharbor.drivers.redis import RedisDriver, server_checks, wait
from taskharbor.drivers.redis.options import parse
from taskharbor.omniq import AsyncOmniQ
from tests.drivers.redis_stores import emptied, with_driver
from tests.servers import redis as servers
from tests.servers.ports import free_port

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def job(id: str) -> JobRecord:
    return JobRecord(id=id, type="work", queue="q", created_at=NOW)


async def nothing(driver):
    return None


@pytest.fixture(autouse=True)
def _unsaid(monkeypatch):
    monkeypatch.setattr(server_checks, "_logged", set())


def test_eviction_and_persistence_are_named(caplog):
    server = servers.Server("redis7", maxmemory_policy="allkeys-lru")
    try:
        with caplog.at_level(logging.WARNING, "taskharbor.drivers.redis"):
            with_driver(server.url, nothing)
            with_driver(server.url, nothing)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2
        assert "allkeys-lru" in said[0]
        assert "noeviction" in said[0]
        assert "appendonly" in said[1]
        caplog.clear()
        with_driver(f"{server.url}?checks=0", nothing)
        assert caplog.records == []
    finally:
        server.stop()


def test_a_server_that_is_set_up_well_gets_no_word(caplog):
    server = servers.Server("redis7", aof=True)
    try:
        with_driver(server.url, nothing)
        assert caplog.records == []
    finally:
        server.stop()


def told(**facts: object) -> str:
    return "# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in facts.items())


def test_what_cannot_work_is_refused():
    options = parse("redis://localhost/0")
    with pytest.raises(DriverError, match=r"5\.0\.14: expected 6\.2"):
        server_checks.judge(options, told(redis_version="5.0.14"))
    with pytest.raises(DriverError, match=r"redis\+cluster"):
        server_checks.judge(options, told(redis_version="7.0.1", cluster_enabled=1))
    with pytest.raises(BackendUnavailable, match="replica"):
        server_checks.judge(options, told(redis_version="7.0.1", role="slave"))
    assert server_checks.judge(options, told(redis_version="6.2.0", aof_enabled=1, maxmemory_policy="noeviction")) == []
    assert server_checks.judge(options, "") == []


def test_an_unreachable_server_is_backend_unavailable_without_a_password():
    port = free_port()
    with pytest.raises(BackendUnavailable) as caught:
        with_driver(f"redis://ada:opensesame@127.0.0.1:{port}/0?connect_timeout=2s", nothing)
    assert caught.value.__cause__ is not None
    assert "opensesame" not in str(caught.value)


def test_a_wrong_password_is_backend_unavailable_and_tells_none():
    server = servers.Server("redis7")
    server.run("CONFIG", "SET", "requirepass", "rightword")
    try:
        with_driver(f"redis://:rightword@127.0.0.1:{server.port}/0?checks=0", nothing)
        with pytest.raises(BackendUnavailable) as caught:
            with_driver(f"redis://:wrongword@127.0.0.1:{server.port}/0?checks=0", nothing)
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

    with_driver(f"{emptied()}?checks=0", story)


def test_a_wait_is_woken_by_a_message_not_by_polling(monkeypatch):
    monkeypatch.setattr(wait, "LOOK_EVERY_S", 1000.0)

    async def story(driver):
        assert await driver.reserve(["q"], NOW, LEASE, 1) == []
        waiting = asyncio.create_task(driver.wait(["q"], 60))
        hints = driver.opened.hints
        while not hints._subscribed or not all(event.is_set() for event in hints._subscribed.values()):
            await asyncio.sleep(0)
        other = driver.sibling()
        await other.open()
        await other.enqueue([job("a")], NOW)
        await other.close()
        assert await waiting is True

    with_driver(f"{emptied()}?checks=0", story)


def test_durable_without_a_replica_says_that_it_was_written():
    async def story(driver):
        with pytest.raises(BackendUnavailable, match="not confirmed"):
            await driver.enqueue([job("a")], NOW)
        return (await driver.inspect("a", NOW)).state

    assert with_driver(f"{emptied()}?checks=0&durable=1&timeout=1s", story) == "ready"


@pytest.mark.parametrize("scheme", ["redis+unix", "unix"])
def test_a_socket_in_the_file_system(tmp_path, scheme):
    server = servers.Server(unixsocket=f'"{tmp_path}/my redis"')
    server.run("CONFIG", "SET", "requirepass", "word")

    async def story(driver):
        await driver.enqueue([job("a")], NOW)
        assert await driver.wait(["q"], 60)
        (held,) = await driver.reserve(["q"], NOW, LEASE, 1)
        await driver.settle([Ack(held.lease)], NOW)

    async def awaited(address):
        async with AsyncOmniQ(address) as q:
            return await q.publish("q", {}, job_id="b")

    address = f"{scheme}://:word@{tmp_path}/my%20redis?db=3&checks=0"
    try:
        driver = open_driver(address)
        assert isinstance(driver, RedisDriver)
        with_driver(address, story)
        assert asyncio.run(awaited(address)) == "b"
        with server.client(db=3, password="word") as raw:
            assert raw.zcard("{q}:th:done") == raw.llen("{q}:wait") == 1
        with pytest.raises(BackendUnavailable, match="nobody"):
            with_driver(f"{scheme}://{tmp_path}/nobody", nothing)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("redis+unix://run/redis.sock", "expected the path of a socket behind three slashes"),
        ("redis+unix://", "expected the path of a socket"),
        ("redis+unix:///run/redis.sock?db=x", "expected the number of a database"),
        ("redis+unix:///run/redis.sock?tls=1", "tls: a socket in the file system has none"),
        ("redis://host/0?db=1", "unknown option 'db'"),
    ],
)
def test_addresses_of_sockets_that_mean_nothing(address, what):
    with pytest.raises(ValueError, match=what):
        open_driver(address)
