"""Operations: a worker carries out slices of bulk operations beside its jobs, one at a time, in no slot of theirs.

    ask for a slice ──► there is one: run it, and ask again
         ▲          └──► there is none: rest for a few seconds, or until the slice is due that follows one that it ran
         └── the store does not answer: the same; the fetcher reports the outage

It asks with a reserve of its own, so that reserving jobs costs what it costs without it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service
from taskharbor.worker.waiting import HINTED_S

if TYPE_CHECKING:
    from taskharbor.store.bulk.runner import OperationRunner

ASK_INTERVAL_S = 5.0


class Operations(Part, Service):
    """Runs slices until a stop. A driver that lacks what operations need is never asked."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self._able = parts.settings.operations
        self._runner: OperationRunner | None = None

    async def run(self) -> None:
        if not self._able:
            return await self.rest()
        while not self.stopping:  # the pause comes first: a worker that starts looks for its own jobs
            await self.rest(self._clock.sleep(self._pause()))
            ran = True
            while ran:
                ran = await self.run_one()
        return None

    def _pause(self) -> float:
        """Seconds until the next look. What runs slices at a pace keeps it: the next one may be due sooner."""
        seconds = ASK_INTERVAL_S if self._driver.is_looking() else HINTED_S
        seconds *= 0.8 + 0.2 * random.random()
        due = None if self._runner is None else self._runner.next_at
        return seconds if due is None else min(seconds, max(0.0, (due - self._clock.now()).total_seconds()))

    async def run_one(self) -> bool:
        """Run a slice that is due; False if there is none, or the store does not answer."""
        if not self._able or self.stopping:
            return False
        try:
            if self._runner is None:
                from taskharbor.store.bulk.runner import (
                    OperationRunner,  # for the first look: most programs end before it
                )

                self._runner = OperationRunner(self._driver, self._clock, self._worker, self._observers)
            ran = await self._runner.run_one()
        except Exception as error:
            self._outage.failed("operations", error)
            return False
        self._outage.answered("operations")
        return ran
