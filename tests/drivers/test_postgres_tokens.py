"""Each reserved job has a token of its own, whatever other calls do during the scan."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
LEASE = timedelta(seconds=60)
GATE = 7
STANDS_STILL = f"""create function public.passes(id text) returns boolean language plpgsql as $$
begin
    if id = 'j2' then perform pg_advisory_xact_lock({GATE}); end if;
    return true;
end $$"""
READ = "j.grp is null and j.wake <= p_now"


async def stands_still_at_the_third(connection: psycopg.AsyncConnection) -> None:
    """A reserve of the worker `slow` waits at the gate when it comes to the third job of the line."""
    await connection.execute(STANDS_STILL)
    found = await connection.execute("select pg_get_functiondef(cast('taskharbor.reserve_queue_v1' as regproc))")
    ((text,),) = await found.fetchall()
    place = text.index(READ, text.index("with line as materialized"))
    await connection.execute(f"{text[:place]}(p_worker <> 'slow' or public.passes(j.id)) and {text[place:]}".encode())
    await connection.execute("select pg_advisory_lock(%s)", (GATE,))


async def waits_at_the_gate(connection: psycopg.AsyncConnection) -> None:
    while not await (
        await connection.execute("select 1 from pg_locks where locktype = 'advisory' and not granted")
    ).fetchall():
        await asyncio.sleep(0)


def test_a_job_that_was_claimed_and_released_meanwhile_has_its_own():
    address = postgres.shared().address(postgres.shared().store())

    async def live() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        await driver.enqueue([JobRecord(id=f"j{number}", type="t") for number in range(8)], NOW)
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await stands_still_at_the_third(connection)
            slow = asyncio.create_task(driver.reserve(["default"], NOW, LEASE, 8, "slow"))
            await waits_at_the_gate(connection)
            claim = "update taskharbor.jobs set state = %s, token = %s, wake = %s where id = 'j5'"
            await connection.execute(claim, (3, "others", 2**50))
            await connection.execute(claim, (2, None, 0))
            await connection.execute("select pg_advisory_unlock(%s)", (GATE,))
            held = await slow
        assert len({each.lease.token for each in held}) == len(held) == 8
        assert await driver.settle([Ack(each.lease) for each in held], NOW) == [None] * 8
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), 60))
