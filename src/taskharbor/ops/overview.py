"""An overview of a store: its queues and its workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import read_counts, read_waiting
from taskharbor.ops import json_output
from taskharbor.ops.counting import cap_for

MAX_COUNTED = 100_000  # jobs of a queue in one state: a store may hold millions


@dataclass(frozen=True)
class Overview:
    """Queues and workers at one moment: plain values, as JSON shows them."""

    at: datetime
    queues: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    more: int = 0  # queues that are not among them


async def read_overview(driver: Driver, now: datetime, most: int | None = None) -> Overview:
    """Read the overview from the store. `most`: only the first queues by name, counted less far; a page must not cost
    more with more of them."""
    known = await driver.queues()
    cap = MAX_COUNTED if most is None else cap_for(len(known))
    counts = await read_counts(driver, now, cap)
    workers = await driver.workers(now)
    every = sorted({*known, *counts})
    names = every[:most]
    waiting = await read_waiting(driver, counts, names, now)
    queues = [
        {
            "queue": name,
            "paused": await driver.is_paused(name),
            "workers": sum(name in worker.queues for worker in workers),
            "jobs": json_output.states(counts.get(name, {})),
            "capped": any(number >= cap for number in counts.get(name, {}).values()),
            "oldest_ready_at": head.oldest_at,
            "oldest_known": head.oldest_known,
        }
        for name, head in waiting.items()
    ]
    return Overview(now, queues, [json_output.worker(info) for info in workers], len(every) - len(names))
