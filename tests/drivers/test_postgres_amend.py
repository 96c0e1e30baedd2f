"""Amending beside what only PostgreSQL has: a line, counters of groups, and hints."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, Amend, JobRecord, WrongState
from taskharbor.drivers.postgres import wait
from tests.drivers.postgres_recount import mistakes
from tests.drivers.postgres_stores import emptied, opened, store_test

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)
LEASE = timedelta(seconds=30)


@store_test()
async def test_a_lease_that_a_reserve_found_over_is_still_one(address, driver):
    """Two leases are over; one of the jobs is taken over, and the other waits in the line with its token."""
    await driver.enqueue([JobRecord(id=f"j{n}", type="t") for n in range(2)], NOW)
    await driver.reserve(["default"], NOW, LEASE, 2, "first")
    assert len(await driver.reserve(["default"], LATER, LEASE, 1, "second")) == 1
    for id, deliveries in (("j0", 2), ("j1", 1)):
        change = Amend(id=id, deliveries=deliveries, edits=0, priority=1)
        (refused,) = await driver.amend([change], LATER)
        assert isinstance(refused, WrongState)
        assert "under a lease" in str(refused)


@store_test()
async def test_the_counters_of_a_group(address, driver):
    """A counted job that joins the line again is counted again by the reserve that brings it there, and not twice."""
    jobs = [JobRecord(id=f"j{n}", type="t", group="g", group_limit=1) for n in range(3)]
    await driver.enqueue(jobs, NOW)
    (first,) = await driver.reserve(["default"], NOW, LEASE, 3)
    changes = [
        Amend(id="j1", deliveries=0, edits=0, run_at=LATER),
        Amend(id="j2", deliveries=0, edits=0, priority=2),
    ]
    assert await driver.amend(changes, NOW) == [None, None]
    assert mistakes(address) == []
    await driver.settle([Ack(first.lease)], NOW)
    order = []
    for at in (NOW, LATER):
        (held,) = await driver.reserve(["default"], at, LEASE, 3)
        order.append(held.job.id)
        assert mistakes(address) == []
        await driver.settle([Ack(held.lease)], at)
    assert order == ["j2", "j1"]
    assert mistakes(address) == []


@pytest.mark.parametrize("due", [True, False])
def test_a_hint_is_sent_if_it_is_due(due, monkeypatch):
    """A waiting process is woken by the hint: here it does not poll."""
    monkeypatch.setattr(wait, "SWEEP_S", 600.0)
    monkeypatch.setattr(wait, "LISTENING_S", 600.0)
    address = emptied()

    async def scenario():
        async with opened(address, 2) as (driver, other):
            await driver.enqueue([JobRecord(id="j", type="t", run_at=LATER + LEASE)], NOW)
            waiting = asyncio.create_task(other.wait(["default"], 600.0))
            with psycopg.connect(address, autocommit=True) as connection:
                while not connection.execute("select 1 from taskharbor.waiting").fetchall():
                    await asyncio.sleep(0)
                change = Amend(id="j", deliveries=0, edits=0, run_at=None if due else LATER)
                assert await driver.amend([change], NOW) == [None]
                if due:
                    assert await waiting is True
                else:
                    assert connection.execute("select count(*) from taskharbor.waiting").fetchone() == (1,)
                    waiting.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))
