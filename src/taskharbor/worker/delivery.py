"""One delivery of a job that this worker holds, from reserve to settle.

    held ──launch──► running ──decide──► decided ──settle──► gone
                        │        └ `ending` while the handler's transaction is committed or rolled back
                        │ timeout, cancel, lost lease, end of the grace period: `stop_reason`, then interrupted
                        └ a thread that outlives its timeout keeps its slot after its job was decided

A delivery is decided once: the first outcome stands, whatever the handler does afterwards. The outcome queue takes
outcomes from the decider to the settler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease, Lost
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Outcome
from taskharbor.model.progress import Progress
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler
from taskharbor.worker.transaction import HandlerTransaction

SHUTDOWN, TIMEOUT = "shutdown", "timeout"  # `stop_reason`
CANCELLED_WHILE_RUNNING = "cancelled while it ran"
UNKNOWN_TYPE, SNOOZED = "unknown type", "snoozed"  # `why`, beside SHUTDOWN and sentences for people


class Delivery(msgspec.Struct, eq=False):
    """A job, its lease, its handler, and how far it has come. (A struct, because every job makes one.)"""

    job: JobRecord
    lease: Lease  # the heart replaces it after each extend
    handler: Handler | None
    lost_by: Lost | None = None  # the execution before, if it was lost
    context: JobContext | None = None
    task: asyncio.Task[None] | None = None
    kill: Callable[[], None] | None = None  # ends the child process of a process=True job
    memos: tuple[Memo, ...] | None = None  # of earlier executions; read before the handler is called, if there are any
    transaction: HandlerTransaction | None = None  # what the handler opened with ctx.transaction()
    began: float = 0.0  # monotonic
    seconds: float = 0.0  # how long the handler ran
    deadline: datetime | None = None  # when it times out, as its handler sees it
    due: float | None = None  # the same on the monotonic clock, which is never adjusted: this one is watched
    started: bool = False  # its task has taken its first step
    in_thread: bool = False  # a plain function is running: nothing can interrupt it
    left_behind: bool = False  # middleware stopped waiting for that function, which is still running
    closes_later: bool = False  # a plain function with dependencies that are closed on the loop when it has ended
    decided: bool = False
    ending: bool = False  # its transaction is being committed or rolled back; nothing interrupts that
    pending: Outcome | None = None  # what to settle once the transaction is rolled back
    stuck: bool = False  # still running long after it was decided without its handler
    stop_reason: str = ""  # why it was interrupted: "timeout", "cancelled", "lease lost", "shutdown"
    why: str = ""  # why it was given back, if it was
    progress: Progress | None = None  # what its handler last reported; set in the handler's thread
    noted: Progress | None = None  # the one that the store has; set by the heart
    changed: tuple[str, str] | None = None  # where and how the result of its child process was changed
    unrenewed: bool = False  # the last renewal was sent in time, and did not reach the store; set by the heart
    loss_counted: bool = False  # `lost_by` is in the figures

    def tell_to_stop(self, reason: str) -> None:
        """Set the handler's `ctx.cancelled`. The first reason stays."""
        if self.context is not None:
            self.context.cancelled.set(reason)

    def interrupt(self) -> None:
        """End the handler if that is possible: cancel a coroutine, kill a process. A thread only sees `ctx.cancelled`.

        Middleware is cancelled like a coroutine, also around a plain function that has not begun or has ended. A task
        that has not taken its first step is not cancelled: its coroutine would never run, and nothing would free its
        slot. It sees `stop_reason` when it starts.
        """
        if not self.started:
            return
        if self.kill is not None:
            self.kill()
        elif self.task is not None and not self.in_thread:
            self.task.cancel()


Decided: TypeAlias = tuple[Delivery, Outcome]
"""A delivery and the outcome to settle it with."""


class OutcomeQueue:
    """What is decided and not yet written, first in, first out. It belongs to the worker's loop.

    With four outcomes for each slot, and at least 64, it is full, and the fetcher takes no more jobs.
    """

    __slots__ = ("_max_outcomes", "changed", "waiting")

    def __init__(self, slots: int) -> None:
        self.waiting: list[Decided] = []
        self.changed = asyncio.Event()  # set when the queue stops being empty; the settler clears it
        self._max_outcomes = max(64, slots * 4)

    def submit(self, delivery: Delivery, outcome: Outcome) -> None:
        """Add an outcome. Call it on the worker's loop."""
        waiting = self.waiting
        if not waiting:
            self.changed.set()
        waiting.append((delivery, outcome))

    def take(self, limit: int) -> list[Decided]:
        """Remove the oldest outcomes, at most `limit`, and return them."""
        batch = self.waiting[:limit]
        del self.waiting[:limit]
        return batch

    @property
    def is_full(self) -> bool:
        """Whether the settler is so far behind that no more jobs should be taken."""
        return len(self.waiting) >= self._max_outcomes

    @property
    def is_nearly_full(self) -> bool:
        """Whether three quarters are taken: from here on the settler should not wait for more."""
        return len(self.waiting) >= self._max_outcomes * 3 // 4
