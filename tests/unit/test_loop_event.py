"""The sign that something has changed: it wakes every waiting task; once it is cleared it is for the next one."""

from __future__ import annotations

import asyncio

import pytest

from taskharbor.worker.capacity import LoopEvent


async def test_it_wakes_every_waiting_task() -> None:
    event = LoopEvent()
    waiting = [asyncio.ensure_future(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    event.set()
    event.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)


async def test_it_stays_given_until_it_is_cleared() -> None:
    event = LoopEvent()
    event.set()
    async with asyncio.timeout(30):
        await event.wait()
        await event.wait()
    event.clear()
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    assert not event.is_set
    assert not waiting.done()
    event.set()
    async with asyncio.timeout(30):
        await waiting


async def test_one_who_gave_up_waiting_is_forgotten() -> None:
    event = LoopEvent()
    gone, stays = asyncio.ensure_future(event.wait()), asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    event.set()
    async with asyncio.timeout(30):
        await stays
    assert event._waiters == []
