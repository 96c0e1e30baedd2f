"""Outcomes share an fsync: kept back while reserves find work, written as soon as one does not, never for long."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.sqlite import SqliteDriver, hold, lane

pytestmark = pytest.mark.lane("sqlite")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def calls(*kinds):
    """Calls by their kinds: `light`, `patient`, or neither."""

    async def made():
        return [lane.Call(lambda tx: None, kind == "light", kind == "patient") for kind in kinds]

    return asyncio.run(made())


def test_nothing_is_kept_back_where_an_fsync_is_cheap():
    kept = hold.Hold()
    both = calls("patient", "light")
    assert kept.sort(both) == both
    kept.took(hold.WORTH / 2)
    assert kept.sort(both) == both
    assert kept.left() is None


def test_outcomes_wait_for_reserves_and_for_nothing_else(monkeypatch):
    monkeypatch.setattr(hold, "LONGEST", 1000.0)
    kept = hold.Hold()
    kept.took(1000.0)
    outcome, reserve, later, enqueue = calls("patient", "light", "patient", "heavy")
    assert kept.sort([outcome]) == [outcome]  # nobody fetches: there is nothing to wait for
    assert kept.sort([outcome, reserve]) == [reserve]
    assert 0 < (kept.left() or 0) <= hold.GAP
    assert kept.sort([later, reserve]) == [reserve]
    assert kept.sort([enqueue]) == [outcome, later, enqueue]  # an fsync is due anyway
    assert kept.left() is None
    assert kept.sort([outcome, reserve]) == [reserve]
    assert kept.sort([]) == [outcome]  # nothing came
    assert kept.sort([outcome, reserve]) == [reserve]
    kept.let_go()
    assert kept.left() == 0
    assert kept.sort([later, reserve]) == [outcome, later, reserve]


def test_several_rounds_share_one_commit_and_all_of_them_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(hold, "LONGEST", 1000.0)
    monkeypatch.setattr(hold, "GAP", 1000.0)  # only a reserve that finds less lets go

    async def scenario():
        driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db")
        await driver.open()
        await driver.enqueue([JobRecord(id=f"j{number:02}", type="t") for number in range(12)], NOW)
        driver.hub.writer.hold.took(1000.0)
        held = await driver.reserve(["default"], NOW, LEASE, 4, "w")
        settling = []
        for left in (8, 4, 0):
            settling.append(asyncio.create_task(driver.settle([Ack(item.lease) for item in held], NOW)))
            await asyncio.sleep(0)
            held = await driver.reserve(["default"], NOW, LEASE, 4, "w")
            assert len(held) == 4 if left else held == []
            assert (await driver.counts(NOW))["default"].get("done", 0) == 0 or not left
        assert await asyncio.gather(*settling) == [[None] * 4] * 3
        assert await driver.counts(NOW) == {"default": {"done": 12}}
        await driver.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_end_of_the_driver_keeps_nothing_back(tmp_path, monkeypatch):
    monkeypatch.setattr(hold, "LONGEST", 1000.0)
    monkeypatch.setattr(hold, "GAP", 1000.0)

    async def scenario():
        driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db")
        await driver.open()
        await driver.enqueue([JobRecord(id=f"j{number}", type="t") for number in range(4)], NOW)
        held = await driver.reserve(["default"], NOW, LEASE, 2, "w")
        driver.hub.writer.hold.took(1000.0)
        with driver.hub.writer.guard:  # both calls and the end come together
            settling = asyncio.create_task(driver.settle([Ack(item.lease) for item in held], NOW))
            reserving = asyncio.create_task(driver.reserve(["default"], NOW, LEASE, 2, "w"))
            closing = asyncio.create_task(driver.close())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert await settling == [None, None]
        assert len(await reserving) == 2
        await closing

    asyncio.run(asyncio.wait_for(scenario(), 20))
