"""Queues and counts of a store, as `harbor.queues()` and `harbor.counts()` return them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from taskharbor.client.retries import with_retries
from taskharbor.client.store_calls import COUNTS_CAP_JOBS
from taskharbor.drivers import heads
from taskharbor.drivers.base import Driver

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
    return await with_retries(lambda driver: heads.read_counts(driver, client.clock.now(), cap), budget)


async def read_queues(client: Client, budget: Budget) -> list[QueueInfo]:
    """The queues that hold a job or are paused, in the order of their names."""

    async def read(driver: Driver) -> list[QueueInfo]:
        now = client.clock.now()
        counts = await heads.read_counts(driver, now, COUNTS_CAP_JOBS)
        waiting = await heads.read_waiting(driver, counts, sorted({*await driver.queues(), *counts}), now)
        return [
            QueueInfo(name, await driver.is_paused(name), counts.get(name, {}), head.oldest_at, head.oldest_known)
            for name, head in waiting.items()
        ]

    return await with_retries(read, budget)
