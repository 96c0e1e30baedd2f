"""A primary that sentinels name: found, checked, and followed when another takes its place."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord, open_driver
from taskharbor.drivers.redis import RedisDriver, sentinel
from taskharbor.drivers.redis.options import parse
from taskharbor.omniq import AsyncOmniQ, OmniQ
from tests import lanes
from tests.drivers.crash import Load, lived
from tests.drivers.redis_stores import emptied
from tests.drivers.test_redis_failover import is_in_step
from tests.servers import redis as servers
from tests.servers.ports import free_port
from tests.servers.sentinel import SERVICE, Sentinels, shared_sentinels

pytestmark = [
    pytest.mark.lane("sentinel"),
    pytest.mark.left_to(
        "full",
        except_for=lanes.Chosen(
            "test_the_primary_dies_under_load",
            "test_a_primary_that_was_replaced_is_left",
            "test_logins_of_the_sentinels_and_of_the_servers",
            "test_options_of_an_address",
        ),
    ),
]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def opened(dsn, story=None):
    async def live():
        driver = open_driver(dsn)
        try:
            await driver.open()
            return await story(driver) if story is not None else None
        finally:
            await driver.close()

    return asyncio.run(live())


def host(server):
    return f"127.0.0.1:{server.port}"


def test_the_primary_dies_under_load(tmp_path):
    """kill -9, a replica takes its place, the dead one comes back as its replica; workers and the producer go on."""
    number, rounds = lanes.figure(test=300, full=5_000), lanes.figure(test=1, full=4)
    watched = Sentinels(aof=True)  # one that came back empty may be promoted on a busy machine, and all is gone
    load = Load(f"{watched.url}?checks=0&durable=1&timeout=2s", number, tmp_path / "journal", lease=2.0)

    def disturb():
        watched.kill_primary().start()
        watched.settle()

    try:
        lived(lambda: load.run(disturb, rounds))
    finally:
        watched.stop()
    load.all_are_explained()


def test_a_primary_that_was_replaced_is_left():
    """It lives on, answers, and for a while even takes jobs, which nobody will ever see."""
    watched = shared_sentinels()
    watched.settle()
    watched.empty()

    async def story(driver):
        endpoint = driver.store.endpoint
        await driver.enqueue([JobRecord(id="a", type="t"), JobRecord(id="b", type="t")], NOW)
        (one,) = await driver.reserve(["default"], NOW, LEASE, 1)
        await endpoint.ask("WAIT", 1, 60_000)
        first = endpoint.primary.pool.address
        await asyncio.to_thread(watched.fail_over)
        endpoint.primary.check_at = 0.0  # as a second later
        assert await driver.settle([Ack(one.lease)], NOW) == [None]
        (two,) = await driver.reserve(["default"], NOW, LEASE, 1)
        assert await driver.extend([two.lease], NOW, LEASE) == [two.lease]
        assert (await driver.counts(NOW))["default"] == {"done": 1, "inflight": 1}
        assert endpoint.primary.pool.address != first
        await asyncio.to_thread(watched.settle)
        assert (await driver.counts(NOW))["default"] == {"done": 1, "inflight": 1}

    opened(f"{watched.url}?checks=0", story)


def test_a_server_that_the_sentinels_name_must_be_a_primary():
    """A sentinel may know it late: what a replica holds may be old."""
    watched = shared_sentinels()
    watched.settle()
    replica = next(server for server in watched.living() if server is not watched.primary)

    async def story(driver):
        endpoint = driver.store.endpoint
        await endpoint.primary.left(endpoint.primary.pool)

        async def stale(deadline):
            return "127.0.0.1", replica.port

        endpoint.primary.address = stale
        with pytest.raises(
            BackendUnavailable, match=f"127.0.0.1:{replica.port}, which the sentinels name, is a replica"
        ):
            await driver.is_paused("default")

    opened(f"{watched.url}?checks=0&timeout=300ms", story)


def test_sentinels_that_are_away_hold_up_nothing(monkeypatch):
    """The primary that was named last is as good as before."""
    watched = shared_sentinels()
    watched.settle()
    monkeypatch.setattr(sentinel, "CHECK_EVERY_S", 0.0)

    async def story(driver):
        primary, asked = driver.store.endpoint.primary, []
        first = primary.pool

        async def silent(deadline):
            asked.append("for good")
            await asyncio.Event().wait()

        async def away(deadline):
            asked.append("at once")
            raise OSError("nobody answers")

        primary.address = away
        assert not await driver.is_paused("default")
        primary.address = silent
        assert not await driver.is_paused("default")
        assert not await driver.is_paused("default")
        assert asked == ["at once", "for good"]
        assert primary.pool is first

    opened(f"{watched.url}?checks=0", story)


def test_hints_come_after_a_failover():
    watched = shared_sentinels()
    watched.empty()

    async def story(driver):
        async with asyncio.timeout(60):
            other = open_driver(f"{watched.url}?checks=0")
            await other.open()
            assert not await driver.wait(["default"], 0.01)
            await asyncio.to_thread(watched.fail_over)
            await asyncio.to_thread(watched.settle)
            for turn in range(2):
                waiting = asyncio.create_task(driver.wait(["default"], 60))
                await other.enqueue([JobRecord(id=f"j{turn}", type="t")], NOW)
                assert await waiting
                assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1
            await other.close()

    opened(f"{watched.url}?checks=0", story)


def test_some_sentinels_are_away():
    watched = shared_sentinels()
    watched.settle()
    nobody = f"127.0.0.1:{free_port()}"
    one, two, _ = map(host, watched.sentinels)
    opened(f"redis+sentinel://{nobody},{one}/{SERVICE}")
    opened(f"redis+sentinel://{nobody},{one},{two}/{SERVICE}/0?durable=1")
    with pytest.raises(BackendUnavailable, match="did not answer: cannot connect to"):
        opened(f"redis+sentinel://{nobody}/{SERVICE}?timeout=300ms")


def test_the_answer_of_the_latest_configuration_counts(monkeypatch):
    """More than half are waited for; a sentinel that was cut off may name a primary that was replaced."""
    answers = {"a": (3, ("old", 1)), "b": (4, ("new", 1)), "c": (3, ("old", 1)), "d": None, "e": None}

    async def answer(self, pool, deadline):
        if pool.address[0] == "e":
            await asyncio.Event().wait()  # does not answer
        return answers[pool.address[0]]

    monkeypatch.setattr(sentinel.Primary, "_answer", answer)

    async def story(hosts):
        return await sentinel.Primary(parse(f"redis+sentinel://{hosts}/s")).address(math.inf)

    assert asyncio.run(story("a,b,c,d,e")) == ("new", 1)


def test_a_sentinel_is_not_a_server():
    watched = shared_sentinels()
    with pytest.raises(
        DriverError, match=r"is a Sentinel, which holds no jobs: expected redis\+sentinel://host:26379/serv"
    ):
        opened(watched.sentinels[0].url)
    for path in ("0", "1"):
        with pytest.raises(DriverError, match=r"expected redis\+sentinel://host:26379/service"):
            opened(f"redis://{host(watched.sentinels[0])}/{path}?checks=0", lambda driver: driver.counts(NOW))


def test_a_server_is_not_a_sentinel_and_a_service_has_a_name():
    with pytest.raises(BackendUnavailable, match="is not a Sentinel: expected the addresses of sentinels") as caught:
        opened(emptied().replace("redis://", "redis+sentinel://") + "?checks=0")
    assert caught.value.lasting
    with pytest.raises(BackendUnavailable, match="the sentinels watch no service 'job'") as caught:
        opened(shared_sentinels().url.replace("/jobs", "/job"))
    assert caught.value.lasting


def test_logins_of_the_sentinels_and_of_the_servers():
    """A user and a password for each; the error says which of them is wrong, and shows neither."""
    watched = Sentinels()
    try:
        for server in watched.servers:
            server.run("ACL", "SETUSER", "app", "on", ">data-secret", "~*", "&*", "+@all")
        for each in watched.sentinels:
            each.run("ACL", "SETUSER", "looker", "on", ">watch-secret", "+sentinel|get-master-addr-by-name",
                     "+sentinel|master", "+client|setname", "&*")  # fmt: skip
        url = watched.url.replace("//", "//app:data-secret@")
        own = "sentinel_username=looker&sentinel_password=watch-secret"

        async def story(driver):
            return await driver.store.endpoint.ask("ACL", "WHOAMI")

        assert opened(f"{url}?{own}", story) == b"app"
        with pytest.raises(BackendUnavailable, match="a sentinel refused the login: give its own") as caught:
            opened(f"{url}?{own}-wrong")
        assert caught.value.lasting
        with pytest.raises(BackendUnavailable, match=r"^Redis refused the login") as caught:
            opened(f"{url.replace('data-secret', 'other-secret')}?{own}")
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(RedisDriver(f"{url}?{own}").options)
    finally:
        watched.stop()


def test_options_of_an_address():
    options = parse("redis+sentinel://u:p@a,b:1/my%20jobs/3?tls=1&ssl_ca_certs=/ca&sentinel_username=w")
    assert (options.hosts, options.service, options.database) == ((("a", 26379), ("b", 1)), "my jobs", 3)
    assert (options.username, options.password, options.tls) == ("u", "p", True)
    asked = options.for_sentinels()
    assert (asked.username, asked.password, asked.database, asked.tls) == ("w", None, 0, True)
    assert dict(asked.ssl)["ssl_ca_certs"] == "/ca"
    mixed = parse("redis+sentinel://a/s?tls=0&sentinel_tls=1")
    assert (mixed.tls, mixed.for_sentinels().tls) == (False, True)
    assert parse("redis+sentinel://a/s").service == "s"
    with pytest.raises(ValueError, match="expected the name of the service"):
        parse("redis+sentinel://a:26379")
    with pytest.raises(ValueError, match="sentinel_password"):
        parse("redis://a?sentinel_password=x")


def test_a_client_of_omniq_follows_the_primary():
    watched = shared_sentinels()
    watched.empty()

    async def awaited():
        async with AsyncOmniQ(watched.url) as q:
            await q.publish("jobs", {}, job_id="b")
            await asyncio.to_thread(change)
            return await q.reserve("jobs")

    def change():
        servers.until(lambda: is_in_step(watched.primary), "the replica")
        watched.fail_over()
        watched.settle()

    with OmniQ(f"{watched.url}?retention=1h") as q:
        q.publish("jobs", {}, job_id="a")
        change()
        job: Any = q.reserve("jobs")
        q.ack_success("jobs", job.job_id, job.lease_token)
        assert asyncio.run(awaited()).job_id == "b"
    with pytest.raises(BackendUnavailable, match="MasterNotFoundError"), OmniQ(watched.url.replace("/jobs", "/x")) as q:
        q.publish("jobs", {})
