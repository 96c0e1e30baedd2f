"""The sign that something has changed: everybody who waits hears it, once it is cleared it is for the next one."""

from __future__ import annotations

import asyncio

import pytest

from taskharbor.worker.change import Change


def test_everybody_who_waits_hears_it() -> None:
    async def scenario() -> None:
        change = Change()
        waiting = [asyncio.ensure_future(change.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        change.give()
        change.give()
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)

    asyncio.run(scenario())


def test_it_stays_given_until_it_is_cleared() -> None:
    async def scenario() -> None:
        change = Change()
        change.give()
        async with asyncio.timeout(30):
            await change.wait()
            await change.wait()
        change.clear()
        waiting = asyncio.ensure_future(change.wait())
        await asyncio.sleep(0)
        assert not change.given
        assert not waiting.done()
        change.give()
        async with asyncio.timeout(30):
            await waiting

    asyncio.run(scenario())


def test_one_who_gave_up_waiting_is_forgotten() -> None:
    async def scenario() -> None:
        change = Change()
        gone, stays = asyncio.ensure_future(change.wait()), asyncio.ensure_future(change.wait())
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        change.give()
        async with asyncio.timeout(30):
            await stays
        assert change._waiters == []

    asyncio.run(scenario())
