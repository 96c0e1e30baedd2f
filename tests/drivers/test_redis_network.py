"""A network that drops connections without a word: noticed in time, and no call goes on with an old `now`."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord, Lease, LeaseExpired
from taskharbor.drivers.redis import RedisDriver, connection, driver, endpoint, leases
from taskharbor.drivers.redis.options import parse
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.model.times import to_ms
from tests import lanes
from tests.drivers.redis_stores import as_test, emptied
from tests.servers import redis as servers
from tests.servers.proxy import Proxy, proxy

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
TIMEOUT = timedelta(milliseconds=300)
OPTIONS = "?checks=0&timeout=300ms&connect_timeout=300ms"
PATIENCE = 120.0

Scenario = Callable[[Proxy, RedisDriver], Awaitable[None]]


def lived(scenario: Scenario, options: str = OPTIONS) -> None:
    """Run it on a driver that is open and connected through a proxy."""

    async def live() -> None:
        address = emptied()
        async with asyncio.timeout(PATIENCE), proxy("127.0.0.1", servers.shared().port) as between:
            opened = RedisDriver(between.address(address) + options)
            await opened.open()
            try:
                await scenario(between, opened)
            finally:
                await opened.close()

    asyncio.run(live())


through_proxy = as_test(lived)


def jobs(count: int) -> list[JobRecord]:
    return [JobRecord(id=f"j{number:02d}", type="t", created_at=NOW) for number in range(count)]


async def warm(opened: RedisDriver) -> None:
    """Every script is known to the server, and a reserve has looked at what others left."""
    await opened.enqueue([JobRecord(id="warm", type="t", queue="warm")], NOW)
    (held,) = await opened.reserve(["warm"], NOW, LEASE, 1)
    await opened.extend([held.lease], NOW, LEASE)
    await opened.settle([Ack(held.lease)], NOW)
    await opened.reserve(["warm", "other"], NOW, LEASE, 1)
    await opened.delete(["warm"])


WHERE = pytest.mark.parametrize("replies_only", [False, True], ids=["request", "reply"])


@WHERE
@through_proxy
async def test_a_reserve_that_was_not_answered_grants_whole_leases(between, opened, replies_only):
    await warm(opened)
    await opened.enqueue(jobs(3), NOW)
    between.drop(replies_only)
    held = await opened.reserve(["default"], NOW, LEASE, 2, "w")
    assert [each.job.id for each in held] == ["j00", "j01"]
    assert {(each.job.deliveries, each.job.lost) for each in held} == {(1, 0)}
    # The first try had its time before the second was made; the leases begin with the second.
    assert all(each.lease.expires_at >= NOW + TIMEOUT + LEASE for each in held)
    late = held[0].lease.expires_at - timedelta(milliseconds=1)
    assert (await opened.inspect("j00", late)).state == "inflight"
    assert [each.job.id for each in await opened.reserve(["default", "other"], late, LEASE, 5)] == ["j02"]
    assert await opened.settle([Ack(each.lease) for each in held], late) == [None, None]


@WHERE
@through_proxy
async def test_an_extend_that_was_not_answered_begins_anew(between, opened, replies_only):
    await warm(opened)
    await opened.enqueue(jobs(1), NOW)
    (held,) = await opened.reserve(["default"], NOW, LEASE, 1)
    between.drop(replies_only)
    (lease,) = await opened.extend([held.lease], NOW, LEASE)
    assert isinstance(lease, Lease)
    assert lease.expires_at >= NOW + TIMEOUT + LEASE
    assert (await opened.inspect("j00", lease.expires_at - timedelta(milliseconds=1))).state == "inflight"


@through_proxy
async def test_an_extend_that_took_too_long_returns_no_lease(between: Proxy, opened: RedisDriver, monkeypatch) -> None:
    await opened.enqueue(jobs(1), NOW)
    (held,) = await opened.reserve(["default"], NOW, LEASE, 1)
    monkeypatch.setattr(leases, "elapsed_ms", lambda began: 30_000)
    assert isinstance((await opened.extend([held.lease], NOW, LEASE))[0], LeaseExpired)
    monkeypatch.setattr(leases, "elapsed_ms", lambda began: 29_999)
    assert isinstance((await opened.extend([held.lease], NOW, LEASE))[0], Lease)


@WHERE
@through_proxy
async def test_an_enqueue_and_a_settle_that_were_not_answered(between, opened, replies_only):
    await warm(opened)
    await opened.enqueue(jobs(1), NOW)
    (held,) = await opened.reserve(["default"], NOW, LEASE, 1)
    between.drop(replies_only)
    assert await opened.settle([Ack(held.lease)], NOW) == [None]
    between.drop(replies_only)
    await opened.enqueue([JobRecord(id="late", type="t")], NOW)
    joined = int(servers.shared().run("HGET", "{default}:job:late", "updated_ms"))
    assert (joined >= to_ms(NOW + TIMEOUT)) is not replies_only  # the second try joins when it is made
    assert (await opened.counts(NOW))["default"]["done"] == 1


@through_proxy
async def test_a_network_that_is_gone_is_noticed_although_new_connections_hang(between, opened):
    await opened.enqueue(jobs(1), NOW)
    (held,) = await opened.reserve(["default"], NOW, LEASE, 1)
    between.become("black hole")
    answers = await asyncio.gather(
        opened.enqueue(jobs(2), NOW),
        opened.reserve(["default"], NOW, LEASE, 1),
        opened.extend([held.lease], NOW, LEASE),
        opened.settle([Ack(held.lease)], NOW),
        opened.counts(NOW),
        return_exceptions=True,
    )
    for answer in answers:
        assert isinstance(answer, BackendUnavailable), answer
        assert "within 0.3 s" in str(answer)
    between.become("whole")
    between.reset()
    await opened.settle([Ack(held.lease)], NOW)


def test_by_default_a_lost_connection_is_noticed_well_within_the_lease():
    options = parse("redis://h")
    assert options.timeout + options.connect_timeout <= 10
    assert 2 * options.timeout < LEASE.total_seconds()


def test_a_connection_that_was_idle_for_long_is_replaced(monkeypatch):
    async def scenario() -> None:
        pool = RedisPool(parse(emptied()), ("127.0.0.1", servers.shared().port))
        first = await pool.ask("CLIENT", "ID")
        assert await pool.ask("CLIENT", "ID") == first
        monkeypatch.setattr(connection, "MAX_IDLE_S", 0.0)
        assert await pool.ask("CLIENT", "ID") != first
        await pool.close()

    asyncio.run(scenario())


def test_a_server_that_takes_no_more_connections():
    """Calls use those that the pool has; one that has none says what is wrong."""
    server = servers.Server(maxclients="4")

    async def scenario() -> None:
        address = f"{server.url}?checks=0"
        first, second = RedisDriver(address), RedisDriver(address)
        await first.open()
        for batch in range(3):  # twenty connections would be made
            calls = [first.enqueue([JobRecord(id=f"{batch}-{n}", type="t")], NOW) for n in range(20)]
            assert len(await asyncio.gather(*calls)) == 20
        with pytest.raises(BackendUnavailable, match="max number of clients reached; raise maxclients on the server"):
            await second.open()
        await first.close()

    try:
        asyncio.run(scenario())
    finally:
        server.stop()


def test_a_call_that_no_server_would_take_is_not_sent(monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_CALL_BYTES", 3 << 20)

    async def scenario(between: Proxy, opened: RedisDriver) -> None:
        large = [JobRecord(id=f"l{n}", type="t", payload=b"x" * (1 << 20)) for n in range(4)]
        before = int(servers.shared().run("INFO", "stats")["total_commands_processed"])
        with pytest.raises(DriverError, match="Redis takes at most 3 MB in one call, this one has 4: divide"):
            await opened.enqueue(large, NOW)
        monkeypatch.setattr(driver, "refuse_large", lambda size: None)
        with pytest.raises(DriverError, match="Redis takes at most 3 MB in one call"):
            await opened.enqueue(large, NOW)
        assert int(servers.shared().run("INFO", "stats")["total_commands_processed"]) - before < 10
        await opened.enqueue(large[:2], NOW)
        assert (await opened.counts(NOW))["default"] == {"ready": 2}

    lived(scenario, "?checks=0")


def test_a_pool_whose_connections_are_all_in_use():
    async def scenario(between: Proxy, opened: RedisDriver) -> None:
        await opened.enqueue(jobs(1), NOW)
        between.become("black hole")
        told = await asyncio.gather(*[opened.counts(NOW) for _ in range(2)], return_exceptions=True)
        assert sorted(str(each).partition(": ")[2] for each in told) == [
            "all 1 connections were in use within 0.3 s", "no connection within 0.3 s",
        ]  # fmt: skip
        between.become("whole")
        between.reset()

    lived(scenario, f"{OPTIONS}&pool_size=1&timeout=2s")


def test_routes_that_are_lost_under_a_worker_cost_no_second_execution():
    """Connections are dropped again and again while a worker reserves, extends and settles; nobody dies."""
    count, drops = lanes.figure(test=60, full=800), lanes.figure(test=3, full=20)
    chance = random.Random(lanes.seed())

    async def scenario(between: Proxy, opened: RedisDriver) -> None:
        ran: Counter[int] = Counter()
        harbor = Harbor(opened.sibling())

        @harbor.task
        async def note(number: int) -> None:
            ran[number] += 1

        async with harbor:
            worker = harbor.worker(lease=2, heartbeat=0.1, concurrency=4, poll_interval=0.05)
            working = asyncio.create_task(worker.arun())
            sent = 0
            for turn in range(drops):
                end = (turn + 1) * count // drops
                reached = chance.randint(sent, end - 1)
                while sent < end:
                    await note.aenqueue(sent)
                    sent += 1
                await until(partial(more_than, ran, reached))
                between.drop(replies_only=chance.random() < 0.5)
            await until(partial(more_than, ran, count - 1))
            while (await opened.counts(await opened.server_time())).get("default") != {"done": count}:
                await asyncio.sleep(0)
            worker.stop()
            await working
        assert set(ran.values()) == {1}

    lived(scenario, "?checks=0&timeout=500ms&connect_timeout=500ms")


def more_than(ran: Counter[int], number: int) -> bool:
    return len(ran) > number


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)
