"""Large chords: ten thousand members, and what settling one of them costs. Steps are counted, never time."""

import asyncio
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Ack, open_driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain, chord, group
from tests.flow.tasks import Tasks

LEASE = timedelta(seconds=30)


def test_one_chord_of_ten_thousand_members(dsn: str) -> None:
    harbor = Harbor(dsn)
    tasks = Tasks(harbor)
    handle = chord((tasks.add.s(i) for i in range(10_000)), tasks.total.s()).enqueue()
    harbor.worker(concurrency=200, heart="loop").run(until_empty=True)
    assert handle.result(1) == sum(range(1, 10_001))
    assert tasks.names().count("total") == 1
    assert len(tasks.ran) == 10_001
    assert str(handle.progress()) == "10001 of 10001"
    harbor.close()


def test_two_groups_of_a_thousand_in_a_row(harbor: Harbor, tasks: Tasks) -> None:
    first, second = (tasks.number.s(i) for i in range(1000)), (tasks.total.s() for _ in range(1000))
    handle = chain(group(first), group(second), tasks.total.s()).enqueue()
    assert len(harbor.flow(handle.id).edges) == 3000
    harbor.worker(concurrency=200, heart="loop").run(until_empty=True)
    assert handle.result(1) == 1000 * sum(range(1000))


def calls_to_settle_one(members: int) -> int:
    """How many functions a settle of one member calls, while most of the group is still open."""

    async def count() -> int:
        driver = MemoryDriver("memory://")
        harbor = Harbor(driver)
        tasks = Tasks(harbor)
        await chord((tasks.add.s(i) for i in range(members)), tasks.total.s()).aenqueue()
        now = harbor.clock.now()
        held = await driver.reserve(["default"], now, LEASE, 3)
        await driver.settle([Ack(held[0].lease, b"1")], now)  # whatever is done once has been done
        calls = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            await driver.settle([Ack(held[1].lease, b"1")], now)
        finally:
            sys.setprofile(None)
        await harbor.aclose()
        return calls

    return asyncio.run(count())


def test_settling_a_member_costs_the_same_in_a_group_of_ten_or_ten_thousand() -> None:
    small = calls_to_settle_one(10)
    assert small == calls_to_settle_one(10_000)
    assert small < 200


@pytest.mark.parametrize("rounds", [30])
def test_the_last_two_members_settled_at_the_same_moment_release_the_finalizer_once(dsn: str, rounds: int) -> None:
    """Two threads, each with a driver of its own, settle the last two members of each chord together."""
    harbor = Harbor(dsn)
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
    harbor.close()
