"""Core's own clock on a machine whose time of day is wrong, with a store that answers late."""

import asyncio
import random
from datetime import datetime, timedelta

from taskharbor.model.clock import StoreClock
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import START, Process, machines


def error_after(*looks: float) -> float:
    """By how many seconds the clock is wrong after a follow whose replies took `delays` to come back."""
    loop = VirtualLoop(random.Random(0), shuffle=False, steps=1000)
    process = Process("worker", loop, offset=3600)
    late = iter(looks)

    async def server_time() -> datetime:
        answer = START + timedelta(seconds=loop.time())
        await asyncio.sleep(next(late, 0.0))
        return answer

    async def follow() -> float:
        clock = StoreClock()
        await clock.follow(server_time)
        return abs((clock.now() - START).total_seconds() - loop.time())

    with machines(random.Random(0)):
        wrong: float = loop.run_until_complete(process.spawn(follow(), "follow"))
        loop.dispose()
    return wrong


def test_an_hour_is_corrected_at_once() -> None:
    assert error_after(0.0) <= 0.001


def test_a_look_that_took_long_is_repeated_and_the_quickest_counts() -> None:
    assert error_after(8.0, 0.2) <= 0.101
    assert error_after(8.0, 6.0, 2.0, 4.0, 9.0) <= 1.001
