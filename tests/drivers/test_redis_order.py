"""The order of the line on Redis, where clients whose clocks differ by a little enqueue by turns."""

import asyncio
from datetime import timedelta

import pytest

from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.job import JobRecord
from taskharbor.model.times import from_ms
from tests.drivers.redis_stores import emptied

pytestmark = pytest.mark.lane("redis")

START = 1_800_000_000_000


@pytest.mark.parametrize("ahead", [1, 5, 64, 65, 200], ids=lambda ahead: f"{ahead} ahead")
def test_whoever_joined_earlier_goes_first_however_many_came_from_a_clock_that_is_ahead(ahead: int) -> None:
    async def story() -> list[str]:
        driver = RedisDriver(f"{emptied()}?checks=0")
        await driver.open()
        try:
            for at, name, count in ((0, "a", 2), (9, "c", ahead), (5, "b", 3), (9, "d", 1)):
                jobs = [JobRecord(id=f"{name}{number:03}", type="t") for number in range(count)]
                assert not any(answer.existed for answer in await driver.enqueue(jobs, from_ms(START + at)))
            assert await driver.counts(from_ms(START + 10)) == {"default": {"ready": ahead + 6}}
            taken = await driver.reserve(["default"], from_ms(START + 10), timedelta(minutes=1), 1000)
            return [reserved.job.id for reserved in taken]
        finally:
            await driver.close()

    found = asyncio.run(story())
    assert found == sorted(found)
    assert len(found) == ahead + 6
