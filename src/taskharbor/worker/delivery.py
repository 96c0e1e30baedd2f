"""One delivery in a worker's hands, from reserve to settle.

    held ──launch──► running ──decide──► decided ──settle──► gone
                        │        └ `ending` while the handler's transaction is committed or undone: not interrupted
                        │ timeout, cancel, lost lease, end of the grace period: `stop_reason`, then interrupted
                        └ a thread that outlives its timeout stays in its slot after it was decided

`decided` is passed once: the first outcome stands, whatever the handler does afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Outcome
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler
from taskharbor.worker.transaction import HandlerTransaction

SHUTDOWN, TIMEOUT = "shutdown", "timeout"


class Delivery(msgspec.Struct, eq=False):
    """A job, its lease, its handler, and how far it has come. (A struct, because one is made for every job.)"""

    job: JobRecord
    lease: Lease  # replaced by the heart when it was extended
    handler: Handler | None
    context: JobContext | None = None
    task: asyncio.Task[None] | None = None
    kill: Callable[[], None] | None = None  # ends the child process of a process=True job
    transaction: HandlerTransaction | None = None  # what the handler opened with ctx.transaction()
    began: float = 0.0
    seconds: float = 0.0
    deadline: datetime | None = None  # when it times out, as its handler is told
    due: float | None = None  # the same on the clock that is never set: what is watched
    started: bool = False  # its task has taken its first step
    in_thread: bool = False  # a plain function runs: nothing can interrupt it
    left_behind: bool = False  # middleware gave it up there, and it goes on
    decided: bool = False
    ending: bool = False  # its transaction is being committed or undone
    pending: Outcome | None = None  # what to settle once it is undone
    stuck: bool = False  # it goes on although it was decided without it, and was told so long ago
    stop_reason: str = ""  # why it was interrupted: "timeout", "cancelled", "lease lost", "shutdown"
    why: str = ""  # why it is given back, if it is

    def tell_to_stop(self, reason: str) -> None:
        """Set the handler's signal. The first reason stays."""
        if self.context is not None:
            self.context.cancelled.set(reason)

    def interrupt(self) -> None:
        """End the handler if that is possible: cancel a coroutine, kill a process. A thread can only be told.

        Middleware is cancelled like a coroutine, also around a plain function that has not begun or has ended.
        A task that has not taken its first step is left to see `stop_reason` itself: cancelled before that, its
        coroutine would never run, and nobody would take it out of its slot.
        """
        if not self.started:
            return
        if self.kill is not None:
            self.kill()
        elif self.task is not None and not self.in_thread:
            self.task.cancel()
