"""The capacity of a worker: which deliveries occupy its slots, and how many of those are stuck.

A delivery occupies a slot from its launch until its handler has ended, even if its job was decided earlier: a function
in a thread cannot be stopped. Such a handler is reported as stuck after a while, and as freed when it ends after all.
"""

from __future__ import annotations

from taskharbor.model.clock import Clock
from taskharbor.model.events import HandlerFreed, HandlerStuck, Observers, WorkerStuck
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.loop_event import LoopEvent


class Capacity:
    """At most `concurrency` deliveries at a time. Everything here happens on the worker's loop."""

    def __init__(self, *, worker: str, concurrency: int, clock: Clock, observers: Observers) -> None:
        self._worker = worker
        self._concurrency = concurrency
        self._clock = clock
        self._observers = observers
        self.running: dict[Delivery, None] = {}  # what occupies a slot, in the order of launching
        self.stuck = 0  # how many of these are stuck
        self.changed = LoopEvent()  # set when a handler has ended, or an outcome was settled

    def free(self) -> int:
        """How many more deliveries fit."""
        return self._concurrency - len(self.running)

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
        slots = self._concurrency
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
