"""Large chords: ten thousand members, and what settling one of them costs. Steps and pages are counted.

Time is looked at in `make full` alone: a chord of ten thousand has sixty seconds on every store.
"""

import asyncio
import json
import re
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Ack, Driver, Lease, open_driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain, chord, group
from tests import lanes
from tests.flow.stores import STORES, MakeHarbor
from tests.flow.tasks import Tasks
from tests.servers import redis

LEASE = timedelta(seconds=30)


@pytest.mark.left_to("full", except_for=lanes.Chosen("memory"))
def test_one_chord_of_ten_thousand_members(dsn: str, harbor_on: MakeHarbor) -> None:
    harbor = harbor_on(dsn)
    tasks = Tasks(harbor)
    began = time.monotonic()
    handle = chord((tasks.add.s(i) for i in range(10_000)), tasks.total.s()).enqueue()
    harbor.worker(concurrency=200, heart="loop").run(until_empty=True)
    assert handle.result(1) == sum(range(1, 10_001))
    if lanes.run() == "full":
        assert time.monotonic() - began < 60
    assert tasks.names().count("total") == 1
    assert len(tasks.ran) == 10_001
    assert str(handle.progress()) == "10001 of 10001"


@pytest.mark.left_to("full", except_for=lanes.Chosen("memory"))
def test_two_groups_of_a_thousand_in_a_row(harbor: Harbor, tasks: Tasks) -> None:
    first, second = (tasks.number.s(i) for i in range(1000)), (tasks.total.s() for _ in range(1000))
    handle = chain(group(first), group(second), tasks.total.s()).enqueue()
    assert len(harbor.flow(handle.id).edges) == 3000
    harbor.worker(concurrency=200, heart="loop").run(until_empty=True)
    assert handle.result(1) == 1000 * sum(range(1000))


async def with_one_member_settled(driver: Driver, members: int) -> tuple[Harbor, datetime, Lease]:
    """A chord of which one member is settled, so that what is done once has been done; and the lease of another."""
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    await chord((tasks.add.s(i) for i in range(members)), tasks.total.s()).aenqueue()
    now = harbor.clock.now()
    first, second, _ = await driver.reserve(["default"], now, LEASE, 3)
    await driver.settle([Ack(first.lease, b"1")], now)
    return harbor, now, second.lease


def calls_to_settle_one(members: int) -> int:
    """How many functions a settle of one member calls, while most of the group is still open."""

    async def count() -> int:
        driver = MemoryDriver("memory://")
        harbor, now, lease = await with_one_member_settled(driver, members)
        calls = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            await driver.settle([Ack(lease, b"1")], now)
        finally:
            sys.setprofile(None)
        await harbor.aclose()
        return calls

    return asyncio.run(count())


def test_settling_a_member_costs_the_same_in_a_group_of_ten_or_ten_thousand() -> None:
    small = calls_to_settle_one(10)
    assert small == calls_to_settle_one(10_000)
    assert small < 200


def pages_to_settle_one(dsn: str, members: int) -> int:
    """How many pages of PostgreSQL's a settle of one member touches, while most of the group is still open."""
    import psycopg

    async def held() -> Any:
        driver = open_driver(dsn)
        async with asyncio.timeout(60):
            harbor = Harbor(driver)
            tasks = Tasks(harbor)
            await chord((tasks.add.s(i) for i in range(members)), tasks.total.s()).aenqueue()
            now = harbor.clock.now()
            taken = await driver.reserve(["default"], now, LEASE, 3)
            await driver.settle([Ack(taken[0].lease, b"1")], now)
            await harbor.aclose()
        return taken[1].lease

    # What the tests before left behind is swept, so that no statistics of theirs decide: see docs/driver-postgres.md.
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")

    lease = asyncio.run(held())
    given = json.dumps([{"o": 0, "id": lease.job_id, "token": lease.token, "was": 1, "kind": 1}])
    with psycopg.connect(dsn) as connection:
        call = "select * from taskharbor.settle_v1(%s, 1, true, false)"
        assert connection.execute(call, (given,)).fetchall() == []  # plans are made
        connection.rollback()
        rows = connection.execute(f"explain (analyze, buffers) {call}", (given,)).fetchall()
        connection.rollback()
    found = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", "\n".join(row[0] for row in rows))
    assert found is not None, rows
    return sum(int(number or 0) for number in found.groups())


def test_settling_a_member_touches_as_much_of_postgres_in_a_group_of_ten_or_ten_thousand(tmp_path: Path) -> None:
    pages = {}
    for members in (10, 10_000):
        dsn = STORES["postgresql"](tmp_path)
        assert dsn is not None, "PostgreSQL cannot run here"
        pages[members] = pages_to_settle_one(dsn, members)
    assert pages[10_000] < pages[10] + 30, pages  # a level more of each index


def commands_to_settle_one(members: int) -> dict[str, int]:
    """How often Redis runs each command in a settle of one member, those of scripts included."""

    async def count() -> dict[str, int]:
        dsn = STORES["redis"](Path())
        assert dsn is not None, "Redis cannot run here"
        driver = open_driver(dsn)
        harbor, now, lease = await with_one_member_settled(driver, members)
        await driver.opened.housekeeper.close()  # type: ignore[attr-defined]  # its scripts would be counted as well
        with redis.shared().client(decode_responses=True) as client:
            client.config_resetstat()
            assert await driver.settle([Ack(lease, b"1")], now) == [None]
            stats = client.info("commandstats")
        await harbor.aclose()
        return {name: told["calls"] for name, told in stats.items() if not name.startswith("cmdstat_config")}

    return asyncio.run(count())


def test_settling_a_member_costs_redis_the_same_commands_in_a_group_of_ten_or_ten_thousand() -> None:
    small = commands_to_settle_one(10)
    assert small == commands_to_settle_one(10_000)
    assert small["cmdstat_evalsha"] == 1
    assert sum(small.values()) < 60, small
    # Those read a key from end to end. HGETALL and HKEYS read who waits for the member, and the queues of the flow.
    assert small.keys().isdisjoint(f"cmdstat_{name}" for name in ("smembers", "lrange", "zrange", "hvals", "sort"))
    assert small.get("cmdstat_hgetall", 0) + small.get("cmdstat_hkeys", 0) <= 2


@pytest.mark.parametrize("rounds", [30])
def test_the_last_two_members_settled_at_the_same_moment_release_the_finalizer_once(
    dsn: str, harbor_on: MakeHarbor, rounds: int
) -> None:
    """Two threads, each with a driver of its own, settle the last two members of each chord together."""
    harbor = harbor_on(dsn)
    tasks = Tasks(harbor)
    now = harbor.clock.now()
    barrier = threading.Barrier(2, timeout=30)
    released: list[str] = []

    def settler(number: int) -> None:
        async def run() -> None:
            driver = open_driver(dsn) if not dsn.startswith("memory") else harbor.driver.sibling()
            await driver.open()
            for turn in range(rounds):
                (mine,) = await driver.reserve([f"m{turn}.{number}"], now, LEASE, 1)
                barrier.wait()
                assert await driver.settle([Ack(mine.lease, b"1")], now) == [None]
                barrier.wait()
                taken = await driver.reserve([f"last{turn}"], now, LEASE, 5)
                released.extend(each.job.id for each in taken)
                barrier.wait()
            await driver.close()

        asyncio.run(run())

    for turn in range(rounds):
        members = [tasks.number.s(i).options(queue=f"m{turn}.{i}") for i in range(2)]
        chord(members, tasks.total.s().options(queue=f"last{turn}")).enqueue()
    threads = [threading.Thread(target=settler, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(released) == len(set(released)) == rounds
