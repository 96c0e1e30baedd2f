"""Counts for a person, who needs no exact number of a million jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taskharbor.drivers.contract import ClientDriver
from taskharbor.drivers.features import FILTERS, offers


async def read_counts(driver: ClientDriver, now: datetime, cap: int) -> dict[str, dict[str, int]]:
    """How many jobs are in which state, by queue, counted to `cap` at most: that number means "or more"."""
    able: Any = driver
    counts: dict[str, dict[str, int]] = await (
        able.counts(now, cap=cap) if offers(driver, FILTERS) else able.counts(now)
    )
    return {queue: {state: min(number, cap) for state, number in states.items()} for queue, states in counts.items()}
