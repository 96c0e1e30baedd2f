"""Every reader returns since when a queue waits, also beside a backlog."""

import asyncio
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from taskharbor import Harbor
from taskharbor.conformance.environment import opened
from taskharbor.drivers import Ack, JobRecord, open_driver
from taskharbor.observe.prometheus import QueueCollector
from taskharbor.store.diagnose import reasons
from taskharbor.store.queues import read_queue_rows
from taskharbor.store.situation import read_situation
from taskharbor.testing import ManualClock
from tests.drivers.head_stores import HOUR, NOW, PLACES, on_every_store
from tests.drivers.test_heads import backlog
from tests.observe.scrape import read, value

FEW = timedelta(minutes=1)
AGE = "taskharbor_queue_oldest_ready_age_seconds"


@on_every_store
@pytest.mark.parametrize(
    ("done", "ready"), [(10_200, 1_200), pytest.param(30_000, 14_005, marks=pytest.mark.left_to("full"))]
)
def test_a_backlog_hides_nothing(place, done, ready, tmp_path):
    """Much was done today, much waits, and a few wait longer in a queue beside it."""
    dsn = PLACES[place].empty(tmp_path)

    async def story():
        async with opened(open_driver(dsn)) as driver:
            await backlog(driver, done, ready)
            rows = (await read_queue_rows(driver, NOW)).rows
            assert {row.name: row.lag for row in rows} == {"busy": 0 * HOUR, "mail": HOUR, "small": 3 * HOUR}
            registry = CollectorRegistry(auto_describe=True)
            registry.register(QueueCollector(driver, clock=ManualClock(NOW), timeout=60))
            samples = await asyncio.to_thread(read, registry)
            assert value(samples, AGE, queue="busy") == 0
            assert value(samples, AGE, queue="mail") == 3600
            assert value(samples, AGE, queue="small") == 3 * 3600

    asyncio.run(story())
    with Harbor(dsn, clock=ManualClock(NOW)) as harbor:
        found = {queue.name: queue.oldest_ready_at for queue in harbor.queues()}
        assert found == {"busy": NOW, "mail": NOW - HOUR, "small": NOW - 3 * HOUR}


def test_the_limit_of_a_group_is_not_guessed_beside_a_backlog():
    """The job that set it stands behind more records than a page looks at."""

    async def story():
        async with opened(open_driver("memory://")) as driver:
            await driver.enqueue([JobRecord(id=f"a{number:05d}", type="t") for number in range(10_100)], NOW)
            grouped = [
                JobRecord(id=f"g{number}", type="t", queue="q", group="g", group_limit=2 * (number == 0))
                for number in (0, 1, 2)
            ]
            await driver.enqueue(grouped, NOW)
            await driver.reserve(["q"], NOW, FEW, 1)
            found = reasons(await read_situation(driver, "g1", NOW))
            assert [reason.code for reason in found] == ["no_worker"]  # it is next
            found = reasons(await read_situation(driver, "g2", NOW))
            assert [reason.code for reason in found] == ["group_busy", "no_worker"]
            assert found[0].text == "its group 'g' may be full: 1 running (g0); its limit was not found"

    asyncio.run(story())


def test_the_limit_of_a_group_is_known_also_without_the_job_that_set_it():
    """It stays with the name of the group when that job is forgotten."""

    async def story():
        async with opened(open_driver("memory://")) as driver:
            await driver.enqueue([JobRecord(id="first", type="t", queue="q", group="g", group_limit=3)], NOW)
            (held,) = await driver.reserve(["q"], NOW, FEW, 1)
            await driver.settle([Ack(held.lease)], NOW)
            await driver.delete(["first"])
            await driver.enqueue([JobRecord(id=f"g{n}", type="t", queue="q", group="g") for n in range(2)], NOW)
            await driver.reserve(["q"], NOW, FEW, 1)
            found = reasons(await read_situation(driver, "g1", NOW))
            assert [reason.code for reason in found] == ["no_worker"]

    asyncio.run(story())
