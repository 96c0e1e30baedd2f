"""A network that resets, swallows, cuts and dawdles: noticed within the time-outs, and repeated where that is safe."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    JobRecord,
    ScheduleChange,
    StoredSchedule,
    TransactionFailed,
)
from taskharbor.drivers.postgres import PostgresDriver, connection, pool, schema, wait
from tests.drivers.postgres_stores import opened, scene_test
from tests.servers import postgres
from tests.servers.proxy import Proxy, proxy

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)
PATIENCE = 60.0
QUICK = "?statement_timeout=1s&connect_timeout=2s"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for the server, and one more until the client gives up."""
    monkeypatch.setattr(pool, "SERVER_FIRST_S", 1.0)


def through_proxy(query: str = "") -> Any:
    """A test on a driver that is open and connected through a proxy: `between`, `driver`, and the server's address."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[tuple[Proxy, PostgresDriver, str]]:
        server = postgres.shared()
        address = server.address(server.store())
        async with (
            asyncio.timeout(PATIENCE),
            proxy("127.0.0.1", server.port) as between,
            opened(between.address(address) + query) as (driver,),
        ):
            yield between, driver, address

    return scene_test(scene, 3)


def whole(driver: PostgresDriver) -> bool:
    """Every place of the pool is free again, and what idles in it can be used."""
    found = driver._pool
    assert found is not None
    return found._free._value == found._places and all(each.is_idle for each in found.shared.idle)


@through_proxy()
async def test_connections_that_were_reset_cost_nothing(between, driver, address):
    now = await driver.server_time()
    for turn in range(3):
        between.reset()
        assert [each.existed for each in await driver.enqueue([JobRecord(id=f"j{turn}", type="t")], now)] == [False]
    between.reset()
    held = await driver.reserve(["default"], now, LEASE, 3)
    between.reset()
    assert await driver.settle([Ack(each.lease) for each in held], now) == [None] * 3
    assert whole(driver)


@through_proxy(QUICK)
async def test_a_call_without_a_reply_is_given_up(between, driver, address, quick):
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id="a", type="t")], now)
    (held,) = await driver.reserve(["default"], now, LEASE, 1)
    between.become("black hole")
    answers = await asyncio.gather(
        driver.enqueue([JobRecord(id="b", type="t")], now),
        driver.settle([Ack(held.lease)], now),
        driver.reserve(["default"], now, LEASE, 1),
        driver.cancel(["a"], now),
        driver.counts(now),
        driver.wait(["default"], 5),
        PostgresDriver(between.address(address) + QUICK).open(),
        return_exceptions=True,
    )
    for answer in answers:
        assert isinstance(answer, BackendUnavailable)
        assert "did not answer" in str(answer)
    between.become("whole")
    between.reset()
    # A swallowed call may have arrived after all; sent again it is the same job, and the same outcome.
    await driver.enqueue([JobRecord(id="b", type="t")], now)
    assert await driver.settle([Ack(held.lease)], now) == [None]
    assert (await driver.counts(now))["default"]["done"] == 1
    assert whole(driver)


@through_proxy("?statement_timeout=600s")
async def test_a_reserve_is_given_up_before_its_lease_ends_whatever_the_connection_did_before(between, driver, address):
    """Calls share a timer for each connection: one of a call that may take a minute must not serve a short one."""
    now = await driver.server_time()  # sets the timer, ten minutes from now
    between.become("black hole")
    with pytest.raises(BackendUnavailable, match="within 2 s"):
        await driver.reserve(["default"], now, timedelta(seconds=6), 1)


@through_proxy(QUICK)
async def test_a_start_without_a_reply_is_given_up(between, driver, address, quick, monkeypatch):
    made = schema.migrate

    async def swallowed(*given: Any) -> int:
        between.become("black hole")
        return await made(*given)

    monkeypatch.setattr(schema, "migrate", swallowed)
    with pytest.raises(BackendUnavailable, match="did not answer"):
        await PostgresDriver(between.address(address) + QUICK + "&schema=another").open()
    between.become("whole")
    between.reset()


@through_proxy(QUICK)
async def test_a_transaction_without_a_reply_is_given_up(between, driver, address, quick):
    """The handler has written, the network dies, and the commit comes to nothing; on the loop and in a thread."""
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id=name, type="t") for name in "ab"], now)
    one, two = await driver.reserve(["default"], now, LEASE, 2)
    loose, strict = driver.transaction(one.lease), driver.transaction_sync(two.lease)
    async with loose as connection:
        await connection.execute("create table written (n integer)")
    with_thread = await asyncio.to_thread(strict.__enter__)
    await asyncio.to_thread(with_thread.execute, "select 1")
    between.become("black hole")
    answers = await asyncio.gather(
        loose.commit(Ack(one.lease), now), asyncio.to_thread(strict.commit, Ack(two.lease), now),
        return_exceptions=True,
    )  # fmt: skip
    assert [type(answer) for answer in answers] == [TransactionFailed] * 2  # before COMMIT: it was rolled back
    between.become("whole")
    between.reset()
    while len(await driver._execute("select 1 from pg_stat_activity where state like 'idle in transaction%'")) > 0:
        await asyncio.sleep(0.01)
    assert (await driver.counts(now))["default"] == {"inflight": 2}
    assert await driver._execute("select 1 from pg_class where relname = 'written'") == []


@through_proxy(QUICK)
async def test_a_cancelled_call_ends_without_a_reply(between, driver, address, quick):
    """psycopg asks the server to stop, and would wait for its reply for ever."""
    now = await driver.server_time()
    between.become("black hole")
    call = asyncio.create_task(driver.enqueue([JobRecord(id="a", type="t")], now))
    while not between.swallowed:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    between.become("whole")
    between.reset()
    await driver.enqueue([JobRecord(id="a", type="t")], now)
    assert whole(driver)


@through_proxy(QUICK)
async def test_replies_that_are_cut(between, driver, address, quick):
    """The server has done it, the reply is lost: calls that can be repeated are sent again by themselves."""
    now = await driver.server_time()
    between.become("cut")
    jobs = [JobRecord(id=f"j{n}", type="t", idempotency_key=f"k{n}") for n in range(4)]
    assert {each.id for each in await driver.enqueue(jobs, now)} == {"j0", "j1", "j2", "j3"}
    between.become("cut")
    held = await driver.reserve(["default"], now, LEASE, 3)
    assert [(each.job.id, each.job.deliveries) for each in held] == [("j0", 1), ("j1", 1), ("j2", 1)]
    between.become("cut")
    assert await driver.extend([held[0].lease], now, LEASE * 2) == [replace(held[0].lease, expires_at=now + LEASE * 2)]
    between.become("cut")
    assert await driver.settle([Ack(each.lease, b"1") for each in held[:2]], now) == [None, None]
    between.become("cut")
    spawning = Ack(held[2].lease, None, (JobRecord(id="next", type="t"),), "next")
    assert await driver.settle([spawning], now) == [None]
    between.become("cut")
    assert await driver.cancel(["j3"], now) == [None]  # sent once, on a connection that has just answered
    between.become("cut")
    fired = [fires("one", "j4"), fires("two", "j4", "j5")]
    assert await driver.change_schedules(fired, now) == [True, True]
    assert between.cuts == 7
    assert (await driver.counts(now))["default"] == {"done": 3, "ready": 3, "cancelled": 1}
    assert whole(driver)


def fires(name: str, *ids: str) -> ScheduleChange:
    """A new schedule, with jobs."""
    row = StoredSchedule(name=name, queue="default", revision="1")
    return ScheduleChange(
        name=name, expect=None, to=row, jobs=tuple(JobRecord(id=id, type="t", queue="default") for id in ids)
    )


@through_proxy()
async def test_a_slow_network_is_only_slow(between, driver, address):
    now = await driver.server_time()
    between.become("slow")
    between.reset()
    await driver.enqueue([JobRecord(id=f"j{n}", type="t", payload=b"x" * 100) for n in range(20)], now)
    held = await driver.reserve(["default"], now, LEASE, 20)
    assert await driver.settle([Ack(each.lease) for each in held], now) == [None] * 20


@through_proxy()
async def test_an_unreachable_server_is_reported_at_once(between, driver, address):
    now = await driver.server_time()
    between.become("refused")
    between.reset()
    with pytest.raises(BackendUnavailable):
        await driver.reserve(["default"], now, LEASE, 1)
    between.become("whole")
    assert await driver.reserve(["default"], now, LEASE, 1) == []


@pytest.mark.parametrize("how", ["reset", "black hole"])
@through_proxy(QUICK)
async def test_the_listening_connection_comes_back(between, driver, address, how, monkeypatch, quick):
    for name in ("SWEEP_S", "LISTENING_S", "POLL_S"):  # a hint that is lost would be noticed only after the test
        monkeypatch.setattr(wait, name, PATIENCE)
    direct = PostgresDriver(address)
    await direct.open()
    now = await direct.server_time()
    assert await driver.wait(["default"], 0.1) is False
    found = driver._hints
    assert found is not None
    assert found.is_listening
    if how == "black hole":
        between.become("black hole")
        with pytest.raises(BackendUnavailable):  # any call of the driver finds out
            await driver.server_time()
        between.become("whole")
    between.reset()
    while found.is_listening:
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(driver.wait(["default"], PATIENCE))
    while not await direct._execute("select 1 from taskharbor.waiting"):
        await asyncio.sleep(0)
    await direct.enqueue([JobRecord(id="a", type="t")], now)
    assert await waiting is True
    await direct.close()


@through_proxy()
async def test_a_call_cancelled_at_any_moment_leaves_the_pool_whole(between, driver, address):
    """After each number of steps of the loop: while it connects, sends, waits, reads. Then everything goes on."""
    now = await driver.server_time()
    calls: list[Callable[[int], Awaitable[object]]] = [
        lambda n: driver.enqueue([JobRecord(id=f"a{n}", type="t")], now),
        lambda n: driver.reserve(["default"], now, LEASE, 1),
        lambda n: driver.prune(now, 1),
    ]
    for fresh in (False, True):
        for call in calls:
            for turns in range(1, 40, 3):
                if fresh:
                    assert driver._pool is not None
                    await driver._pool.drop_idle()
                task = asyncio.ensure_future(call(turns))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert whole(driver), (fresh, turns)
    assert await driver.server_time() >= now


@through_proxy()
async def test_a_session_that_loses_its_prepared_statements(between, driver, address):
    """As behind a pooler that the DSN does not name: statements are sent in full from then on."""
    now = await driver.server_time()
    for turn in range(connection.PREPARE_AFTER + 1):
        await driver.enqueue([JobRecord(id=f"j{turn}", type="t")], now)
    (prepared,) = await driver._execute("select count(*) from pg_prepared_statements where name like 'taskharbor%'")
    assert prepared == (1,)
    await driver._execute("deallocate all")
    assert [each.existed for each in await driver.enqueue([JobRecord(id="a", type="t")], now)] == [False]
    for turn in range(connection.PREPARE_AFTER + 1):
        assert [each.existed for each in await driver.enqueue([JobRecord(id="a", type="t")], now)] == [True], turn
    assert await driver._execute("select 1 from pg_prepared_statements where name like 'taskharbor%'") == []
    assert whole(driver)


@through_proxy()
async def test_each_verb_is_one_round_trip(between, driver, address, monkeypatch):
    """Once its statement is prepared: nothing is begun, committed or asked beside it."""
    spoken: list[str] = []
    once = connection.FastConnection.ask

    async def ask(self: connection.FastConnection, sql: str, parameters: Sequence[object] = ()) -> object:
        spoken.append(sql)
        return await once(self, sql, parameters)

    monkeypatch.setattr(connection.FastConnection, "ask", ask)
    now = await driver.server_time()
    jobs = [JobRecord(id=f"j{n}", type="t") for n in range(20)]
    spoken.clear()
    await driver.enqueue(jobs[:1], now)
    await driver.enqueue(jobs[1:], now)
    held = await driver.reserve(["default"], now, LEASE, 16)
    extended = await driver.extend([each.lease for each in held], now, LEASE * 2)
    assert extended == [replace(each.lease, expires_at=now + LEASE * 2) for each in held]
    assert await driver.settle([Ack(each.lease) for each in held], now) == [None] * 16
    await driver.change_schedules([fires("one", "a", "b"), fires("two"), fires("three", "c")], now)
    await driver.due_schedules(["default", "other"], now)
    await driver.schedules(names=["one"])
    told = [found.group(1) for found in map(re.compile(r"taskharbor\"\.(\w+)\(").search, spoken) if found]
    of_schedules = ["change_schedules_v1", "due_schedules_v1", "list_schedules_v1"]
    assert told == ["enqueue_one_v1", "enqueue_v1", "reserve_queue_v1", "extend_v1", "ack_v1", *of_schedules]
    assert len(spoken) == 8, spoken
