"""Interrupts: what ends a handler from outside, a timeout or a lost lease.

    timeout ──► coroutine or process: interrupted, and decided 5 s later if it has not ended by then
           └──► thread: asked to stop, and decided at once
    lost lease, cancelled job ──► asked to stop and interrupted; its outcome is thrown away
    still running 5 s after it was decided ──► reported as stuck

A handler whose transaction is being ended has met its timeout: the end of the transaction gets 5 s as well, and is
never interrupted.

There is one timer for all timeouts of a worker. (A timeout context for each job costs about 5 µs; this, nothing.) It
uses the monotonic clock, so that a correction of the time neither ends nor prolongs a job. It keeps no list of its own:
a worker runs few jobs at a time, so it checks those when the earliest is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from taskharbor.model.errors import JobNotInflight, TaskHarborError
from taskharbor.model.events import JobCancelled, LeaseLost
from taskharbor.worker.capacity import Capacity
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import CANCELLED_WHILE_RUNNING, TIMEOUT, Delivery
from taskharbor.worker.losses import Losses
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service

CANCEL_GRACE = 5.0  # seconds until a cancelled coroutine is decided without it, and a decided one counts as stuck


class Interrupts(Part, Service):
    """Watches deadlines, and interrupts handlers."""

    def __init__(self, parts: WorkerParts, capacity: Capacity, decider: Decider, losses: Losses) -> None:
        super().__init__(parts)
        self._capacity = capacity
        self._decider = decider
        self._losses = losses
        self._wakes_at: float | None = None
        self._sooner = asyncio.Event()

    def watch(self, delivery: Delivery, timeout: timedelta) -> None:
        """Let a delivery time out, counted from now."""
        delivery.deadline = self._clock.now() + timeout
        self._watch(delivery, self._clock.monotonic() + timeout.total_seconds())

    def _watch(self, delivery: Delivery, due: float) -> None:
        delivery.due = due
        if self._wakes_at is None or due < self._wakes_at:
            self._wakes_at = due
            self._sooner.set()

    def lose(self, delivery: Delivery, error: TaskHarborError) -> None:
        """The lease of a delivery is gone: stop its handler, and ignore what it returns."""
        if delivery.decided:
            return
        self._losses.note(delivery)
        # A job that nobody holds was taken away, which is what cancelling does. If the lease had ended, another worker
        # may have taken the job, and even finished it.
        cancelled = isinstance(error, JobNotInflight) and delivery.lease.expires_at > self._clock.now()
        if cancelled:
            self._observers.emit(JobCancelled(delivery.job, self._worker, CANCELLED_WHILE_RUNNING))
        else:
            self._observers.emit(LeaseLost(delivery.job, self._worker, error))
        delivery.decided = True
        self._watch(delivery, self._clock.monotonic() + CANCEL_GRACE)
        delivery.stop_reason = "cancelled" if cancelled else "lease lost"
        self._held.pop(delivery.lease.token, None)
        delivery.tell_to_stop(delivery.stop_reason)
        self._decider.abort(delivery, "it was cancelled" if cancelled else "its lease was lost")
        delivery.interrupt()
        self._decider.on_settled()

    async def run(self) -> None:
        running = self._capacity.running
        while not self.stopping:
            now = self._clock.monotonic()
            for delivery in [each for each in running if each.due is not None and each.due <= now]:
                self._on_due(delivery, now)
            self._wakes_at = min((each.due for each in running if each.due is not None), default=None)
            self._sooner.clear()
            waiters: list[Awaitable[Any]] = [self._sooner.wait()]
            if self._wakes_at is not None:
                waiters.append(self._sleep_until(self._wakes_at))
            await self.rest(*waiters)

    async def _sleep_until(self, moment: float) -> None:
        # Computed here, where the sleep begins: a test may move the clock before that.
        await self._clock.sleep(moment - self._clock.monotonic())

    def _on_due(self, delivery: Delivery, now: float) -> None:
        if not delivery.started:
            return  # its time begins in this turn of the loop
        if delivery.decided and not delivery.ending:
            self._capacity.mark_stuck(delivery)
            return
        first, delivery.stop_reason = delivery.stop_reason != TIMEOUT, TIMEOUT
        delivery.due = now + CANCEL_GRACE
        if delivery.ending:
            if not first:
                self._decider.give_up_ending(delivery)
                self._capacity.mark_stuck(delivery)
            return
        if first:
            delivery.tell_to_stop(TIMEOUT)
            if delivery.kill is not None or not delivery.in_thread:
                delivery.interrupt()
                return
        delivery.seconds = self._clock.monotonic() - delivery.began
        self._decider.timed_out(delivery)
        if not first:
            delivery.interrupt()  # it did not end when it was cancelled; perhaps now
