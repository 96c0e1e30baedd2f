"""What a call on Redis costs for each of very many queues: names of tenants, say. Counted in commands."""

import asyncio
from datetime import UTC, datetime

import pytest

from taskharbor.conformance.environment import opened
from taskharbor.drivers import JobRecord
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.job_pages import FEW_JOBS
from taskharbor.model.job import State
from tests.servers import redis

NOW = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
QUEUES = FEW_JOBS + 200
FIXED = 150  # of a call: scripts of fifty queues each, and a walk of the keys

# A call, and how many commands it may take for each queue that holds one waiting job.
CALLS = {
    "queues": (lambda driver: driver.queues(), 1),
    "counts": (lambda driver: driver.counts(NOW, 10), 2),
    "damaged": (lambda driver: driver.damaged(), 1),
    "list of a state": (lambda driver: driver.list(state=State.INFLIGHT, now=NOW, limit=10), 1),
    "list": (lambda driver: driver.list(order="-id", now=NOW, limit=50), 6),
}


@pytest.mark.lane("redis")
def test_what_a_call_costs_for_each_of_many_queues():
    server = redis.shared()
    server.empty()

    def commands() -> int:
        with server.client() as client:
            found = client.info("commandstats")
        return sum(int(each["calls"]) for each in found.values())

    async def story() -> dict[str, int]:
        async with opened(RedisDriver(f"{server.url}?checks=0")) as driver:
            jobs = [JobRecord(id=f"{number:04}", type="t", queue=f"tenant-{number:04}") for number in range(QUEUES)]
            await driver.enqueue(jobs, NOW)
            cost = {}
            for name, (call, _) in CALLS.items():
                before = commands()
                await call(driver)
                cost[name] = commands() - before
            return cost

    cost = asyncio.run(story())
    allowed = {name: each * QUEUES + FIXED for name, (_, each) in CALLS.items()}
    assert {name: number for name, number in cost.items() if number > allowed[name]} == {}, allowed
    server.empty()
