"""Queues and counts of a store, as `harbor.queues()` and `harbor.counts()` return them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from taskharbor.client.retries import with_retries
from taskharbor.client.store_calls import COUNTS_CAP_JOBS
from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import read_heads
from taskharbor.model.job import QueueHead, State

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue as it is now: whether it is paused, and how many jobs it has in which state (zeros left out).

    `oldest_ready_at`: since when the job is due that has been ready for longest; None if no job is ready. None also if
    the store cannot tell without reading much, as in a queue of very many groups: then `oldest_known` is False.
    """

    name: str  # its name
    paused: bool  # whether workers leave it alone
    counts: dict[str, int]  # how many jobs it has, by state
    oldest_ready_at: datetime | None = None
    oldest_known: bool = True  # False: it is not known whether a job waits, and since when


async def read_counts(client: Client, cap: int | None, budget: Budget) -> dict[str, dict[str, int]]:
    """How many jobs are in which state, by queue; with a cap, it stands for "that many or more"."""
    return await with_retries(lambda driver: _counts(client, driver, cap), budget)


async def read_queues(client: Client, budget: Budget) -> list[QueueInfo]:
    """The queues that hold a job or are paused, in the order of their names."""

    async def read(driver: Driver) -> list[QueueInfo]:
        counts = await _counts(client, driver, COUNTS_CAP_JOBS)
        names = sorted({*await driver.queues(), *counts})
        waiting = [name for name in names if counts.get(name, {}).get(State.READY)]
        heads = await read_heads(driver, waiting, client.clock.now())
        return [await _queue(driver, heads.get(name) or QueueHead(name), counts.get(name, {})) for name in names]

    return await with_retries(read, budget)


async def _counts(client: Client, driver: Driver, cap: int | None) -> dict[str, dict[str, int]]:
    now = client.clock.now()
    found = await driver.counts(now, cap)
    # In the order of names, and of states as a job goes through them: every store has an order of its own.
    return {
        name: {state.value: states[state] for state in State if state in states}
        for name, states in sorted(found.items())
    }


async def _queue(driver: Driver, head: QueueHead, counts: dict[str, int]) -> QueueInfo:
    return QueueInfo(head.queue, await driver.is_paused(head.queue), counts, head.oldest_at, head.oldest_known)
