"""How long a stop waits for the store, on virtual time: exactly as long as it says, in few steps, at any moment."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from taskharbor.worker.waiting import HURRIED_S, STORE_S, StopBudget
from tests.simulation.loop import VirtualLoop

SHARES = (0.5, 0.8, 1.0)  # what a stop gives the fetcher, the settler and the rest


def on_virtual_time(coroutine: Coroutine[Any, Any, None]) -> None:
    """A loop on which time stands still while something is ready; turning without an end is a Livelock."""
    loop = VirtualLoop(random.Random(0), shuffle=False, steps=200)
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.dispose()


@pytest.mark.parametrize("number", range(200))
def test_shares_are_used_up_one_after_the_other_whenever_the_stop_begins(number: int) -> None:
    async def stop() -> None:
        clock, begins = asyncio.get_running_loop().time, random.Random(number).uniform(0, 10.0 ** (number % 7))
        await asyncio.sleep(begins)
        patience, never = StopBudget(asyncio.Event()), asyncio.get_running_loop().create_future()
        left = STORE_S
        for share in SHARES:
            assert not await patience.ended(never, share)
            left -= share * left
            assert clock() - begins == pytest.approx(STORE_S - left)

    on_virtual_time(stop())


@pytest.mark.parametrize("share", SHARES)
def test_a_hurry_leaves_each_its_share_of_the_shorter_time(share: float) -> None:
    async def stop() -> None:
        clock, hurry = asyncio.get_running_loop().time, asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, hurry.set)
        patience, never = StopBudget(hurry), asyncio.get_running_loop().create_future()
        assert not await patience.ended(never, share)
        assert clock() == pytest.approx(1.0 + HURRIED_S * share)
        assert not await patience.ended(never)
        assert clock() == pytest.approx(1.0 + HURRIED_S)

    on_virtual_time(stop())


def test_a_hurry_never_prolongs() -> None:
    async def stop() -> None:
        clock, hurry = asyncio.get_running_loop().time, asyncio.Event()
        asyncio.get_running_loop().call_later(STORE_S * 0.5 - 0.25, hurry.set)
        patience, never = StopBudget(hurry), asyncio.get_running_loop().create_future()
        assert not await patience.ended(never, 0.5)
        assert clock() == pytest.approx(STORE_S * 0.5)

    on_virtual_time(stop())
