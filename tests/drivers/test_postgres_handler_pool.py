"""The connections of `ctx.transaction()`: few, used again, waited for, and each handler finds a fresh session."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor import JobContext
from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import transaction
from tests.drivers.postgres_stores import emptied, opened, store_test
from tests.servers import postgres
from tests.worker.workbench import Bench, job, run

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
PID = "select pg_backend_pid()"


async def leases(driver, number):
    await driver.enqueue([JobRecord(id=f"j{each}", type="t") for each in range(number)], NOW)
    return [held.lease for held in await driver.reserve(["default"], NOW, LEASE, number)]


async def entered(driver, lease, is_sync):
    made = driver.transaction_sync(lease) if is_sync else driver.transaction(lease)
    return made, (await asyncio.to_thread(made.__enter__) if is_sync else await made.__aenter__())


async def done(result):
    return await result if asyncio.iscoroutine(result) else result


async def pid_of(connection):
    cursor = await done(connection.execute(PID))
    return (await done(cursor.fetchone()))[0]


@store_test()
async def test_transactions_one_after_the_other_share_a_connection(address, driver):
    """Of coroutines and plain functions, committed and rolled back."""
    pids = set()
    for number, lease in enumerate(await leases(driver, 6)):
        made, connection = await entered(driver, lease, number % 2)
        pids.add(await pid_of(connection))
        if number % 3:
            assert await done(made.commit(Ack(lease), NOW)) is None
        else:
            await done(made.rollback())
    assert len(pids) == 1


@pytest.mark.parametrize("is_sync", [False, True])
@store_test()
async def test_a_handler_finds_nothing_of_the_one_before(address, driver, is_sync):
    one, two = await leases(driver, 2)
    made, first = await entered(driver, one, is_sync)
    pid = await pid_of(first)
    first.row_factory = psycopg.rows.dict_row
    for statement in (
        "set statement_timeout = '3s'",
        "create temp table mine (n integer)",
        "select pg_advisory_lock(1)",
        "listen mine",
        "prepare mine as select 1",
        "select nextval('taskharbor.hinted_at')",
    ):
        await done(first.execute(statement))
    assert await done(made.commit(Ack(one), NOW)) is None
    made, second = await entered(driver, two, is_sync)
    assert await pid_of(second) == pid
    cursor = await done(
        second.execute(
            "select current_setting('statement_timeout'), to_regclass('pg_temp.mine'), "
            "(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), "
            "(select count(*) from pg_prepared_statements where name = 'mine'), array(select pg_listening_channels())"
        )
    )
    assert await done(cursor.fetchone()) == ("0", None, 0, 0, [])
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="lastval is not yet defined"):
        await done(second.execute("savepoint s; select lastval()"))
    await done(second.execute("rollback to savepoint s"))
    with pytest.raises(psycopg.Error, match=r"closed|has ended"):
        await done(first.execute("select 1"))
    await done(first.close())
    assert await pid_of(second) == pid, "the handler before has closed nothing"
    await done(made.rollback())


@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_behind_a_pooler_no_session_of_others_is_reset(is_sync, named):
    """It lends its sessions to other programs as well: what they have prepared there stays."""
    server = postgres.shared()
    name = server.store()
    address = server.address(name, server.pgbouncer())

    async def live():
        async with opened(server.address(name)) as (driver,):
            lease, other = await leases(driver, 2)
        async with opened(f"{address}?pgbouncer=1" if named else address) as (driver,):
            made, connection = await entered(driver, lease, is_sync)
            pid = await pid_of(connection)
            await done(connection.execute("prepare theirs as select 1"))
            assert await done(made.commit(Ack(lease), NOW)) is None
            made, connection = await entered(driver, other, is_sync)
            assert await pid_of(connection) == pid
            await done(connection.execute("execute theirs"))
            assert await done(made.commit(Ack(other), NOW)) is None

    asyncio.run(asyncio.wait_for(live(), 60))


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_transaction_waits_for_a_place_or_for_the_end_of_its_job(is_sync):
    async def live():
        async with opened(f"{emptied()}?pool_size=1") as (driver,):
            one, two, three = await leases(driver, 3)
            made, connection = await entered(driver, one, False)
            waiting = asyncio.create_task(entered(driver, two, is_sync))
            aborted = driver.transaction_sync(three) if is_sync else driver.transaction(three)
            enter = asyncio.to_thread(aborted.__enter__) if is_sync else aborted.__aenter__()
            entering = asyncio.ensure_future(enter)
            while len(driver._handlers._waiting) < 2:
                await asyncio.sleep(0)
            await done(aborted.abort("it timed out"))
            with pytest.raises(psycopg.InterfaceError, match="timed out"):
                await entering
            await made.rollback()
            second, connection = await waiting
            assert await pid_of(connection)
            await done(second.rollback())
            assert driver._handlers._free == 1

    asyncio.run(asyncio.wait_for(live(), 60))


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_connection_that_the_server_has_closed_is_replaced(is_sync):
    async def live():
        async with opened(emptied()) as (driver,):
            one, two = await leases(driver, 2)
            made, connection = await entered(driver, one, is_sync)
            pid = await pid_of(connection)
            assert await done(made.commit(Ack(one), NOW)) is None
            await driver._execute("select pg_terminate_backend(?)", pid)
            made, connection = await entered(driver, two, is_sync)
            assert await pid_of(connection) != pid
            assert await done(made.commit(Ack(two), NOW)) is None

    asyncio.run(asyncio.wait_for(live(), 60))


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_job_whose_transaction_cannot_begin_is_given_back(is_sync, monkeypatch):
    """The server has no connection for it at first: that costs the job no attempt."""
    refused = threading.Event()
    kind = transaction.SyncHandlerConnection if is_sync else transaction.AsyncHandlerConnection
    connect = kind.connect

    def connected(**given):
        if not refused.is_set():
            refused.set()
            raise psycopg.OperationalError("FATAL: too many connections for role")
        return connect(**given)

    monkeypatch.setattr(kind, "connect", connected)
    ran = []

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("select 1")
        ran.append(ctx.job.attempts)

    def plain(ctx: JobContext) -> None:
        with ctx.transaction() as connection:
            connection.execute("select 1")
        ran.append(ctx.job.attempts)

    async def scenario() -> None:
        async with opened(emptied()) as (driver,):
            bench = Bench(driver)
            await bench.ran(plain if is_sync else handler, job("j", max_attempts=1))
            assert not ran
            bench.clock.advance(timedelta(seconds=5))
            await bench.ran(plain if is_sync else handler)
            assert await bench.state("j") == "done"

    run(scenario())
    assert ran == [0]
