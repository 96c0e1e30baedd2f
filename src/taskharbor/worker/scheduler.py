"""The scheduler: stores the schedules that this program declares, and fires those that are due, beside the jobs.

    declare (once) ──► look: fire what is due ──► rest: until the next slot or for a second; longer without any
                         ▲         └── the store does not answer: rest, and look then; what was due stays due
                         └──────────────────────────┘

No worker is the leader: each one looks, and of several the first one fires a slot. It looks once a second at most, on
the average, and never takes part in reserving jobs. Under a supervisor only one process stores the declarations, when
it is asked to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from taskharbor.worker.outage import Backoff
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service
from taskharbor.worker.waiting import HINTED_S

if TYPE_CHECKING:
    from taskharbor.schedules.firing import Round, ScheduleRunner

LOOK_INTERVAL_S = 1.0
IDLE_INTERVAL_S = 5.0  # while no schedule of its queues has a slot to come


class Scheduler(Part, Service):
    """Fires schedules until a stop. A driver that keeps none is never asked. Without `fires` it does nothing.

    `declares`: store the declarations at the start; else when `declare` is called. `on_declared` is called afterwards.
    """

    def __init__(self, parts: WorkerParts, *, fires: bool, declares: bool, on_declared: Callable[[], None]) -> None:
        super().__init__(parts)
        self._declared = parts.handlers.schedules
        self._to_declare = declares
        self._on_declared = on_declared
        self._able = fires
        self._runner: ScheduleRunner | None = None
        self._looking = asyncio.Lock()  # the loop and `run_one` take turns
        self._backoff = Backoff()
        self._due_at = float("-inf")  # when the next look would come at a pace of one a second
        self._fired = 0  # jobs since the last `run_one`

    def declare(self) -> None:
        """Store the declarations now, instead of at the start."""
        self._to_declare = True
        self.wake()

    async def run(self) -> None:
        if not self._able:
            return await self.rest()
        while not self.stopping:
            began = self._clock.monotonic()
            self._due_at = max(self._due_at, began) + LOOK_INTERVAL_S
            done = await self._try()
            if done is None or not self._to_declare:  # the order may have come meanwhile
                await self.rest(self._clock.sleep(self._pause(done, began)))
        return None

    async def run_one(self) -> bool:
        """Fire what is due; False if nothing was fired since the last call, or the store does not answer."""
        if not self._able or self.stopping:
            return False
        await self._try()
        fired, self._fired = self._fired, 0  # also what the loop has fired meanwhile
        return fired > 0

    async def _try(self) -> Round | None:
        """Declare what has to be, and look; None if the store does not answer."""
        try:
            async with self._looking:
                await self._declare()
                done = await self._round()
        except Exception as error:
            self._outage.failed("schedules", error)
            return None
        self._outage.answered("schedules")
        self._backoff.reset()
        self._fired += done.fired
        return done

    async def _declare(self) -> None:
        if not self._to_declare:
            return
        if self._declared:
            from taskharbor.schedules.declare import declare

            await declare(self._driver, self._declared, self._clock, self._observers, self._worker)
        self._to_declare = False
        self._on_declared()

    async def _round(self) -> Round:
        if self._runner is None:
            from taskharbor.schedules.firing import ScheduleRunner

            self._runner = ScheduleRunner(
                self._driver,
                self._clock,
                self._observers,
                worker=self._worker,
                queues=self._settings.queues,
                declared=self._declared,
                is_stopping=lambda: self.stopping,
            )
        return await self._runner.fire_due()

    def _pause(self, done: Round | None, began: float) -> float:
        """Seconds until the next look: at the next slot if that is near, and one look a second on the average.

        A single look may come sooner after the last one. Without that, a slot a moment after a look would be served a
        second late; and if a slot comes every second, so would all others.
        """
        if done is None:
            return max(LOOK_INTERVAL_S, self._backoff.next())
        if not done.exists:
            seconds = IDLE_INTERVAL_S if self._driver.is_looking() else HINTED_S
            return seconds * (0.8 + 0.2 * random.random())
        now = self._clock.monotonic()
        if done.next_at is not None:
            seconds = (done.next_at - self._clock.now()).total_seconds()
            if seconds < 2 * LOOK_INTERVAL_S:
                return max(seconds, self._due_at - LOOK_INTERVAL_S - now, 0.0)
        return max(began + LOOK_INTERVAL_S - now, 0.0)
