"""One delivery in a worker's hands, from reserve to settle.

    held ──launch──► running ──decide──► decided ──settle──► gone
                        │ timeout, cancel, lost lease, end of the grace period: `stop_reason`, then interrupted
                        └ a thread that outlives its timeout stays in its slot after it was decided

`decided` is passed once: the first outcome stands, whatever the handler does afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler


class Run:
    """A job, its lease, its handler, and how far it has come."""

    __slots__ = (
        "began",
        "context",
        "decided",
        "due",
        "handler",
        "job",
        "kill",
        "lease",
        "seconds",
        "stop_reason",
        "task",
        "why",
    )

    def __init__(self, job: JobRecord, lease: Lease, handler: Handler | None) -> None:
        self.job = job
        self.lease = lease  # replaced by the heart when it was extended
        self.handler = handler
        self.context: JobContext | None = None
        self.task: asyncio.Task[None] | None = None
        self.kill: Callable[[], None] | None = None  # ends the child process of a process=True job
        self.began = 0.0
        self.seconds = 0.0
        self.due: datetime | None = None  # when it times out
        self.decided = False
        self.stop_reason = ""  # why it was interrupted: "timeout", "cancelled", "lease lost", "shutdown"
        self.why = ""  # why it is given back, if it is

    def tell_to_stop(self, reason: str) -> None:
        """Set the handler's signal. The first reason stays."""
        if self.context is not None:
            self.context.cancelled.set(reason)

    def interrupt(self) -> None:
        """End the handler if that is possible: cancel a coroutine, kill a process. A thread can only be told."""
        if self.kill is not None:
            self.kill()
        elif self.task is not None and self.handler is not None and self.handler.is_coroutine:
            self.task.cancel()
