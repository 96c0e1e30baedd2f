"""An overview of a store: its queues and its workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.ops import json_output
from taskharbor.store.queues import MAX_EXACT_JOBS, read_all_queues, read_standings


@dataclass(frozen=True)
class Overview:
    """Queues and workers at one moment: plain values, as JSON shows them."""

    at: datetime
    queues: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    more: int  # queues that are not among them
    cap: int  # a count that reaches it means "or more"


async def read_overview(driver: Driver, now: datetime, most: int | None = None) -> Overview:
    """Read the overview from the store. `most`: only the first queues by name, counted less far; a page must not cost
    more with more of them."""
    seen = await read_all_queues(driver, now, MAX_EXACT_JOBS if most is None else None)
    rows = await read_standings(driver, now, seen, seen.names[:most])
    workers = [json_output.worker(info) for info in seen.workers]
    return Overview(now, [row.as_json() for row in rows], workers, len(seen.names) - len(rows), seen.cap)
