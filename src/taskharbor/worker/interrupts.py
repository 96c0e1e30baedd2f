"""Interrupts: what ends a handler from outside, a timeout or a lost lease.

    timeout ──► coroutine or process: interrupted, and decided 5 s later if it has not ended by then
           └──► thread: asked to stop, and decided at once
    lost lease, cancelled job ──► asked to stop and interrupted; its outcome is thrown away
    still running 5 s after it was decided ──► reported as stuck

A handler whose transaction is being ended has met its timeout: the end of the transaction gets 5 s as well, and is
never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from taskharbor.model.clock import Clock
from taskharbor.model.errors import JobNotInflight, TaskHarborError
from taskharbor.model.events import JobCancelled, LeaseLost, Observers
from taskharbor.worker.capacity import Capacity
from taskharbor.worker.deadlines import Deadlines
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import TIMEOUT, Delivery

CANCEL_GRACE = 5.0  # seconds until a cancelled coroutine is decided without it, and a decided one counts as stuck


class Interrupts:
    """Watches deadlines, and interrupts handlers."""

    def __init__(
        self,
        *,
        worker: str,
        clock: Clock,
        observers: Observers,
        held: dict[str, Delivery],
        capacity: Capacity,
        decider: Decider,
        on_settled: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._observers = observers
        self._held = held
        self._capacity = capacity
        self._decider = decider
        self._on_settled = on_settled
        self.deadlines = Deadlines(clock, capacity.running, self._on_due)

    def watch(self, delivery: Delivery, timeout: timedelta) -> None:
        """Let a delivery time out, counted from now."""
        delivery.deadline = self._clock.now() + timeout
        delivery.due = self._clock.monotonic() + timeout.total_seconds()
        self.deadlines.watch(delivery.due)

    def lose(self, delivery: Delivery, error: TaskHarborError) -> None:
        """The lease of a delivery is gone: stop its handler, and ignore what it returns."""
        if delivery.decided:
            return
        # A job that nobody holds was taken away, which is what cancelling does. If the lease had ended, another worker
        # may have taken the job, and even finished it.
        cancelled = isinstance(error, JobNotInflight) and delivery.lease.expires_at > self._clock.now()
        reason = "cancelled" if cancelled else "lease lost"
        if cancelled:
            self._observers.emit(JobCancelled(delivery.job, self._worker, "cancelled while it ran"))
        else:
            self._observers.emit(LeaseLost(delivery.job, self._worker, error))
        delivery.decided = True
        delivery.due = self._clock.monotonic() + CANCEL_GRACE
        self.deadlines.watch(delivery.due)
        delivery.stop_reason = reason
        self._held.pop(delivery.lease.token, None)
        delivery.tell_to_stop(reason)
        self._decider.abort(delivery, "it was cancelled" if cancelled else "its lease was lost")
        delivery.interrupt()
        self._on_settled()

    def _on_due(self, delivery: Delivery, now: float) -> None:
        if not delivery.started:
            return  # its time begins in this turn of the loop
        if delivery.decided and not delivery.ending:
            self._capacity.mark_stuck(delivery)
            return
        first, delivery.stop_reason = delivery.stop_reason != TIMEOUT, TIMEOUT
        if delivery.ending:
            self._on_due_while_ending(delivery, now, first)
            return
        delivery.due = now + CANCEL_GRACE
        if first:
            delivery.tell_to_stop(TIMEOUT)
            if delivery.kill is not None or not delivery.in_thread:
                delivery.interrupt()
                return
        delivery.seconds = self._clock.monotonic() - delivery.began
        self._decider.timed_out(delivery)
        if not first:
            delivery.interrupt()  # it did not end when it was cancelled; perhaps now

    def _on_due_while_ending(self, delivery: Delivery, now: float, first: bool) -> None:
        if first:
            delivery.due = now + CANCEL_GRACE
        else:
            delivery.due = None
            self._decider.give_up_ending(delivery)
            self._capacity.mark_stuck(delivery)
