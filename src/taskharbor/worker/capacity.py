"""The capacity of a worker: which deliveries occupy its slots, and how many of those are stuck.

A delivery occupies a slot from its launch until its handler has ended, even if its job was decided earlier: a function
in a thread cannot be stopped. Such a handler is reported as stuck after a while, and as freed when it ends after all.
"""

from __future__ import annotations

import asyncio

from taskharbor.model.events import HandlerFreed, HandlerStuck, WorkerStuck
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.parts import Part, WorkerParts


class LoopEvent:
    """An event like `asyncio.Event`, for one loop and one thread, that costs nothing to set again.

    `is_set` is an attribute, so a caller that ends many jobs in one turn of the loop checks it before it calls `set`.
    """

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all waiters. On a hot path: `if not event.is_set: event.set()`."""
        if not self.is_set:
            self.is_set = True
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Make the next `wait` wait again."""
        self.is_set = False

    async def wait(self) -> None:
        """Return when it is set; at once if it is."""
        if self.is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)


class Capacity(Part):
    """At most `concurrency` deliveries at a time. Everything here happens on the worker's loop."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self.running: dict[Delivery, None] = {}  # what occupies a slot, in the order of launching
        self.stuck = 0  # how many of these are stuck
        self.changed = LoopEvent()  # set when a handler has ended, or an outcome was settled

    def free(self) -> int:
        """How many more deliveries fit."""
        return self._settings.concurrency - len(self.running)

    def leave(self, delivery: Delivery) -> None:
        """Free the slot of a delivery whose handler has ended."""
        self.running.pop(delivery, None)
        if delivery.stuck:
            self.stuck -= 1
            seconds = self._clock.monotonic() - delivery.began
            self._observers.emit(HandlerFreed(delivery.job, self._worker, seconds, self.stuck))
        if not self.changed.is_set:
            self.changed.set()

    def mark_stuck(self, delivery: Delivery) -> None:
        """Report a handler that goes on a while after its job was decided without it."""
        delivery.due = None
        if delivery.stuck:
            return
        delivery.stuck = True
        self.stuck += 1
        slots = self._settings.concurrency
        self._observers.emit(HandlerStuck(delivery.job, self._worker, delivery.stop_reason, self.stuck, slots))
        if self.stuck == slots:
            self._observers.emit(WorkerStuck(self._worker, slots))

    def undecided(self) -> list[Delivery]:
        """The deliveries that have no outcome yet."""
        return [delivery for delivery in self.running if not delivery.decided]

    def ending(self) -> list[Delivery]:
        """The deliveries whose transaction is being committed or rolled back."""
        return [delivery for delivery in self.running if delivery.ending]

    def closing(self) -> list[Delivery]:
        """The deliveries with something to close on the loop once their function has ended, decided or not."""
        return [delivery for delivery in self.running if delivery.closes_later]
