"""Records that another program damaged, beyond the fields of the contract: the columns by which the driver finds them,
and counters. Whatever they hold, no call raises, and the neighbours are served as before."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from taskharbor.drivers import Ack, DriverError, Fail, JobRecord, Lease, Retry, State, WorkerInfo
from tests import lanes
from tests.drivers.postgres_stores import emptied, opened, store_test

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
BIG = {"huge": 2**62, "largest": 2**63 - 1, "smallest": -(2**63), "negative": -1}
SMALL = {"largest": 2**31 - 1, "smallest": -(2**31), "negative": -1}
TEXTS = {"empty": "", "word": "nobody's", "missing": None}
COLUMNS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("wake", "due", "seq", "stored"), BIG),
    **dict.fromkeys(("priority", "deliveries", "lost", "attempts", "max_attempts", "open"), SMALL | {"missing": None}),
    "created_at": BIG | {"missing": None},
    "failed_at": BIG,
    "finished_at": BIG,
    "settled_as": {"largest": 2**15 - 1, "missing": None},
    **dict.fromkeys(("token", "worker", "settled"), TEXTS),
}
PAIRS = [(column, kind) for column, kinds in COLUMNS.items() for kind in kinds]


def spoil(address: str, id: str, column: str, value: Any) -> bool:
    with psycopg.connect(address, autocommit=True) as connection:
        try:
            for table in ("jobs", "history"):
                query = f"update taskharbor.{table} set {column} = %s where id = %s"
                connection.execute(query.encode(), (value, id))
        except psycopg.IntegrityError:
            return False
    return True


async def looked_at(driver, id, now):
    info = await driver.inspect(id, now)
    listed = {each.job.id: each.state for each in (await driver.list(now=now)).items}
    assert listed[id] == info.state
    for state in State:
        found = [each.job.id for each in (await driver.list(now=now, state=state)).items]
        assert (id in found) == (info.state is state)
    assert sum(sum(states.values()) for states in (await driver.counts(now)).values()) == len(listed)
    await driver.flow("f", now)


@pytest.mark.parametrize("place", ["in line", "inflight", "blocked", "in a group", "done"])
def test_a_damaged_column_fails_no_call(place):
    address = emptied()

    async def live():
        async with opened(address) as (driver,):
            for number, (column, kind) in enumerate(lanes.few(PAIRS, PAIRS[::4])):
                try:
                    await beside(driver, place, f"{number}", column, COLUMNS[column][kind])
                except Exception as error:
                    error.add_note(f"{column} was damaged: {kind}")
                    raise

    async def beside(driver, place, queue, column, value):
        first, broken, last, root = (f"{queue}{name}" for name in "abcr")
        given: dict[str, Any] = {"queue": queue, "type": "t", "flow_id": "f"}
        if place == "in a group":
            given |= {"group": "g", "group_limit": 3}
        if place == "blocked":
            await driver.enqueue([JobRecord(id=root, **given)], NOW)
            given["depends_on"] = (root,)
        await driver.enqueue([JobRecord(id=id, **given) for id in (first, broken, last)], NOW)
        held = []
        if place in ("inflight", "done"):
            held = await driver.reserve([queue], NOW, LEASE, 9, "w")
        if place == "done":
            assert await driver.settle([Ack(each.lease) for each in held], NOW) == [None] * 3
        if place == "blocked":
            held = await driver.reserve([queue], NOW, LEASE, 9, "w")
        if not spoil(address, broken, column, value):
            return
        await looked_at(driver, broken, NOW)
        if place == "inflight":
            answers = await driver.extend([each.lease for each in held], NOW, LEASE)
            by_id = dict(zip((each.job.id for each in held), answers, strict=True))
            assert all(isinstance(by_id[id], Lease) for id in (first, last))
            outcomes = [
                Retry(each.lease, None, 1) if each.job.id == broken else Ack(each.lease) for each in held
            ]  # fmt: skip
            settled = dict(zip((each.job.id for each in held), await driver.settle(outcomes, NOW), strict=True))
            assert (settled[first], settled[last]) == (None, None)
        elif place == "done":
            assert await driver.prune(NOW + LEASE, 1000) >= 2
        else:
            if place == "blocked":
                assert await driver.settle([Ack(held[0].lease)], NOW) == [None]
            taken = {each.job.id: each for each in await driver.reserve([queue], NOW, LEASE, 9, "w")}
            assert {first, last} <= taken.keys()
            assert all((taken[id].job.lost, taken[id].job.deliveries) == (0, 1) for id in (first, last))
            await driver.settle([Fail(each.lease, "no", 1, NOW) for each in taken.values()], NOW)
        later = NOW + timedelta(days=1)
        await driver.release("w", NOW)
        await driver.reserve([queue], later, LEASE, 9)
        for verb in (driver.requeue, driver.cancel):
            answers = await verb([broken], later)
            assert answers == [None] or isinstance(answers[0], DriverError)
        if place != "done":
            await looked_at(driver, broken, later)
        await driver.delete([broken])
        await driver.cancel([first, last, root], later)
        await driver.delete([first, last, root])

    asyncio.run(live())


@store_test()
async def test_group_counters_at_their_bounds(address, driver):
    await driver.enqueue([JobRecord(id=f"j{n}", type="t", group="g", group_limit=9) for n in range(4)], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 2)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("update taskharbor.groups set inflight = 2147483647, waiting = 2147483647")
    assert await driver.settle([Retry(held[0].lease, None, 1), Ack(held[1].lease)], NOW) == [None] * 2
    await driver.reserve(["default"], NOW, LEASE, 2)


def test_a_damaged_worker_record_is_left_out():
    address = emptied()

    async def live():
        async with opened(address) as (driver,):
            for name in ("a", "b"):
                await driver.beat(WorkerInfo(name, ("q",), 0, NOW, 1, "h", 1, NOW), NOW)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("update taskharbor.workers set info = '[1' where worker = 'a'")
            return [info.worker for info in await driver.workers(NOW)]

    assert asyncio.run(live()) == ["b"]
