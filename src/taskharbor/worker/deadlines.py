"""Deadlines: one timer for all timeouts of a worker. (A timeout context for each job costs about 5 µs; this, nothing.)

It uses the monotonic clock, so that a correction of the time neither ends nor prolongs a job. It keeps no list of its
own: a worker runs few jobs at a time, so it checks those when the earliest is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from taskharbor.model.clock import Clock
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.service import Service


class Deadlines(Service):
    """Calls `on_due(delivery, now)` for every running delivery that is due."""

    def __init__(self, clock: Clock, running: Collection[Delivery], on_due: Callable[[Delivery, float], None]) -> None:
        super().__init__()
        self._clock = clock
        self._running = running
        self._on_due = on_due
        self._wakes_at: float | None = None
        self._sooner = asyncio.Event()

    def watch(self, due: float) -> None:
        """Check the deliveries at `due` at the latest."""
        if self._wakes_at is None or due < self._wakes_at:
            self._wakes_at = due
            self._sooner.set()

    async def run(self) -> None:
        while not self.stopping:
            now = self._clock.monotonic()
            for delivery in [each for each in self._running if each.due is not None and each.due <= now]:
                self._on_due(delivery, now)
            self._wakes_at = min((each.due for each in self._running if each.due is not None), default=None)
            self._sooner.clear()
            sooner = asyncio.ensure_future(self._sooner.wait())
            if self._wakes_at is None:
                await self.rest(sooner)
            else:
                await self.rest(asyncio.ensure_future(self._sleep_until(self._wakes_at)), sooner)

    async def _sleep_until(self, moment: float) -> None:
        # Computed here, where the sleep begins: a test may move the clock before that.
        await self._clock.sleep(moment - self._clock.monotonic())
