"""Cancelling a flow of ready jobs: how many scripts it takes, whatever their order in the lists."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import BackendUnavailable, JobRecord, State
from taskharbor.drivers.redis import RedisDriver
from tests.drivers.redis_stores import on_quiet_store
from tests.lanes import figure

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def stored(driver: RedisDriver, size: int, flow: str | None, **fields: Any) -> None:
    names = [f"{flow}{number}" for number in range(size)]
    random.Random(size).shuffle(names)
    for first in range(0, size, 1000):
        some: list[Any] = names[first : first + 1000]
        await driver.enqueue(
            [JobRecord(id=name, type="t", flow_id=flow, **fields) for name in some], NOW + timedelta(milliseconds=first)
        )


async def scripts_of(driver: RedisDriver, client, size: int, **fields: Any) -> int:
    """How many scripts cancel a flow of `size` jobs between others, which stay where they are."""
    client.flushall()
    await stored(driver, size // 2, None, **fields)
    await stored(driver, size, "f", **fields)
    await stored(driver, size // 2, "g", **fields)
    await driver.cancel_flow("g", NOW)  # the script is known
    await stored(driver, size // 2, "h", **fields)
    before = await driver.counts(NOW)
    client.config_resetstat()
    assert await driver.cancel_flow("f", NOW + timedelta(seconds=9)) == size
    stats = client.info("commandstats")
    made = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
    after = await driver.counts(NOW)
    assert (after["default"][State.READY], before["default"][State.READY]) == (size, 2 * size)
    lists = [key for key in client.keys("{default}:*wait") if client.type(key) == b"list"]
    assert all(client.lpos(each, "") is None for each in lists)
    assert sum(client.llen(each) for each in lists) == size
    return int(made)


@pytest.mark.parametrize("group", [None, "g"])
@on_quiet_store
async def test_a_job_takes_as_many_scripts_in_a_large_flow_as_in_a_small_one(driver, client, group):
    small, large = figure(test=1500, full=5000), figure(test=6000, full=20_000)
    few, many = [await scripts_of(driver, client, size, group=group) for size in (small, large)]
    assert many <= 1.2 * few * large / small


@on_quiet_store
async def test_a_cancel_that_stops_says_how_far_it_came(driver, client, monkeypatch):
    await stored(driver, 250, "f")
    run, calls = driver.store.endpoint.run, list[str]()

    async def run_twice(call: Any, **how: Any) -> Any:
        calls.append(call.script)
        if len(calls) == 3:
            raise BackendUnavailable("away")
        return await run(call, **how)

    with monkeypatch.context() as patch:
        patch.setattr(driver.store.endpoint, "run", run_twice)
        with pytest.raises(BackendUnavailable, match=r"flow f: cancelled 200 job\(s\), then: away; cancel it again"):
            await driver.cancel_flow("f", NOW)
    await driver.enqueue([JobRecord(id="late", type="t", flow_id="f")], NOW)
    assert (await driver.inspect("late", NOW)).state == "cancelled"
    assert await driver.cancel_flow("f", NOW) == 50
