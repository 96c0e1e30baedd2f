"""Reading the heads of queues: how every front end learns what comes next, and how long the oldest job waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.model.job import QueueHead

MAX_ASKED_QUEUES = 1_000  # in one call


async def read_heads(driver: Any, queues: Sequence[str], now: datetime, n: int = 0) -> dict[str, QueueHead]:
    """The heads of these queues by name. Of a driver that has no `heads`, written before there was one, nothing is
    known."""
    ask = getattr(driver, "heads", None)
    if ask is None:
        return {queue: QueueHead(queue, oldest_known=False, next_known=n == 0) for queue in queues}
    found: dict[str, QueueHead] = {}
    for first in range(0, len(queues), MAX_ASKED_QUEUES):
        found |= {head.queue: head for head in await ask(queues[first : first + MAX_ASKED_QUEUES], now, n)}
    return found
