"""Carrying jobs from an outbox to the store, beside the worker's own jobs. Any number of workers may do it."""

from __future__ import annotations

from taskharbor.model.job import JobRecord
from taskharbor.outbox.relay import Relay
from taskharbor.outbox.source import RowSource
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service


class OutboxRelay(Part, Service):
    """Relays until a stop. No job of the worker depends on it."""

    def __init__(self, parts: WorkerParts, address: str) -> None:
        super().__init__(parts)
        self._relay = Relay(
            RowSource(address),
            self._send,
            clock=parts.clock,
            observers=parts.observers,
            retention=parts.driver.retention,
            worker=self._worker,
        )

    async def run(self) -> None:
        await self._relay.run(lambda seconds: self.rest(self._clock.sleep(seconds)), lambda: self.stopping)

    async def run_one(self) -> bool:
        """Move one batch now; whether there was one."""
        return bool(await self._relay.try_once())

    async def _send(self, records: list[JobRecord]) -> None:
        await self._driver.enqueue(records, self._clock.now())
