"""A store without users is freed as a whole."""

import asyncio
import gc
import weakref
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, Driver, JobRecord, open_driver

pytestmark = pytest.mark.lane("conformance-memory")

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Moment(datetime):
    """A datetime that can be watched: it is freed with its record."""


def moments(count: int, start: datetime) -> list[Moment]:
    return [Moment.fromtimestamp(start.timestamp() + n, UTC) for n in range(count)]


async def use(driver: Driver) -> list["weakref.ref[Moment]"]:
    """Jobs in every kind of place: ready, in a group, scheduled, inflight, expired, done, blocked, cancelled."""
    times = moments(40, NOW - timedelta(hours=1)) + moments(40, NOW + timedelta(hours=1))
    jobs = [
        JobRecord(id=f"j{n}", type="t", run_at=time, group=f"g{n % 3}" if n % 2 else None, flow_id="f")
        for n, time in enumerate(times)
    ]
    jobs += [JobRecord(id="after", type="t", depends_on=("j0", "j1", "j79"))]
    await driver.enqueue(jobs, NOW)
    held = await driver.reserve(["default"], NOW, timedelta(seconds=30), 10)
    await driver.settle([Ack(reserved.lease) for reserved in held[:5]], NOW)
    await driver.cancel(["j20", "j60"], NOW)
    await driver.reserve(["default"], NOW + timedelta(minutes=1), timedelta(seconds=30), 3)
    return [weakref.ref(time) for time in times]


def test_the_jobs_of_a_dropped_store_are_freed() -> None:
    driver = open_driver("memory://")
    watched = asyncio.run(use(driver))
    sibling = driver.sibling()
    del driver
    gc.collect()
    assert any(ref() is not None for ref in watched)
    del sibling
    gc.collect()
    assert [ref() for ref in watched if ref() is not None] == []
