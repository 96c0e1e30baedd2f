"""The lifespan of one run of a worker: what its handlers share, opened before the first job and closed after the last.

    new ──enter──► entered ──leave──► left
     │                └── ends by itself: the worker stops, and raises LifespanFailed
     └── raises, or is stopped meanwhile: the worker ends without having run a job

It is entered and left by one task of its own, as task groups and cancel scopes demand. Leaving it is bounded by what is
left of the time that a stop has.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any

from taskharbor.model.errors import LifespanFailed
from taskharbor.model.naming import callable_name, class_name
from taskharbor.policy.describe import summary
from taskharbor.tasks.lifespan import Lifespan
from taskharbor.worker.waiting import StopBudget, first_of, leave_behind


class RunningLifespan:
    """Enters a lifespan and leaves it. `on_end` is called when it ends by itself."""

    def __init__(self, function: Lifespan, on_end: Callable[[], None]) -> None:
        self.function = function
        self._name = callable_name(function)
        self._on_end = on_end
        self._entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Enter it; False if the worker was stopped meanwhile, LifespanFailed if it raised. `given` follows."""
        self._task = asyncio.create_task(self._live(), name="taskharbor-lifespan")
        try:
            await first_of(self._entered, stop.wait())
        except asyncio.CancelledError:
            await self._give_up(hurry)
            raise
        if not self._entered.done():
            await self._give_up(hurry)
            return False
        self._entered.result()
        return True

    @property
    def given(self) -> Any:
        """What it yielded."""
        return self._entered.result()

    async def leave(self, budget: StopBudget) -> None:
        """Leave it within what is left of a stop's time; LifespanFailed if it raised, or had ended by itself."""
        assert self._task is not None
        early = self._task.done()
        self._leave.set()
        if not early and not await budget.ended_or_cancelled(self._task):
            leave_behind([] if self._task.done() else [self._task])
            raise LifespanFailed(f"the lifespan {self._name} did not end in the time that a stop has; it was cancelled")
        if self._task.cancelled():  # with everything else on this loop
            return
        error = self._task.exception()
        if error is not None:
            raise self._failed("ended by itself" if early else "failed when it was left", error) from error
        if early:
            raise LifespanFailed(f"the lifespan {self._name} ended by itself; expected one that ends with its worker")

    async def _live(self) -> None:
        try:
            manager: Any = self.function()
            if not hasattr(manager, "__aenter__"):
                raise TypeError(f"expected an asynchronous context manager, got {class_name(manager)}")
            async with manager as given:
                self._entered.set_result(given)
                await self._leave.wait()
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # SystemExit would end the loop at once
            task = asyncio.current_task()
            # Otherwise a CancelledError is that of something this task awaited.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if self._entered.done():
                raise error if isinstance(error, Exception) else RuntimeError(repr(error)) from error
            self._entered.set_exception(self._failed("failed", error))
            self._entered.exception()  # nothing may wait for it any more
        finally:
            if not self._leave.is_set():
                self._on_end()

    async def _give_up(self, hurry: asyncio.Event) -> None:
        """Cancel it while it is being entered. What it has opened gets the time of a stop to close."""
        assert self._task is not None
        self._leave.set()
        self._task.cancel()
        if not await StopBudget(hurry).ended(self._task):
            leave_behind([self._task])

    def _failed(self, how: str, error: BaseException) -> LifespanFailed:
        """One line: which lifespan, where it failed, and with what."""
        own = getattr(getattr(inspect.unwrap(self.function), "__code__", None), "co_filename", None)
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((each for each in reversed(frames) if each.filename == own), None)
        where = "" if frame is None else f" at {os.path.basename(frame.filename)}:{frame.lineno}"
        failed = LifespanFailed(f"the lifespan {self._name} {how}{where}: {summary(error)}")
        failed.__cause__ = error
        return failed
