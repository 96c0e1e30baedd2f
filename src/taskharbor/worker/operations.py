"""Operations: a worker carries out slices of bulk operations beside its jobs, one at a time, in no slot of theirs.

    ask for a slice ──► there is one: run it, and ask again
         ▲          └──► there is none: rest for a few seconds
         └── the store does not answer: the same; the fetcher reports the outage

It asks with a reserve of its own, so that reserving jobs costs what it costs without it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.events import Observers
from taskharbor.worker.outage import Outage
from taskharbor.worker.service import Service
from taskharbor.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from taskharbor.bulk.runner import OperationRunner

ASK_INTERVAL_S = 5.0


class Operations(Service):
    """Runs slices until a stop. A driver that lacks what operations need is never asked."""

    def __init__(
        self, *, settings: WorkerSettings, driver: Driver, clock: Clock, outage: Outage, observers: Observers
    ) -> None:
        super().__init__()
        self._settings = settings
        self._driver = driver
        self._clock = clock
        self._outage = outage
        self._observers = observers
        self._able = settings.operations
        self._runner: OperationRunner | None = None

    async def run(self) -> None:
        if not self._able:
            return await self.rest()
        while not self.stopping:  # the pause comes first: a worker that starts looks for its own jobs
            pause = ASK_INTERVAL_S * (0.8 + 0.2 * random.random())
            await self.rest(asyncio.ensure_future(self._clock.sleep(pause)))
            ran = True
            while ran:
                ran = await self.run_one()
        return None

    async def run_one(self) -> bool:
        """Run a slice that is due; False if there is none, or the store does not answer."""
        if not self._able or self.stopping:
            return False
        try:
            if self._runner is None:
                self._runner = self._make_runner()
            ran = await self._runner.run_one()
        except Exception as error:
            self._outage.failed("operations", error)
            return False
        self._outage.answered("operations")
        return ran

    def _make_runner(self) -> OperationRunner:
        from taskharbor.bulk.runner import OperationRunner  # for the first look: most programs end before it

        return OperationRunner(self._driver, self._clock, self._settings.name, self._observers)
