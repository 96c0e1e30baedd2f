"""What a cancel or a requeue of a job with many dependents leaves to a prune: done as of the moment of that call."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.base import MAX_FOLLOWED_JOBS
from taskharbor.drivers.redis.pruning import prune
from taskharbor.model.times import to_ms
from tests.drivers.redis_stores import on_quiet_store

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
WIDTH = MAX_FOLLOWED_JOBS + 100


def job(id: str, *depends_on: str) -> JobRecord:
    return JobRecord(id=id, type="t", queue="q", flow_id="f", created_at=NOW, depends_on=depends_on)


def jobs_behind(first: str) -> list[JobRecord]:
    return [job(first), *(job(f"b{number:04}", first) for number in range(WIDTH))]


@on_quiet_store
async def test_a_prune_goes_on_without_ending_leases_or_times_early(driver, client):
    await driver.enqueue([JobRecord(id="held", type="t", queue="q", created_at=NOW)], NOW)
    (held,) = await driver.reserve(["q"], NOW, LEASE, 1)
    await driver.enqueue([JobRecord(id="later", type="t", queue="q", run_at=NOW + timedelta(hours=1))], NOW)
    await driver.enqueue(jobs_behind("first"), NOW)
    assert await driver.cancel(["first"], NOW) == [None]
    assert (await driver.counts(NOW))["q"]["cancelled"] == 1 + MAX_FOLLOWED_JOBS
    while await driver.prune(NOW, 500):
        pass
    assert (await driver.counts(NOW))["q"]["cancelled"] == 1 + WIDTH

    assert await driver.requeue(["first"], NOW + SECOND) == [None]
    (first,) = await driver.reserve(["q"], NOW + SECOND, LEASE, 1)
    assert await driver.settle([Ack(first.lease)], NOW + SECOND) == [None]
    while await driver.prune(NOW, 500):
        pass
    counts = (await driver.counts(NOW + SECOND))["q"]
    assert counts == {"ready": WIDTH, "done": 1, "inflight": 1, "scheduled": 1}
    assert await driver.settle([Ack(held.lease)], NOW + 2 * SECOND) == [None]


@on_quiet_store
async def test_what_follows_a_cancel_ends_when_that_was(driver, client):
    await driver.enqueue(jobs_behind("first"), NOW)
    assert await driver.cancel(["first"], NOW + SECOND) == [None]
    while await driver.prune(NOW, 500):
        pass
    infos = [await driver.inspect(f"b{number:04}", NOW) for number in (0, WIDTH - 1)]
    assert [info.job.finished_at for info in infos] == [NOW + SECOND] * 2
    assert not list(client.scan_iter("*th:followed"))


@on_quiet_store
async def test_a_slice_hardly_looks_at_what_an_earlier_one_took_along(driver, client):
    await driver.enqueue(jobs_behind("first"), NOW)
    assert await driver.cancel(["first"], NOW) == [None]
    client.config_resetstat()
    assert await prune(driver.store, ["q"], to_ms(NOW), 500) == WIDTH - MAX_FOLLOWED_JOBS
    assert client.info("commandstats")["cmdstat_hset"]["calls"] < MAX_FOLLOWED_JOBS
    assert (await driver.counts(NOW))["q"]["cancelled"] == 1 + WIDTH


@on_quiet_store
async def test_a_damaged_job_costs_those_behind_another_nothing(driver, client):
    await driver.enqueue(jobs_behind("first"), NOW)
    assert await driver.cancel(["first"], NOW) == [None]
    client.zadd("{q}:th:followed", {"text": 0})
    client.set("{q}:job:text", "no job")
    while await driver.prune(NOW, 500):
        pass
    assert (await driver.counts(NOW))["q"]["cancelled"] == 1 + WIDTH
