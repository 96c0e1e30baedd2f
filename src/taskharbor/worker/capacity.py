"""The capacity of a worker: which deliveries occupy its slots, how many of those are stuck, and which job runs alone.

A delivery occupies a slot from its launch until its handler has ended, even if its job was decided earlier: a function
in a thread cannot be stopped. Such a handler is reported as stuck after a while, and as freed when it ends after all.

Suspects: jobs whose lease was lost twice (`policy.losses`). One of them may be what takes its worker down.

    found ──► lost max_lost times: dead
          ├► no other suspect here: waits until nothing else is held, then runs alone in its process
          └► another suspect waits or runs: given back

A suspect runs alone so that a crash is counted against the job that caused it, and only against that one. While it
waits and runs, the worker takes no more jobs. Once its outcome is stored the worker goes on, whether or not the
function has ended: one that is past its timeout may go on for ever, and must not keep every other slot idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from taskharbor.model.events import HandlerFreed, HandlerStuck, WorkerStuck
from taskharbor.model.job import JobRecord
from taskharbor.policy.losses import alone_from
from taskharbor.tasks.handler import Handler
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import SHUTDOWN, Delivery
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


class SuspectGate(Part):
    """Lets one suspect at a time run alone."""

    def __init__(self, parts: WorkerParts, decider: Decider, launch: Callable[[Delivery, Handler], None]) -> None:
        super().__init__(parts)
        self._max_lost = parts.settings.max_lost
        self._decider = decider
        self._launch = launch
        self._suspect: Delivery | None = None
        self.alone_from = alone_from(self._max_lost)  # a job that was lost this often is a suspect
        self.cautious = False  # the last batch had a suspect: more may follow, so take jobs one at a time

    @property
    def is_occupied(self) -> bool:
        """Whether a suspect waits or runs: no other job may be taken."""
        return self._suspect is not None

    def is_suspect(self, job: JobRecord) -> bool:
        """Whether a job has to run alone."""
        return job.lost >= self.alone_from

    def admit(self, delivery: Delivery) -> None:
        """Take charge of a suspect: it is dead, waits for its turn, or is given back."""
        self.cautious = True
        if delivery.job.lost >= self._max_lost:
            self._decider.crashed(delivery, self._max_lost)
        elif self._suspect is None:
            self._suspect = delivery
        else:
            # Held beside the other suspect, it would be blamed if that one takes the process down.
            self._decider.give_back(delivery, "another suspect runs alone first")

    def launch_if_alone(self) -> None:
        """Launch the waiting suspect once nothing else is held.

        An outcome that is not yet stored would be lost with the process, and its job blamed for the crash.
        """
        suspect = self._suspect
        if suspect is not None and suspect.task is None and all(each is suspect for each in self._held.values()):
            assert suspect.handler is not None
            self._launch(suspect, suspect.handler)

    def on_settled(self) -> None:
        """Something is held no longer: let the suspect go, or launch it.

        It is let go when its outcome is stored, not before: the next job might take the process down, and the suspect
        would be blamed.
        """
        if self._suspect is not None and self._suspect.lease.token not in self._held:
            self._suspect = None
        else:
            self.launch_if_alone()

    def give_back_waiting(self) -> None:
        """The worker stops: give back a suspect that has not been launched."""
        if self._suspect is not None and self._suspect.task is None:
            suspect, self._suspect = self._suspect, None
            self._decider.give_back(suspect, SHUTDOWN)
